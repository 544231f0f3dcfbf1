"""How a controller begins: from the journal, or with the news that it cannot; never for nobody."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import GetTimeoutError, RpcError

from raystream.actors.cluster.environment import Environment
from raystream.actors.control import controller
from raystream.actors.control.answers import Charter
from raystream.actors.control.calls import Call, failure
from raystream.actors.control.controller import Controller
from raystream.actors.control.job_loop import JobLoop
from raystream.actors.control.nodes import Nodes
from raystream.actors.control.reporter import Reporter
from raystream.actors.control.requests import Requests
from raystream.actors.control.succession import claim
from raystream.controller.elastic.pool import PoolOptions
from raystream.controller.options import Options
from raystream.controller.protocol.journal import JournalEntry, Shelf
from raystream.controller.protocol.messages import events as on
from raystream.errors import LostError, notes
from raystream.security.credentials import Credentials
from tests.controller.protocol.driven import Driven
from tests.gates import LIMIT_SECONDS, until

CHARTER = Charter("job-1", Credentials("token"), Environment({}, {}), Options())
LIVE = Controller._live


@dataclass
class Cluster:
    """Who is there, who was ended, and what is not answered.

    me: a controller here. One of an earlier test may end itself late, and is not of this cluster.
    """

    me: str = field(default_factory=map("controller {}".format, count(1)).__next__)
    again: bool = True
    there: dict[str, Any] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    begun: list[tuple[str, JournalEntry]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def live(self, plan: str, entry: JournalEntry) -> None:
        self.begun.append((plan, entry))
        self.over.wait(LIMIT_SECONDS)

    def kill(self, who: str) -> None:
        if who == self.me:
            self.ended.append(who)

    def get(self, call: tuple[str, Callable[[], Any]], timeout: float) -> Any:
        if call[0] in self.silent:
            raise GetTimeoutError("too late")
        return call[1]()


def keeper(entry: JournalEntry | None) -> Any:
    shelf = Shelf[JournalEntry]()
    if entry is not None:
        shelf.write(entry.order, entry)
    return SimpleNamespace(
        claim_journal=SimpleNamespace(remote=lambda i: ("claim", lambda: shelf.claim(i))),
        plan=SimpleNamespace(remote=lambda: ("plan", lambda: "the plan")),
    )


def instance(*, begun: bool) -> Any:
    return SimpleNamespace(begun=SimpleNamespace(remote=lambda: ("begun", lambda: begun)))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()
    context = SimpleNamespace(current_actor=made.me)
    monkeypatch.setattr(
        ray,
        "get_runtime_context",
        lambda: SimpleNamespace(**vars(context), was_current_actor_reconstructed=made.again),
    )
    monkeypatch.setattr(ray, "get", made.get)
    monkeypatch.setattr(ray, "wait", lambda calls, **_: (calls, []))
    monkeypatch.setattr(ray, "kill", made.kill)
    monkeypatch.setattr(controller, "restarts", lambda: 1)
    monkeypatch.setattr(controller, "processes_of", lambda run: list(made.there))
    monkeypatch.setattr(controller, "actor", lambda run, process: made.there.get(process))
    monkeypatch.setattr(controller, "kill", lambda run, process: made.ended.append(process))
    monkeypatch.setattr(controller, "ORPHAN_SECONDS", 0.05)
    monkeypatch.setattr(Controller, "_live", lambda self, plan, entry: made.live(plan, entry))
    yield made
    made.over.set()


def test_it_goes_on_from_the_newest_entry(cluster: Cluster) -> None:
    entries = (
        JournalEntry(incarnation=1, number=7),
        JournalEntry(incarnation=1, number=9),
        JournalEntry(incarnation=1, number=8),
    )
    cluster.there = {f"keeper-1.{i}": keeper(e) for i, e in enumerate(entries)}
    made = Controller(CHARTER)
    until(lambda: cluster.begun)
    time.sleep(0.1)  # longer than one waits that nobody asks to run
    assert cluster.begun == [("the plan", JournalEntry(incarnation=1, number=9))]
    assert not cluster.ended and not made.outcome().ended


def test_one_that_is_told_late_goes_on_all_the_same(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper that does not answer takes longer than one waits that nobody asks to run."""

    def wait(calls: list[Any], **_: Any) -> Any:
        time.sleep(3 * controller.ORPHAN_SECONDS)
        return calls, []

    monkeypatch.setattr(ray, "wait", wait)
    cluster.there = {"keeper-1.1": keeper(JournalEntry(incarnation=1, number=7))}
    Controller(CHARTER)
    until(lambda: cluster.begun)
    time.sleep(0.1)
    assert cluster.begun == [("the plan", JournalEntry(incarnation=1, number=7))]
    assert not cluster.ended


def test_who_waits_for_the_result_gets_it_though_ray_does_not_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dismiss(_: Any) -> None:
        raise RpcError("no answer")

    machine = SimpleNamespace(members=[], journal=JournalEntry(), unsaved="")
    loop = SimpleNamespace(machine=machine, ready=True, run=lambda: "the report")
    monkeypatch.setattr(Controller, "_live", LIVE)
    monkeypatch.setattr(Controller, "_processes", lambda *_: SimpleNamespace(dismiss=dismiss))
    monkeypatch.setattr(controller, "JobLoop", lambda *_: loop)
    cluster.again = False
    made = Controller(CHARTER)
    results: list[Any] = []
    asking = threading.Thread(target=lambda: results.append(made.run(None)), daemon=True)  # type: ignore[arg-type]
    asking.start()
    asking.join(LIMIT_SECONDS)
    assert results == ["the report"]
    until(lambda: cluster.me in cluster.ended)


def test_while_ray_does_not_answer_the_nodes_are_those_that_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def listed() -> Any:
        raise RpcError("no answer")

    nodes = Nodes("job-1", print)
    nodes.alive, nodes.for_operators = ("a", "b"), frozenset("b")
    monkeypatch.setattr(ray, "nodes", listed)
    nodes.look()
    assert nodes.alive == ("a", "b") and nodes.for_operators == {"b"}


def test_a_job_that_has_not_begun_has_no_committed_checkpoint() -> None:
    machine: Any = SimpleNamespace(options=Options(), journal=JournalEntry())
    plan: Any = SimpleNamespace(durable=None)
    assert Reporter(plan, machine, SimpleNamespace()).committed() is None  # type: ignore[arg-type]


def test_a_job_that_has_not_begun_leaves_no_nodes_and_its_story_begins_with_it() -> None:
    """Else it would be refused, and told of once more than fifty years after the beginning."""
    driven, nobody = Driven(), SimpleNamespace()
    loop = JobLoop(CHARTER, driven.plan, None, 1, nobody, Requests())  # type: ignore[arg-type]
    loop.machine, loop._nodes.alive = driven.machine, ("a", "b")
    loop._nodes._ending = {"b": 1e10}
    loop._do(deque(loop._leave_nodes()))
    assert loop.notes.said == ()
    loop.note("no node has come")
    assert loop.notes.said == ((0.0, "no node has come"),)


@pytest.mark.parametrize("silent", ["claim", "plan"])
def test_one_that_cannot_go_on_says_so_and_ends_all(cluster: Cluster, silent: str) -> None:
    """Ray begins no actor again that raises at its beginning, and its submitter would wait."""
    cluster.there = {
        "keeper-1.1": keeper(JournalEntry(incarnation=1, number=7)),
        "1.2": instance(begun=True),
    }
    cluster.silent = {silent}
    made = Controller(CHARTER)
    assert isinstance(made.run(None), LostError)  # type: ignore[arg-type]
    assert "cannot go on from its journal" in made.outcome().ended
    until(lambda: cluster.me in cluster.ended)
    assert {*cluster.ended} == {"keeper-1.1", "1.2", cluster.me}


@pytest.mark.parametrize("pool", [None, PoolOptions(2)])
def test_one_that_cannot_go_on_asks_for_no_nodes_any_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, pool: PoolOptions | None
) -> None:
    """Ray remembers what was asked for before, and there may be no submitter to take it back."""
    released: list[str] = []
    monkeypatch.setattr(controller, "release", released.append)
    cluster.there = {"1.2": instance(begun=True)}
    Controller(CHARTER._replace(options=Options(pool=pool)))
    until(lambda: cluster.me in cluster.ended)
    assert released == ([] if pool is None else [CHARTER.run])


def test_one_that_nobody_asks_to_run_ends_itself(cluster: Cluster) -> None:
    """Its submitter died before it could."""
    cluster.again = False
    Controller(CHARTER)
    until(lambda: cluster.ended == [cluster.me])


def test_who_does_not_show_its_journal_is_left_out(cluster: Cluster) -> None:
    entry = JournalEntry(incarnation=3, number=4)
    assert claim([keeper(None), keeper(entry)], 9) == (9, [((0, 0), None), (entry.order, entry)])
    cluster.silent = {"claim"}
    assert claim([keeper(entry)], 9) == (9, [])


def test_a_keeper_that_cannot_begin_is_gone_and_no_error_of_the_job() -> None:
    error = ray.exceptions.RayTaskError("pid", "no module", RuntimeError("cannot be imported"))
    call = Call("keeper-1.1", "start", 0.0, lambda value: None)
    assert isinstance(failure(call, error), on.Gone)
    call = Call("1.1", "start", 0.0, lambda value: None)
    failed = failure(call, error)
    assert isinstance(failed, on.Failed)
    assert notes(failed.error) == ["no module"]  # where it was raised
