"""A head that is gone for a while: nobody waits for it, and nothing that it said is forgotten."""

from __future__ import annotations

import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import RpcError

from raystream.actors.client import submitting
from raystream.actors.client.head_watch import RAY_WAITS, patience
from raystream.actors.cluster import head as heads
from raystream.actors.cluster.environment import Environment
from raystream.actors.cluster.head import ClusterNodes, HeadWatch
from raystream.actors.control import actor_names
from raystream.actors.control.answers import Charter
from raystream.actors.control.job_loop import JobLoop
from raystream.actors.control.nodes import Nodes
from raystream.actors.control.requests import Requests
from raystream.controller.options import Options
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages.commands import Command
from raystream.security.credentials import Credentials
from tests.controller.protocol.driven import Driven
from tests.gates import LIMIT_SECONDS, until

CHARTER = Charter("job-1", Credentials("token"), Environment({}, {}), Options())


class Head:
    """A head: `gone` while it is, and Ray waits in whatever asks it."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.there.set()
        self.nodes = ["a"]
        self.asked = 0

    def ask(self) -> ClusterNodes:
        self.asked += 1
        assert self.there.wait(LIMIT_SECONDS)
        return ClusterNodes(
            [{"NodeID": n, "Alive": True, "Resources": {}} for n in self.nodes], {"a": 7.0}
        )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "ASK_SECONDS", 0.01)
    monkeypatch.setattr(heads, "LATE_SECONDS", 0.05)


def test_a_head_that_is_gone_is_noticed_and_waited_for_by_nobody(quick: None) -> None:
    head, notes = Head(), list[str]()
    watch = HeadWatch(head.ask)
    nodes = Nodes("job-1", notes.append, watch)
    assert nodes.head_answers
    nodes.look()
    assert nodes.alive == ("a",) and notes == []
    head.there.clear()
    head.nodes = ["a", "b"]
    until(lambda: not nodes.head_answers)
    nodes.look()
    nodes.look()
    assert nodes.alive == ("a",)
    assert notes == ["the head of the cluster does not answer: nothing is started meanwhile"]
    head.there.set()
    until(lambda: nodes.head_answers)
    until(lambda: len((watch.seen() or ClusterNodes()).nodes) == 2)
    nodes.look()
    assert nodes.alive == ("a", "b")
    assert len(notes) == 2 and "answers again" in notes[1]


def test_a_head_that_refuses_is_gone_too(quick: None) -> None:
    def ask() -> ClusterNodes:
        raise RpcError("no answer")

    watch = HeadWatch(ask)
    assert watch.seen() is None
    until(lambda: not watch.answers)


def put_off(loop: JobLoop, *commands: Command) -> list[Command]:
    """What is left to do."""
    todo = deque(commands)
    loop._do(todo)
    return list(todo)


def test_what_has_to_be_started_waits_for_the_head_and_the_rest_does_not() -> None:
    done: list[Command] = []
    actors: Any = SimpleNamespace(perform=done.append, at_once=list)
    loop = JobLoop(CHARTER, Driven().plan, None, 1, actors, Requests())
    loop._nodes = SimpleNamespace(head_answers=False)  # type: ignore[assignment]
    hires = [do.Hire("1.1"), do.Hire("1.2"), do.Hire("1.3")]
    forget = do.Forget("1.0", 3)
    assert put_off(loop, hires[0], forget, *hires[1:]) == []
    assert done == [forget]
    assert put_off(loop, do.Kill("1.2", "it is not needed")) == []
    assert done == [forget], "it was never started"
    keep, later = do.Keep("keeper-1.9", "a"), do.Forget("1.0", 4)
    assert put_off(loop, keep, later) == [keep, later], "what follows may name the keeper"
    loop._nodes.head_answers = True  # type: ignore[misc]
    assert put_off(loop, keep, later) == []
    assert done == [forget, hires[0], hires[2], keep, later]


def test_an_actor_counts_as_gone_only_when_the_head_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(actor_names, "AGAIN_SECONDS", 0.0)
    answers: list[Any] = [RpcError("no answer"), RuntimeError("no head"), "the handle"]

    def find(name: str, namespace: str) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    monkeypatch.setattr(ray, "get_actor", find)
    assert actor_names.actor("job-1", "1.1") == "the handle"
    answers.append(ValueError("no such actor"))
    assert actor_names.actor("job-1", "1.1") is None
    monkeypatch.setattr(actor_names, "HEAD_SECONDS", 0.0)
    answers += [RpcError("no answer")] * 2
    assert actor_names.actor("job-1", "1.1") is None


@pytest.mark.parametrize(
    ("offers", "where"),
    [
        ({"a": {}, "b": {submitting.HEAD_NODE: 1.0}}, submitting.HEAD_NODE),
        (
            {"a": {submitting.CONTROLLER_NODE: 1.0}, "b": {submitting.HEAD_NODE: 1.0}},
            submitting.CONTROLLER_NODE,
        ),
    ],
)
def test_where_a_controller_begins(
    monkeypatch: pytest.MonkeyPatch, offers: dict[str, dict[str, float]], where: str
) -> None:
    listed = [{"NodeID": n * 56, "Alive": True, "Resources": r} for n, r in offers.items()]
    dead = {"NodeID": "0" * 56, "Alive": False, "Resources": {submitting.CONTROLLER_NODE: 1.0}}
    monkeypatch.setattr(ray, "nodes", lambda: [dead, *listed])
    assert submitting.home() == {where: submitting.A_BIT}


@pytest.mark.parametrize(
    ("ray_waits", "seconds"), [(None, 45), ("600", 585), ("20", 10), ("?", 45)]
)
def test_a_head_is_given_up_before_ray_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, ray_waits: str | None, seconds: float
) -> None:
    monkeypatch.delenv(RAY_WAITS, raising=False)
    if ray_waits is not None:
        monkeypatch.setenv(RAY_WAITS, ray_waits)
    assert patience() == seconds


def test_the_first_look_waits_for_the_first_answer() -> None:
    def ask() -> ClusterNodes:
        time.sleep(0.1)
        return ClusterNodes([{"NodeID": "a"}])

    seen = HeadWatch(ask).seen()
    assert seen is not None and len(seen.nodes) == 1
