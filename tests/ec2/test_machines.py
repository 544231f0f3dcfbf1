"""Machines of `cluster.yaml` come and go: by Ray's AWS provider, by its autoscaler, by a pool."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from raystream.controller.elastic.pool import OPERATOR_NODE
from tests.actors.helpers.heads import heard, program, started_head, started_node
from tests.gates import LIMIT_SECONDS


def provider_of(made: dict[str, Any]) -> Any:
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    return AWSNodeProvider(made["provider"], made["cluster_name"])


def start(provider: Any, made: dict[str, Any], kind: str) -> str:
    """Start a machine of a type as Ray's launcher does; its id."""
    from ray.autoscaler import tags

    node_kind = tags.NODE_KIND_HEAD if kind == "head" else tags.NODE_KIND_WORKER
    tagged = {
        tags.TAG_RAY_NODE_KIND: node_kind,
        tags.TAG_RAY_NODE_NAME: f"ray-raystream-{kind}",
        tags.TAG_RAY_USER_NODE_TYPE: kind,
        tags.TAG_RAY_LAUNCH_CONFIG: "as it is",
    }
    node_config = {**made["available_node_types"][kind]["node_config"]}
    (made_id,) = provider.create_node(node_config, tagged, 1)
    return str(made_id)


def test_machines_are_started_named_listed_and_ended(made: dict[str, Any]) -> None:
    import boto3
    from ray.autoscaler.tags import (
        NODE_KIND_WORKER,
        TAG_RAY_CLUSTER_NAME,
        TAG_RAY_NODE_KIND,
        TAG_RAY_USER_NODE_TYPE,
    )

    assert made["head_node"]["IamInstanceProfile"]  # with which the head starts the others
    provider = provider_of(made)
    ids = {kind: start(provider, made, kind) for kind in made["available_node_types"]}
    assert {*provider.non_terminated_nodes({})} == {*ids.values()}
    workers = provider.non_terminated_nodes({TAG_RAY_NODE_KIND: NODE_KIND_WORKER})
    assert {*workers} == {ids["operator"], ids["operator-spot"]}
    tags = provider.node_tags(ids["operator"])
    assert tags[TAG_RAY_CLUSTER_NAME] == "raystream"
    assert tags[TAG_RAY_USER_NODE_TYPE] == "operator"

    client = boto3.client("ec2")
    listed = client.describe_instances(InstanceIds=[*ids.values()])["Reservations"]
    machines = {m["InstanceId"]: m for r in listed for m in r["Instances"]}
    spot = {i for i, m in machines.items() if m.get("InstanceLifecycle") == "spot"}
    assert spot == {ids["operator-spot"]}
    assert machines[ids["head"]]["InstanceType"] == "r7i.xlarge"

    provider.terminate_nodes(workers)
    assert provider.non_terminated_nodes({}) == [ids["head"]]
    ended = client.describe_instances(InstanceIds=workers)["Reservations"]
    assert {m["State"]["Name"] for r in ended for m in r["Instances"]} == {"terminated"}
    provider.terminate_node(ids["head"])
    assert not provider.non_terminated_nodes({})


def machines(client: Any, *states: str) -> dict[str, str]:
    """The node types of the machines in these states, by id."""
    wanted = [{"Name": "instance-state-name", "Values": [*states]}]
    listed = client.describe_instances(Filters=wanted)["Reservations"]
    found = [m for r in listed for m in r["Instances"]]
    tags = {m["InstanceId"]: {t["Key"]: t["Value"] for t in m.get("Tags", [])} for m in found}
    return {i: t["ray-user-node-type"] for i, t in tags.items() if "ray-user-node-type" in t}


def wait_for(look: Callable[[], set[str]], what: str) -> set[str]:
    """What is found, once anything is."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.2)
    return found


@pytest.mark.ray
@pytest.mark.slow
def test_a_pool_brings_a_machine_and_lets_it_go(made: dict[str, Any], ec2: dict[str, str]) -> None:
    import boto3

    client = boto3.client("ec2")
    head_id = start(provider_of(made), made, "head")
    there = {k: v for k, v in made.items() if k != "head_node"}  # as on a head that `ray up` made
    there |= {
        "provider": {**made["provider"], "disable_node_updaters": True},
        "idle_timeout_minutes": 0.05,
        "file_mounts": {},
    }
    on_head = {**ec2, "RAY_CLOUD_INSTANCE_ID": head_id, "RAY_NODE_TYPE_NAME": "head"}
    with (
        started_head(env=on_head, config=there) as head,
        program("-m", "tests.actors.helpers.pool_story", "short", head.address) as story,
    ):
        (machine,) = wait_for(
            lambda: {*machines(client, "pending", "running")} - {head_id}, "another machine"
        )
        assert machines(client, "pending", "running")[machine] == "operator-spot"  # by priority
        # Nobody logs in to that machine and starts Ray there, so it is done here.
        on_node = {"RAY_CLOUD_INSTANCE_ID": machine, "RAY_NODE_TYPE_NAME": "operator-spot"}
        offers = f'--resources={{"{OPERATOR_NODE}": 1}}'
        with started_node(head, offers, env=on_node):
            heard(story, "filled")
            heard(story, "emptied")
            wait_for(lambda: {machine} & {*machines(client, "terminated")}, "the end of it")
        assert {*machines(client, "pending", "running")} == {head_id}
        assert story.wait(60) == 0
