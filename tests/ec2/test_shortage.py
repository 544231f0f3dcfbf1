"""Where EC2 has no spot machines, or not enough: what Ray's autoscaler does with `cluster.yaml`.

All of it but EC2 is Ray's own: the scheduler, the table of instances, and what goes through it.
"""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from raystream.actors.control import node_pool as pool
from raystream.controller.elastic.pool import OPERATOR_NODE, Request
from tests.ec2.conftest import cluster_yaml

ROUNDS = 20


class Cloud:
    """An EC2 without spot machines; of several asked for at once it has one less.

    tried: the types of machines that were asked for, and how many.
    """

    def __init__(self) -> None:
        self.there: dict[str, Any] = {}
        self.errors: list[Any] = []
        self.tried: list[tuple[str, int]] = []
        self.add("i-head", "head")

    def add(self, name: str, kind: str) -> None:
        from ray.autoscaler.v2.instance_manager.node_provider import CloudInstance
        from ray.core.generated import instance_manager_pb2

        kinds: Any = instance_manager_pb2.NodeKind
        self.there[name] = CloudInstance(
            cloud_instance_id=name,
            node_type=kind,
            node_kind=kinds.HEAD if kind == "head" else kinds.WORKER,
            is_running=True,
        )

    def get_non_terminated(self) -> dict[str, Any]:
        return dict(self.there)

    def launch(self, shape: dict[str, int], request_id: str) -> None:
        from ray.autoscaler.v2.instance_manager.node_provider import LaunchNodeError

        for kind, count in shape.items():
            self.tried.append((kind, count))
            if kind == "operator-spot":
                self.errors.append(LaunchNodeError(kind, count, request_id, time.time_ns()))
                continue
            for _ in range(max(1, count - 1)):
                self.add(f"i-{len(self.there)}", kind)

    def terminate(self, ids: list[str], request_id: str) -> None:
        raise AssertionError(f"{ids} are to end")

    def poll_errors(self) -> list[Any]:
        errors, self.errors = self.errors, []
        return errors


class Autoscaler:
    """Ray's, of a head that is there; asked for what a pool asks for."""

    def __init__(self, cloud: Any, running: int = 0) -> None:
        from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
        from ray.autoscaler.v2.instance_manager.instance_manager import InstanceManager
        from ray.autoscaler.v2.instance_manager.instance_storage import InstanceStorage
        from ray.autoscaler.v2.instance_manager.storage import InMemoryStorage
        from ray.autoscaler.v2.instance_manager.subscribers import (
            cloud_instance_updater,
            cloud_resource_monitor,
        )
        from ray.autoscaler.v2.scheduler import ResourceDemandScheduler

        read = cluster_yaml()
        read["provider"]["disable_node_updaters"] = True
        self.config = AutoscalingConfig(read, skip_content_hash=True)
        self.cloud = cloud
        self.monitor = cloud_resource_monitor.CloudResourceMonitor()
        updater = cloud_instance_updater.CloudInstanceUpdater(cloud)
        storage = InstanceStorage("cluster", InMemoryStorage())
        self.instances = InstanceManager(storage, [updater, self.monitor])
        self.scheduler = ResourceDemandScheduler()
        self.running = running
        for i in range(running):
            cloud.add(f"w-{i}", "operator")

    def round(self, bundles: list[dict[str, int]], selectors: list[dict[str, str]]) -> None:
        from ray.autoscaler.v2.instance_manager.reconciler import Reconciler

        reconcile: Any = Reconciler.reconcile
        reconcile(
            instance_manager=self.instances,
            scheduler=self.scheduler,
            cloud_provider=self.cloud,
            cloud_resource_monitor=self.monitor,
            ray_cluster_resource_state=self.state(bundles, selectors),
            non_terminated_cloud_instances=self.cloud.get_non_terminated(),
            autoscaling_config=self.config,
            cloud_provider_errors=self.cloud.poll_errors(),
        )

    def state(self, bundles: list[dict[str, int]], selectors: list[dict[str, str]]) -> Any:
        from ray.autoscaler.v2.utils import ResourceRequestUtil
        from ray.core.generated import autoscaler_pb2, common_pb2

        proto: Any = autoscaler_pb2
        state = proto.ClusterResourceState()
        nodes = [("i-head", "head", {"CPU": 4.0, "node:__internal_head__": 1.0})]
        nodes += [(f"w-{i}", "operator", {OPERATOR_NODE: 1.0}) for i in range(self.running)]
        for name, kind, offers in nodes:
            node = state.node_states.add(instance_id=name, ray_node_type_name=kind)
            node.node_id = name.encode().ljust(28, b"-")
            node.status = proto.NodeStatus.RUNNING
            node.total_resources.update(offers)
            node.available_resources.update(offers)
            node.labels.update({} if kind == "head" else {"market": "on-demand"})
        constraint = state.cluster_resource_constraints.add()
        not_in = common_pb2.LabelSelectorOperator.Value("LABEL_OPERATOR_NOT_IN")
        for bundle, selector in zip(bundles, selectors, strict=True):
            terms = []
            for label, value in selector.items():
                names = re.fullmatch(r"!in\((.*)\)", value)
                assert names is not None
                terms.append((label, not_in, names[1].split(",")))
            made = ResourceRequestUtil.make(bundle, label_selectors=[terms] if terms else None)
            constraint.resource_requests.add(request=made, count=1)
        return state


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments with which Ray was asked last."""
    from ray.autoscaler import sdk

    last: dict[str, Any] = {}
    monkeypatch.setattr(sdk, "request_resources", last.update)
    return last


def brought(asked: dict[str, Any], cloud: Cloud, *requests: Request, running: int = 0) -> list[str]:
    """The types of machines that there are in the end, but for the head, when these were asked for
    one after the other."""
    autoscaler = Autoscaler(cloud, running)
    for request in requests:
        pool.ask(request)
        for _ in range(ROUNDS):
            autoscaler.round(asked["bundles"], asked["bundle_label_selectors"])
    return sorted(m.node_type for i, m in cloud.there.items() if i != "i-head")


def test_ray_asks_for_what_it_prefers_for_ever(asked: dict[str, Any]) -> None:
    """If it does not any more, `PoolOptions.spot_seconds` has become superfluous."""
    cloud = Cloud()
    assert not brought(asked, cloud, Request(2))
    assert {kind for kind, _ in cloud.tried} == {"operator-spot"} and len(cloud.tried) > 10


def test_the_pool_asks_for_others_then(asked: dict[str, Any]) -> None:
    assert brought(asked, Cloud(), Request(2, no_spot=2)) == ["operator", "operator"]
    assert brought(asked, Cloud(), Request(3, ("x", "y"), no_spot=3)) == 3 * ["operator"]


def test_spot_machines_that_were_asked_for_before_leave_room(asked: dict[str, Any]) -> None:
    """All that there may be: those that are still asked for count."""
    wanted = [Request(12), Request(12, no_spot=12), Request(12, no_spot=12)]
    assert brought(asked, Cloud(), *wanted) == 12 * ["operator"]


def test_machines_that_are_no_spot_machines_are_counted(asked: dict[str, Any]) -> None:
    cloud = Cloud()
    assert brought(asked, cloud, Request(4, no_spot=4), running=3) == 4 * ["operator"]
    assert len(cloud.tried) == 1


def test_of_several_machines_none_is_waited_for_in_vain(asked: dict[str, Any]) -> None:
    """Asked for several at once, EC2 may start fewer and say nothing, and Ray waits ten minutes."""
    cloud = Cloud()
    assert len(brought(asked, cloud, Request(10, no_spot=10), running=5)) == 10
    assert {count for _, count in cloud.tried} == {1}
