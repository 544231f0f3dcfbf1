"""Simulated jobs under faults: the same bits; and the checkers notice when the engine is broken."""

from __future__ import annotations

import random
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from raystream.controller import decide as deciding
from raystream.controller import machine, moving, taking
from raystream.controller.journal import Shelf
from raystream.controller.moving import Moving
from raystream.controller.recovery import Place, successors
from raystream.dataflow import snapshot
from raystream.dataflow.inlet import Inlet
from raystream.dataflow.instance import Outlets
from raystream.dataflow.pieces import Piece
from raystream.dataflow.routing import Served
from raystream.errors import ConfigError
from raystream.schema.types import KeyRange
from raystream.state import checkpoint
from raystream.state.assignment import Assignment
from raystream.state.chain import Chain, Size
from raystream.state.images import Arrivals, ImageStore
from raystream.state.log import EpochLog
from raystream.state.objects import ObjectTable
from raystream.testing import simcontrol, simsinks, simulator
from raystream.testing.simflows import FLOWS
from raystream.testing.simjob import Job
from raystream.testing.simulator import (
    Outcome,
    Scenario,
    command,
    main,
    run_many,
    scenarios_of,
    simulate,
)
from raystream.testing.simworld import Box, World, Wrong
from tests.examples import FACTOR

OUTLIVED = Scenario(
    "words", instances=(1, 2, 1, 1), recovery="state", into=1, faults=12, loss=0, slow=0,
    fragile=0, kinds=("controller pause", "controller", "kill"),
)  # fmt: skip
"""Controllers that wake when there is another one."""
UNHEARD = Scenario("words", recovery="state", faults=3, loss=0.3)
"""Much of what is said is lost."""
MOVED = Scenario("words", recovery="state", moves=8, faults=2, loss=0)
"""Ranges move all the time."""
HANDED_OVER = Scenario("join", recovery="state", moves=8, faults=0, loss=0, slow=0, cut_every=2)
UNKNOWN = Scenario("words", recovery="state", kinds=("keeper", "controller pause"), faults=12)
"""Controllers wake when no keeper is left that knew them."""
IN_PARTS = Scenario("batches", cut_every=1, recovery="state", durable=False, part_bytes=60)
"""Checkpoints are shipped in parts, all the time."""
FRESH = 800
"""Schedules with seeds that nobody tried before, over all flows in turn: some 80 seconds of CPU."""
SCHEDULES, FIRST = 12, 7
"""The seed is one from which every kind of fault comes in each flow."""
TRIES = 80
"""Schedules in which a broken engine has to be caught."""
AT_THE_END = Scenario(
    "windows", instances=(3, 1, 3), cut_every=5, copies=2, faults=8, loss=0, slow=0, fragile=0
)
"""Few decisions, so that faults are left for the last ones."""


@pytest.mark.parametrize("flow", FLOWS)
def test_faults_change_no_bit(flow: str) -> None:
    scenario = Scenario(flow)
    kinds, faults, wrong = run_many([scenario], SCHEDULES, FIRST)
    assert not wrong, "\n".join(f"{o.why}\n{command(s, o.seed)}" for s, o in wrong)
    assert kinds["right"] > SCHEDULES * 0.6
    assert {"operator", "source", "sink", "keeper", "node", "pause", "connection"} <= {*faults}


def test_faults_change_no_bit_by_fresh_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    count, seed = round(FRESH * FACTOR), random.SystemRandom().randrange(1 << 32)
    kinds, faults, wrong = run_many([Scenario(name) for name in FLOWS], count, seed)
    with capsys.disabled():
        print(f"\n{count} schedules from seed {seed}: {dict(kinds)}, {faults.total()} faults")
    assert not wrong, "\n".join(f"{o.why}\n{command(s, o.seed)}" for s, o in wrong)


def test_without_faults_nothing_is_recovered() -> None:
    outcome = simulate(Scenario(faults=0, loss=0, doubling=0, slow=0, moves=0), 1, story=True)
    assert outcome.kind == "right"
    assert not [line for line in outcome.story if "Kill" in line]
    assert [line for line in outcome.story if "commits" in line]


@pytest.mark.parametrize("flow", FLOWS)
def test_without_faults_all_that_is_asked_for_in_time_moves(flow: str) -> None:
    scenario = Scenario(flow, faults=0, loss=0, doubling=0, slow=0, fragile=0, moves=3, copies=1)
    outcomes = [simulate(replace(scenario, recovery="state"), seed) for seed in range(12)]
    assert not [o.why for o in outcomes if o.kind != "right"]
    assert sum(o.faults["move"] for o in outcomes) > 10


def test_a_node_is_left_although_moves_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first death ends a move, and another one begins soon."""
    monkeypatch.setattr(moving, "TRIES_MAX", 1)
    monkeypatch.setattr(moving, "LEAVE_AGAIN_SECONDS", 0.3)
    left: Counter[bool] = Counter()

    def moves(job: Job) -> Counter[str]:
        ended = [m for m in job.entry.moved if "node" in m.because]
        given_up = {m.operator for m in ended if m.failed}
        left.update(m.operator in given_up for m in ended if not m.failed)
        return Counter()

    monkeypatch.setattr(simulator, "_moves", moves)
    scenario = Scenario("join", recovery="state", moves=20, faults=8, fragile=0.5, kinds=("kill",))
    for first in range(1, 201, 20):  # it comes about in one schedule of ten
        _, _, wrong = run_many([scenario], 20, first)
        assert not wrong, "\n".join(f"{o.why}\n{command(s, o.seed)}" for s, o in wrong)
        if left[True]:
            return
    raise AssertionError(left)


def test_a_seed_tells_the_same_story() -> None:
    one, two = (simulate(Scenario("join"), 7, story=True) for _ in range(2))
    assert one == two
    assert one.story != simulate(Scenario("join"), 8, story=True).story


def test_faults_do_not_drive_a_job_to_give_up() -> None:
    """It gives up a place that five processes died for, and faults alone would kill so many."""
    hunted = Scenario("words", instances=(1, 2), copies=2, faults=30, kinds=("kill two", "node"),
                      moves=0)  # fmt: skip
    kinds, faults, wrong = run_many([hunted], 8, 109)
    assert not wrong, "\n".join(f"{o.why}\n{command(s, o.seed)}" for s, o in wrong)
    assert kinds["right"] and faults["operator"] > 30


def test_lost_checkpoints_stop_the_job_and_are_named() -> None:
    """Keepers and instances die all the time, and there is one copy of everything."""
    stopped = [o for o in _outcomes(Scenario(copies=1, faults=10)) if o.kind == "lost"]
    assert stopped
    named = [o for o in stopped if "the checkpoint of" in o.why and "[" in o.why]
    assert named
    assert all(o in named or o.why == "the journal is lost" for o in stopped)


def _outcomes(scenario: Scenario) -> Iterator[Outcome]:
    for seed in range(30):
        outcome = simulate(scenario, seed)
        assert outcome.kind != "wrong", f"{outcome.why}\n{command(scenario, seed)}"
        yield outcome


# ---------------------------------------------------------------- checkers


def _trims_too_far(patch: pytest.MonkeyPatch) -> None:
    trim = EpochLog.trim
    patch.setattr(EpochLog, "trim", lambda self, floor, most: trim(self, floor + 1, most))


def _takes_any_pieces(patch: pytest.MonkeyPatch) -> None:
    def ready(self: Inlet, epoch: int) -> bool:
        have: list[Piece] = self.pieces.get(epoch, [])
        ended = [p for p in self.ended if p.header.epoch < epoch]
        if not have and not ended:
            return False
        self.tiled.setdefault(epoch, [*have, *ended])
        return True

    patch.setattr(Inlet, "ready", ready)


def _forgets_dirty_rows(patch: pytest.MonkeyPatch) -> None:
    take = checkpoint.take_objects

    def some(table: ObjectTable, shape: Any, groups: int, since: int) -> Any:
        return take(table, shape, groups, since + 1 if since else 0)

    patch.setattr(snapshot, "take_objects", some)


def _forgets_removed_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ObjectTable, "gone", lambda self, since: [])


def _commits_what_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    def floor_of(view: deciding.View) -> int:
        least = min(p.position for p in view.progress)
        return max(view.committed, least // view.cut_every * view.cut_every)

    patch.setattr(deciding, "floor_of", floor_of)


def _fills_gaps(patch: pytest.MonkeyPatch) -> None:
    answered = Chain.answered

    def all_stored(self: Chain, cut: int, size: Size, *, held: bool) -> None:
        answered(self, cut, size, held=held)
        self._stored = self._stored._replace(since=0)

    patch.setattr(Chain, "answered", all_stored)


def _drops_images_too_early(patch: pytest.MonkeyPatch) -> None:
    trim = ImageStore.trim
    patch.setattr(ImageStore, "trim", lambda self, floor, at: _emptied(self, floor, at, trim))


def _emptied(store: ImageStore[Any], floor: int, at: Any, trim: Callable[..., None]) -> None:
    trim(store, floor, at)
    for place, chain in store.chains.items():
        store.chains[place] = [s for s in chain if s.cut > floor]


def _gives_up_a_range(patch: pytest.MonkeyPatch) -> None:
    replaced = Assignment.replaced
    patch.setattr(
        Assignment,
        "replaced",
        lambda self, gone, new: self.without(gone) if gone else replaced(self, gone, new),
    )


def _never_tells_again(patch: pytest.MonkeyPatch) -> None:
    nothing = deciding.Untold(False, False, False)
    patch.setattr(machine, "behind", lambda *told: nothing)


def _takes_what_an_old_controller_writes(patch: pytest.MonkeyPatch) -> None:
    def write(self: Shelf[Any], order: tuple[int, int], entry: Any) -> bool:
        self.order, self.entry = max((self.order, self.entry), (order, entry), key=lambda e: e[0])
        return True

    patch.setattr(Shelf, "write", write)


def _gives_a_name_twice(patch: pytest.MonkeyPatch) -> None:
    same = lambda place, into, free: successors(place, into, place.index + 1)  # noqa: E731
    patch.setattr(taking, "successors", same)


def _leaves_sinks_open(patch: pytest.MonkeyPatch) -> None:
    recoveries = deciding.recoveries

    def careless(view: deciding.View) -> list[deciding.Recover]:
        over = {p.name for p in view.progress if p.ended and p.position <= view.committed}
        return [r for r in recoveries(view) if not over & set(r.instances)]

    patch.setattr(deciding, "recoveries", careless)


def _waits_for_candidates(patch: pytest.MonkeyPatch) -> None:
    expect = Served.expect
    patch.setattr(Served, "expect", lambda self, subscribers, _: expect(self, subscribers))


def _lets_the_floor_move(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Moving, "_pinned", False)


def _commits_without_candidates(patch: pytest.MonkeyPatch) -> None:
    view = machine.Machine.view

    def owners(self: machine.Machine) -> deciding.View:
        return replace(view(self), progress=tuple(self.progress()))

    patch.setattr(machine.Machine, "view", owners)


def _does_not_say_again_that_it_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outlets, "silent", lambda self, edge, epoch: None)


def _gives_an_index_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Moving, "_free", lambda self, vertex: 1)


def _lets_candidates_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Assignment, "with_candidates", lambda self, new: self.replaced([], new))


def _retires_before_the_floor(patch: pytest.MonkeyPatch) -> None:
    catch_up = Moving._catch_up

    def careless(self: Moving, e: Any) -> None:
        catch_up(self, e)
        self.journal = replace(
            self.journal, moves=tuple(replace(m, base=0) for m in self.journal.moves)
        )

    patch.setattr(Moving, "_catch_up", careless)


def _delivers_no_rows(patch: pytest.MonkeyPatch) -> None:
    put = snapshot._put
    patch.setattr(
        snapshot, "_put", lambda machine, chains, onto=False: onto or put(machine, chains)
    )


def _gives_places_to_anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(taking.Taking, "_suits", lambda self, node, operator: True)


def _starts_processes_anywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(taking.Taking, "_anywhere", lambda self, operator: "")


def _asks_nobody_who_decides(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(simcontrol.Controller, "newest", True)


def _holds_what_has_parts_missing(patch: pytest.MonkeyPatch) -> None:
    take = Arrivals.take

    def hasty(self: Arrivals[Any], sender: str, keys: Any, part: Any, image: Any) -> Any:
        whole = take(self, sender, keys, part, image)
        if whole is not None or part.hi < keys.hi:
            return whole
        there = self.coming.pop(sender)
        return image._replace(data=tuple(there[k].data for k in sorted(there)))

    patch.setattr(Arrivals, "take", hasty)


BROKEN: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    _trims_too_far: "needs",
    _takes_any_pieces: "wrote",
    _forgets_dirty_rows: "wrote",
    _forgets_removed_rows: "wrote",
    _commits_what_is_not_stored: "was committed",
    _fills_gaps: "was committed",
    _drops_images_too_early: "is not lost",
    _gives_up_a_range: "nobody owns",
    _never_tells_again: "does not come to its end",
    _leaves_sinks_open: "never closed",
    _takes_what_an_old_controller_writes: "",
    _gives_a_name_twice: "does not come to its end",
    _waits_for_candidates: "which catch up",
    _lets_the_floor_move: "",
    _commits_without_candidates: "was committed",
    _does_not_say_again_that_it_ended: "does not come to its end",
    _gives_an_index_twice: "",
    _lets_candidates_own: "two owners",
    _retires_before_the_floor: "",
    _gives_places_to_anybody: "is to be on",
    _asks_nobody_who_decides: "",
    _holds_what_has_parts_missing: "without a part of it",
    _starts_processes_anywhere: "where no operator is meant to be",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda f: f.__name__[1:])
def test_a_broken_engine_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulator, "EVENTS_MAX", 200)
    scenarios = (Scenario("words"), AT_THE_END, OUTLIVED, UNHEARD, MOVED, IN_PARTS, UNKNOWN)
    for s, seed in product(scenarios, range(TRIES)):
        simulator.planned(s.flow, s.instances or _instances(seed))  # before it breaks
    broken(monkeypatch)
    tried = (simulate(s, seed) for seed, s in product(range(TRIES), scenarios))
    assert any(o.kind == "wrong" and BROKEN[broken] in o.why for o in tried)


def test_deliveries_without_rows_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most moves bring what changed between two cuts, seldom something else than the log does."""
    _delivers_no_rows(monkeypatch)
    assert any("wrote" in simulate(HANDED_OVER, seed).why for seed in range(TRIES))


def _instances(seed: int) -> tuple[int, ...]:
    drawn = simulator._drawn(Scenario(), World(seed).rng).instances
    assert drawn is not None
    return drawn


def test_a_part_is_compared_with_what_it_has_to_be() -> None:
    keys = KeyRange(0, 4)
    written = simsinks.Written()
    sink = simsinks.Checked(Place(1, "out", keys, 0), {(1, keys, "Nth"): [("a", 1)]}, written)
    with pytest.raises(Wrong, match="was told to commit 1 before"):
        sink.commit(1)
    sink.commit(0)


# ---------------------------------------------------------------- the world and the command


def test_what_is_sent_to_a_sleeper_is_done_in_order_when_it_wakes() -> None:
    world, box, got = World(1), Box("box"), list[int]()
    box.asleep = True
    for i in range(5):
        world.at(1.0, box, got.append, i)
    while world.step():
        pass
    assert got == []
    world.wake(box)
    while world.step():
        pass
    assert got == [0, 1, 2, 3, 4]


def test_messages_are_lost_and_doubled_as_often_as_said() -> None:
    world, box, got = World(3), Box("box"), list[int]()
    world.loss, world.doubling = 0.25, 0.5
    for i in range(400):
        world.send(0.1, box, got.append, i)
    while world.step():
        pass
    times = [got.count(i) for i in range(400)]
    assert {0, 1, 2} == set(times)
    assert 60 < times.count(0) < 140 < times.count(2) < 260


def test_the_command_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--schedules", "3", "--seed", "5", "--flow", "timers"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "schedules 3: timers"
    assert out[2] == "wrong     0"


def test_the_command_tells_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    again = command(Scenario("words", copies=2), 1).split()
    assert main(again[again.index("--seed") :]) == 0
    assert " commits " in capsys.readouterr().out


def test_a_command_runs_the_same_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = Scenario("join", copies=2, recovery="source", kinds=("kill", "cut"), loss=0.5)
    again = shlex.split(command(scenario, 7))
    assert main(again[again.index("--seed") :]) == 0
    assert capsys.readouterr().out.splitlines() == simulate(scenario, 7, story=True).story


def test_scenarios_are_data(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).with_name("scenarios.toml")
    assert all(s.faults for s in scenarios_of(path.read_text()))
    assert main(["--schedules", "20", "--seed", "3", "--scenarios", str(path)]) == 0
    assert "wrong     0" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["[[scenario]]\nflaw = 1", '[[scenario]]\nkinds = ["flood"]', "no", "scenario = 1"]
)
def test_what_no_scenario_has_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        scenarios_of(text)


def test_an_unknown_flow(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--flow", "no"]) == 2
    assert "there is no flow 'no'" in capsys.readouterr().err
    assert main(["--flow", "nowhere:f"]) == 2
