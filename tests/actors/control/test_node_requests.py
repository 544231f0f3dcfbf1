"""How nodes are asked for, and what comes of an autoscaler that does not answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import ray
from ray.exceptions import RpcError

from raystream.actors.control import node_pool as pool
from raystream.actors.control.node_pool import NodePool
from raystream.controller.elastic.pool import (
    MARKET,
    OPERATOR_NODE,
    SPOT,
    PoolNode,
    PoolOptions,
    Request,
)
from raystream.errors import ConfigError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What was asked for; the cluster has no nodes, and no other job."""
    found: list[Request] = []
    monkeypatch.setattr(pool, "claim", lambda run: None)
    monkeypatch.setattr(pool, "ending", dict)
    monkeypatch.setattr(ray, "nodes", list)
    monkeypatch.setattr(pool, "ask", found.append)
    return found


def test_a_request_that_was_not_heard_is_made_again_and_ends_no_job(
    monkeypatch: pytest.MonkeyPatch, asked: list[Request]
) -> None:
    nodes = NodePool("a job", PoolOptions(spare=2))

    def unheard(_: Request) -> None:
        raise RpcError("deadline exceeded")

    with monkeypatch.context() as busy:
        busy.setattr(pool, "ask", unheard)
        assert nodes.look((), ()).request == Request(2)
    nodes.look((), ())
    nodes.look((), ())
    assert asked == [Request(2)]


def test_nodes_say_whether_they_are_spot_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    def node(name: str, **labels: str) -> dict[str, Any]:
        return {"NodeID": name, "Alive": True, "Resources": {OPERATOR_NODE: 1.0}, "Labels": labels}

    listed = [node("a"), node("b", **{MARKET: SPOT}), node("c", **{MARKET: "on-demand"})]
    listed += [{**node("d"), "Alive": False}, {**node("e"), "Resources": {}}]
    monkeypatch.setattr(ray, "nodes", lambda: listed)
    assert pool.operator_nodes({"a"}, {"b"}) == [
        PoolNode("a", used=True),
        PoolNode("b", used=False, ending=True, spot=True),
        PoolNode("c", used=False),
    ]


@pytest.mark.parametrize(
    "wrong",
    [{"spare": -1}, {"spare": 1, "idle_seconds": -1.0}, {"spare": 1, "spot_seconds": -1.0}],
)
def test_a_pool_has_no_negative_numbers(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"PoolOptions\({[*wrong][-1]}=-1"):
        PoolOptions(**wrong)


def test_lengths_of_time_of_a_pool_are_given_as_elsewhere() -> None:
    options = PoolOptions(1, idle_seconds="5m", spot_seconds=timedelta(minutes=1))
    assert (options.idle_seconds, options.spot_seconds) == (300.0, 60.0)
