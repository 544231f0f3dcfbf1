"""How a controller begins: from the journal, or with the news that it cannot; never for nobody."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import GetTimeoutError, RpcError

from raystream.actors import controller
from raystream.actors.controller import Charter, Controller, claim
from raystream.actors.staff import Environment
from raystream.controller import commands as do
from raystream.controller.journal import Entry, Shelf
from raystream.controller.members import Options
from raystream.controller.pool import PoolOptions
from raystream.errors import LostError
from tests.controller.driven import Driven

CHARTER = Charter("job-1", "token", Environment({}, {}), Options())
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
    begun: list[tuple[str, Entry]] = field(default_factory=list)

    def live(self, plan: str, entry: Entry) -> None:
        self.begun.append((plan, entry))
        time.sleep(0.5)

    def kill(self, who: str) -> None:
        if who == self.me:
            self.ended.append(who)

    def get(self, call: tuple[str, Callable[[], Any]], timeout: float) -> Any:
        if call[0] in self.silent:
            raise GetTimeoutError("too late")
        return call[1]()


def keeper(entry: Entry | None) -> Any:
    shelf = Shelf[Entry]()
    if entry is not None:
        shelf.write(entry.order, entry)
    return SimpleNamespace(
        claim_journal=SimpleNamespace(remote=lambda i: ("claim", lambda: shelf.claim(i))),
        plan=SimpleNamespace(remote=lambda: ("plan", lambda: "the plan")),
    )


def instance(*, begun: bool) -> Any:
    return SimpleNamespace(begun=SimpleNamespace(remote=lambda: ("begun", lambda: begun)))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
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
    return made


def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise TimeoutError


def test_it_goes_on_from_the_newest_entry(cluster: Cluster) -> None:
    entries = Entry(1, 7), Entry(1, 9), Entry(1, 8)
    cluster.there = {f"keeper-1.{i}": keeper(e) for i, e in enumerate(entries)}
    made = Controller(CHARTER)
    time.sleep(0.1)  # longer than one waits that nobody asks to run
    assert cluster.begun == [("the plan", Entry(1, 9))]
    assert not cluster.ended and not made.standing().ended


def test_one_that_is_told_late_goes_on_all_the_same(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper that does not answer takes longer than one waits that nobody asks to run."""

    def wait(calls: list[Any], **_: Any) -> Any:
        time.sleep(3 * controller.ORPHAN_SECONDS)
        return calls, []

    monkeypatch.setattr(ray, "wait", wait)
    cluster.there = {"keeper-1.1": keeper(Entry(1, 7))}
    Controller(CHARTER)
    time.sleep(0.1)
    assert cluster.begun == [("the plan", Entry(1, 7))]
    assert not cluster.ended


def test_who_waits_for_the_result_gets_it_though_ray_does_not_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dismiss(_: Any) -> None:
        raise RpcError("no answer")

    def drive(self: Any, plan: Any, entry: Any) -> str:
        self._machine = SimpleNamespace(members=[], journal=Entry(), unsaved="")
        self._staff = SimpleNamespace(dismiss=dismiss)
        return "the report"

    monkeypatch.setattr(Controller, "_live", LIVE)
    monkeypatch.setattr(Controller, "_drive", drive)
    cluster.again = False
    made = Controller(CHARTER)
    results: list[Any] = []
    asking = threading.Thread(target=lambda: results.append(made.run(None)), daemon=True)  # type: ignore[arg-type]
    asking.start()
    asking.join(10)
    assert results == ["the report"]
    until(lambda: cluster.me in cluster.ended)


def test_while_ray_does_not_answer_the_nodes_are_those_that_were(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nodes() -> Any:
        raise RpcError("no answer")

    made = Controller(CHARTER)
    made._nodes, made._for_operators = ("a", "b"), frozenset("b")
    monkeypatch.setattr(ray, "nodes", nodes)
    made._look_at_nodes()
    assert made._nodes == ("a", "b") and made._for_operators == {"b"}
    until(lambda: cluster.ended == [cluster.me])


def test_a_job_that_has_not_begun_has_no_floor(cluster: Cluster) -> None:
    cluster.again = False
    made = Controller(CHARTER)
    made._machine = SimpleNamespace(options=Options(), journal=Entry())  # type: ignore[assignment]
    assert made._floor() is None
    until(lambda: cluster.ended == [cluster.me])


def test_a_job_that_has_not_begun_leaves_no_nodes_and_its_story_begins_with_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be refused, and told of once more than fifty years after the beginning."""
    monkeypatch.setattr(controller, "ending", lambda: {"b": 1e10})
    cluster.again = False
    made = Controller(CHARTER)
    made._machine, made._nodes = Driven().machine, ("a", "b")
    made._do(deque(made._leave_nodes()))
    assert made._notes.said == ()
    made._note("no node has come")
    assert made._notes.said == ((0.0, "no node has come"),)
    until(lambda: cluster.ended == [cluster.me])


@pytest.mark.parametrize("silent", ["claim", "plan"])
def test_one_that_cannot_go_on_says_so_and_ends_all(cluster: Cluster, silent: str) -> None:
    """Ray begins no actor again that raises at its beginning, and its submitter would wait."""
    cluster.there = {"keeper-1.1": keeper(Entry(1, 7)), "1.2": instance(begun=True)}
    cluster.silent = {silent}
    made = Controller(CHARTER)
    assert isinstance(made.run(None), LostError)  # type: ignore[arg-type]
    assert "cannot go on from its journal" in made.standing().ended
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
    entry = Entry(3, 4)
    assert claim([keeper(None), keeper(entry)], 9) == (9, [((0, 0), None), (entry.order, entry)])
    cluster.silent = {"claim"}
    assert claim([keeper(entry)], 9) == (9, [])


def test_a_keeper_that_cannot_begin_is_gone_and_no_error_of_the_job() -> None:
    from raystream.actors.staff import Call, Staff

    staff: Any = SimpleNamespace(_asked=set())
    error = ray.exceptions.RayTaskError("pid", "no module", RuntimeError("cannot be imported"))
    call = Call("keeper-1.1", "start", 0.0, lambda value: None)
    assert isinstance(Staff._failed(staff, call, error), do.Gone)
    call = Call("1.1", "start", 0.0, lambda value: None)
    assert isinstance(Staff._failed(staff, call, error), do.Failed)
