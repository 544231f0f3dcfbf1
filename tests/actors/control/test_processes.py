"""Who writes the journal to new keepers: only the newest controller."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError, GetTimeoutError

from raystream.actors.cluster.environment import Environment
from raystream.actors.control import actor_names as naming
from raystream.actors.control import calls, journal_writer, processes
from raystream.actors.control.handles import ActorHandles
from raystream.actors.control.journal_writer import Fenced
from raystream.actors.control.processes import ActorPool
from raystream.controller.options import Options
from raystream.controller.protocol.journal import JournalEntry
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.security.credentials import Credentials
from tests.gates import LIMIT_SECONDS


class Shelf:
    """A keeper that takes every entry."""

    def __init__(self) -> None:
        self.written = 0
        self.write = SimpleNamespace(remote=self._write)

    def _write(self, entry: JournalEntry) -> str:
        self.written += 1
        return f"written {self.written}"


@pytest.fixture
def shelves(monkeypatch: pytest.MonkeyPatch) -> dict[str, Shelf]:
    """Keepers; no Ray."""
    made = {"old": Shelf(), "new": Shelf()}
    monkeypatch.setattr(ray, "put", lambda value: value)
    monkeypatch.setattr(ray, "wait", lambda calls, **_: (calls, []))
    monkeypatch.setattr(ray, "get", lambda call, **_: True)
    monkeypatch.setattr(ActorHandles, "__getitem__", lambda self, process: made.get(process))
    return made


def told(monkeypatch: pytest.MonkeyPatch, *answers: int | None) -> ActorPool:
    """The processes of a controller that began with the first of these answers of the cluster."""
    monkeypatch.setattr(journal_writer, "restarts", iter(answers[1:]).__next__)
    plan: Any = SimpleNamespace(clock=None)
    return ActorPool(plan, "run", Credentials("token"), Environment({}, {}), Options(), answers[0])


def test_only_when_places_change_is_asked_who_decides(
    monkeypatch: pytest.MonkeyPatch, shelves: dict[str, Shelf]
) -> None:
    mine = told(monkeypatch, 0, 0, 0)
    assert mine.write(do.Write(JournalEntry(), ("old",)))
    assert mine.write(do.Write(JournalEntry(), ("old",)))
    assert mine.write(do.Write(JournalEntry(), ("new",)))
    assert (shelves["old"].written, shelves["new"].written) == (2, 1)


@pytest.mark.parametrize("now", [1, -1])
def test_a_controller_that_was_replaced_writes_nothing_to_a_new_keeper(
    monkeypatch: pytest.MonkeyPatch, shelves: dict[str, Shelf], now: int
) -> None:
    """No keeper that knew of the newer one may be left."""
    mine = told(monkeypatch, 0, 0, now)
    assert mine.write(do.Write(JournalEntry(), ("old",)))
    with pytest.raises(Fenced):
        mine.write(do.Write(JournalEntry(), ("new",)))
    assert shelves["new"].written == 0


def test_while_the_cluster_does_not_answer_nothing_is_decided(
    monkeypatch: pytest.MonkeyPatch, shelves: dict[str, Shelf]
) -> None:
    mine = told(monkeypatch, 0, None, 0)
    assert not mine.write(do.Write(JournalEntry(), ("new",)))
    assert shelves["new"].written == 0
    assert mine.write(do.Write(JournalEntry(), ("new",)))


def test_why_an_actor_died_is_told() -> None:
    """Ray says it last, behind a list of what the actor was."""
    died = ActorDiedErrorContext(
        class_name="InstanceActor", actor_id=b"1" * 16, pid=7, name="words-1:1.2",
        error_message="The node ran low on memory. Some common root causes include: (1) ...",
    )  # fmt: skip
    assert calls.first_line(ActorDiedError(died)) == "The node ran low on memory."
    assert calls.first_line(ActorDiedError()).startswith("The actor died")
    assert calls.first_line(ValueError("one\ntwo")) == "one"


def test_a_keeper_that_hangs_is_missed(
    monkeypatch: pytest.MonkeyPatch, shelves: dict[str, Shelf]
) -> None:
    mine = told(monkeypatch, 0)
    hangs: Any = SimpleNamespace(use=SimpleNamespace(remote=lambda: "never"))
    monkeypatch.setattr(ActorHandles, "__getitem__", lambda self, process: hangs)
    monkeypatch.setattr(processes, "WRITE_SECONDS", 0.0)
    monkeypatch.setattr(ray, "wait", lambda calls, **_: ([], calls))
    mine.look_after(["keeper-1.1"])
    assert mine.events(0.0) == []  # it may still be starting
    mine._pids["keeper-1.1"] = 7
    mine.look_after(["keeper-1.1"])
    mine.look_after(["keeper-1.1"])
    (gone,) = mine.events(0.0)
    assert isinstance(gone, on.Gone) and "did not answer in time" in gone.why


def test_an_instance_that_hangs_is_missed(
    monkeypatch: pytest.MonkeyPatch, shelves: dict[str, Shelf]
) -> None:
    mine = told(monkeypatch, 0)
    hangs: Any = SimpleNamespace(progress=SimpleNamespace(remote=lambda: "never"))
    monkeypatch.setattr(ActorHandles, "__getitem__", lambda self, process: hangs)
    monkeypatch.setattr(ray, "wait", lambda calls, **_: ([], calls))
    now = SimpleNamespace(monotonic=lambda: seconds)
    monkeypatch.setattr(calls, "time", now)
    seconds = 100.0
    mine.ask("count-1.1")
    seconds += processes.PROGRESS_SECONDS - 0.1
    assert mine.events(0.0) == []
    mine.ask("count-1.1")  # it owes an answer: it is not asked again, and has no more time
    seconds += 0.2
    (gone,) = mine.events(0.0)
    assert isinstance(gone, on.Gone) and gone.process == "count-1.1"
    assert "did not answer in time" in gone.why


def test_a_keeper_that_answers_when_it_was_killed_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, shelves: dict[str, Shelf]
) -> None:
    """It was too slow to write the journal, and its answer came in just before it was ended."""
    mine = told(monkeypatch, 0)
    late: Any = SimpleNamespace(
        watch=SimpleNamespace(remote=lambda: "watching"), pid=SimpleNamespace(remote=lambda: "pid")
    )
    monkeypatch.setattr(ActorHandles, "__getitem__", lambda self, process: late)
    monkeypatch.setattr(ActorHandles, "kill", lambda self, process: None)
    monkeypatch.setattr(ray, "wait", lambda calls, **_: ([c for c in calls if c == "pid"], []))
    monkeypatch.setattr(ray, "get", lambda call, **_: 7)
    mine.watch_keepers({"keeper-1.1": "a"})
    mine.kill(["keeper-1.1"])
    assert mine.events(0.0) == [] and mine.pids() == {}
    mine.watch_keepers({"keeper-1.2": "b"})
    assert mine.events(0.0) == [] and mine.pids() == {"keeper-1.2": 7}


def test_keepers_that_leave_the_journal_are_waited_for_together(
    monkeypatch: pytest.MonkeyPatch, shelves: dict[str, Shelf]
) -> None:
    """Nothing is decided meanwhile."""
    mine, waited = told(monkeypatch, 0, 0), [0.0]
    hangs = SimpleNamespace(leave_journal=SimpleNamespace(remote=lambda _: object()))
    monkeypatch.setattr(
        ActorHandles, "__getitem__", lambda self, p: shelves["new"] if p == "new" else hangs
    )

    def wait(calls: list[Any], timeout: float, **_: Any) -> Any:
        waited[0] += timeout * any(not isinstance(c, str) for c in calls)
        return [], calls

    def get(call: Any, timeout: float) -> bool:
        waited[0] += timeout
        if isinstance(call, str):
            return True
        raise GetTimeoutError("no answer")

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "get", get)
    assert mine.write(do.Write(JournalEntry(), ("new",), ("a", "b", "c")))
    assert waited[0] == journal_writer.WRITE_SECONDS
    assert sorted(e.process for e in mine.at_once() if isinstance(e, on.Gone)) == ["a", "b", "c"]


@pytest.mark.ray
@pytest.mark.usefixtures("on_ray")
def test_an_actor_knows_how_often_it_was_started_again() -> None:
    @ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
    class Mortal:
        def __init__(self) -> None:
            self.first = naming.restarts()

        def restarts(self) -> tuple[int | None, int | None]:
            return self.first, naming.restarts()

        def die(self) -> None:
            if naming.restarts() == 0:
                os._exit(1)

    actor: Any = Mortal.remote()
    assert ray.get(actor.restarts.remote(), timeout=LIMIT_SECONDS) == (0, 0)
    ray.get(actor.die.remote(), timeout=LIMIT_SECONDS)
    assert ray.get(actor.restarts.remote(), timeout=LIMIT_SECONDS) == (1, 1)
    ray.kill(actor)
