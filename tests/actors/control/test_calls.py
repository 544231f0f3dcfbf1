"""Calls to actors: by the names of typed methods, remembered until they are answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from raystream.actors.control.calls import OpenCalls, asked
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.calls import KeeperActorCalls, ProcessCalls


def method(answer: Any) -> Any:
    return SimpleNamespace(remote=lambda *args: (answer, args))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> OpenCalls:
    """Calls to one keeper that is there; a call is its own reference."""
    keeper = SimpleNamespace(pid=method("pid"), plan=method("plan"), stop=method("stop"))
    monkeypatch.setattr(ray, "get", lambda ref: ref[0])
    monkeypatch.setattr(ray, "wait", lambda refs, **_: (refs, []))
    handles: Any = {"keeper-1": keeper, "keeper-2": None}
    return OpenCalls(handles)


def test_a_call_goes_by_the_name_of_its_method() -> None:
    handle = SimpleNamespace(forget=method("forgot"))
    assert asked(handle, ProcessCalls.forget, 7) == ("forgot", (7,))


def test_an_answer_is_an_event_or_nothing(calls: OpenCalls) -> None:
    gone = on.Gone("keeper-1", "it says so")
    calls.call("keeper-1", "answer", 9.0, lambda pid: gone, KeeperActorCalls.pid)
    calls.watch("keeper-1", lambda plan: None, KeeperActorCalls.plan)
    calls.watch("keeper-2", lambda plan: gone, KeeperActorCalls.plan)  # it is not there
    assert calls.events(0.0) == [gone]
    assert calls.events(0.0) == []


def test_who_does_not_answer_in_time_is_gone(
    calls: OpenCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "wait", lambda refs, **_: ([], refs))
    killed: list[str] = []
    calls.call("keeper-1", "answer", -1.0, lambda pid: None, KeeperActorCalls.pid)
    calls.end(
        "keeper-1", -1.0, lambda _: None, lambda: killed.append("keeper-1"), ProcessCalls.stop
    )
    assert [e.why for e in calls.events(0.0) if isinstance(e, on.Gone)] == [
        "it did not answer in time",
        "it did not end in time",
    ]
    assert killed == ["keeper-1"]


def test_who_owes_an_answer_is_not_asked_again(
    calls: OpenCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    for _ in range(2):
        calls.poll("keeper-1", 9.0, heard.append, KeeperActorCalls.pid)
    assert calls.events(0.0) == [] and heard == ["pid"]
    calls.poll("keeper-1", 9.0, heard.append, KeeperActorCalls.pid)
    assert calls.events(0.0) == [] and heard == ["pid", "pid"]
