"""Which instances leave a shared thread, and come back to it: decisions over hours of any load."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from raystream.controller.elastic.thread_sharing import (
    BUSY_SHARE,
    CALM_SECONDS,
    CALM_SECONDS_MAX,
    CALM_SHARE,
    LOOK_SECONDS,
    ROUND_SECONDS,
    ThreadPart,
    ThreadSharing,
    calm_seconds,
    is_calm,
    leaving,
    returning,
)
from raystream.controller.protocol.journal import InstanceRecord
from raystream.controller.protocol.members import BundleThread, Member
from raystream.controller.protocol.move_requests import ThreadUse
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.progress import Progress
from raystream.schema.types import KeyRange
from raystream.simulation.references import planned

HOUR = 3600.0
Load = Callable[[float], float]


class World:
    """A job of three instances on a thread. What is asked for happens at once: the moved instance
    begins again, at another place.

    Args:
        load: the share of a thread that the operator takes at a time.
        round_seconds: for how long each instance works at a time.
    """

    def __init__(self, load: Load, round_seconds: float = 0.01) -> None:
        self.round_seconds = round_seconds
        plan = planned("windows", (1,))[0]
        self.names = [v.name for v in plan.vertices]
        self.operator = next(v.id for v in plan.vertices if v.kind == "operator")
        self.sharing, self.load = ThreadSharing(plan), load
        self.places = [
            Place(v.id, v.name, KeyRange(0, plan.groups), 0, bundle=0) for v in plan.vertices
        ]
        self.began = [0.0 for _ in self.places]
        self.busy = [0.0 for _ in self.places]
        self.moves: list[tuple[float, str, ThreadUse]] = []

    def run(self, seconds: float, step: float = LOOK_SECONDS) -> World:
        for n in range(1, int(seconds / step) + 1):
            now = n * step
            for i in range(len(self.places)):
                self.busy[i] += step * (self.load(now) if i == self.operator else 0.05)
            self.look(now)
        return self

    def look(self, now: float) -> None:
        members = [self.member(i, now) for i in range(len(self.places))]
        here = [m for m in members if not m.record.place.apart]
        apart = [m for m in members if m.record.place.apart]
        for turn in self.sharing.look([BundleThread(here, apart)], now):
            i = self.names.index(turn.part.operator)
            place, leaves = self.places[i], turn.thread == "apart"
            left = place.left + leaves
            self.places[i] = Place(
                i, place.operator, place.keys, place.index + 1, bundle=0, apart=leaves, left=left
            )
            self.began[i], self.busy[i] = now, 0.0
            self.moves.append((now, turn.part.operator, turn.thread))

    def member(self, i: int, now: float) -> Member:
        place = self.places[i]
        record = InstanceRecord(place=place, process="1.1", node="a", pid=1, address="")
        said = Progress(
            vertex=place.operator,
            instance=place.index,
            position=1,
            seconds=now - self.began[i],
            busy=self.busy[i],
            rounds=round(self.busy[i] / self.round_seconds),
        )
        return Member(record, said)


def part(share: float | None, kind: str = "operator", left: int = 0) -> ThreadPart:
    return ThreadPart(f"{kind}/0", kind, kind, share, left)


def test_the_busiest_operator_leaves_a_thread_that_has_no_time_left() -> None:
    here = [part(0.4, "source"), part(0.2), part(0.05, "sink")]
    turn = leaving(here)
    assert turn is not None and turn.part == here[1] and turn.thread == "apart"
    assert turn.because == "the thread that it shares is busy for 65% of the time"
    assert leaving([part(0.3, "source"), part(0.2)]) is None
    assert leaving([part(0.9)]) is None
    assert leaving([part(0.9, "source"), part(0.1, "source")]) is None
    assert (turn := leaving([part(0.9, "source"), part(0.1, "sink")])) is not None
    assert turn.part.kind == "sink"


def test_an_instance_stays_that_works_for_less_than_sending_to_it_would_cost() -> None:
    here = [part(0.3, "source"), part(0.3), part(0.1, "sink")]
    short = [p._replace(round_seconds=ROUND_SECONDS) for p in here]
    assert leaving(short) is None
    assert (turn := leaving([*short[:2], here[2]])) is not None and turn.part.kind == "sink"
    assert (turn := leaving([short[0], here[1], short[2]])) is not None
    assert turn.part.kind == "operator"


@pytest.mark.parametrize(("seconds", "moves"), [(0.0002, 0), (0.002, 1)])
def test_what_counts_is_how_long_it_works_at_a_time(seconds: float, moves: int) -> None:
    assert len(World(lambda _: 0.7, seconds).run(HOUR).moves) == moves


def test_a_thread_has_time_only_if_all_that_would_share_it_are_known() -> None:
    assert is_calm([part(0.1, "source")], part(0.1))
    assert not is_calm([part(0.1, "source")], part(CALM_SHARE))
    assert not is_calm([part(None, "source")], part(0.1))
    assert not is_calm([part(0.1, "source")], part(None))
    assert not is_calm([], part(0.1))


def test_who_has_left_more_often_waits_longer() -> None:
    once, twice = part(0.1, left=1), part(0.1, left=2)
    assert returning([once], {once.instance: CALM_SECONDS - 1}) is None
    turn = returning([once], {once.instance: CALM_SECONDS})
    assert turn is not None and turn.thread == "together"
    assert turn.because == (
        "the thread that it has left would have been busy with it for less than 30% of the time,"
        " for 60 s"
    )
    assert returning([twice], {twice.instance: CALM_SECONDS}) is None
    assert returning([twice], {twice.instance: 2 * CALM_SECONDS}) is not None
    assert calm_seconds(100) == CALM_SECONDS_MAX


@pytest.mark.parametrize("share", [n / 20 + 0.01 for n in range(19)])
def test_a_steady_load_moves_an_instance_once_at_most(share: float) -> None:
    moved = World(lambda _: share).run(HOUR).moves
    busy = share + 0.1 > BUSY_SHARE
    assert [thread for _, _, thread in moved] == ["apart"] * busy


def test_an_instance_comes_back_when_the_load_has_fallen() -> None:
    world = World(lambda t: 0.7 if t < 300 else 0.1).run(HOUR)
    (left, _, _), (back, operator, thread) = world.moves
    assert left <= 2 * LOOK_SECONDS and thread == "together"
    assert operator == world.names[world.operator]
    assert 300 + CALM_SECONDS <= back <= 300 + CALM_SECONDS + 3 * LOOK_SECONDS


def test_a_load_between_the_thresholds_leaves_it_where_it_is() -> None:
    rng = random.Random(1)
    noise = [rng.uniform(-0.08, 0.08) for _ in range(int(HOUR) + 1)]
    world = World(lambda t: 0.7 if t < 60 else 0.3 + noise[int(t)]).run(HOUR)
    assert [thread for _, _, thread in world.moves] == ["apart"]


def most_moves(seconds: float) -> int:
    """How many moves there may be: a stay apart takes twice as long after each return."""
    left, taken = 0, 0.0
    while taken < seconds:
        left += 1
        taken += calm_seconds(left)
    return 2 * left


@pytest.mark.parametrize("period", [20.0, 130.0, 150.0, 300.0, 700.0, 1500.0])
@pytest.mark.parametrize("form", ["square", "sine"])
def test_a_load_that_rises_and_falls_does_not_make_it_flap(period: float, form: str) -> None:
    def load(t: float) -> float:
        wave = math.sin(2 * math.pi * t / period)
        return 0.45 + 0.4 * (math.copysign(1, wave) if form == "square" else wave)

    hours = 4
    moves = World(load).run(hours * HOUR).moves
    assert len(moves) <= most_moves(hours * HOUR) < 20
    later = [t for t, _, _ in moves if t > 2 * HOUR]
    assert len(later) <= 2 * (hours - 2) + 1
    backs = [t for t, _, thread in moves if thread == "together"]
    leaves = [t for t, _, thread in moves if thread == "apart"]
    stays = [back - left for left, back in zip(leaves, backs, strict=False)]
    assert all(stay >= calm_seconds(n) for n, stay in enumerate(stays, 1))


def test_nothing_is_known_of_an_instance_that_has_just_begun() -> None:
    """It has a backlog, which is not its load, or was not asked for anything yet."""
    world = World(lambda _: 0.1)
    world.places[world.operator] = Place(
        world.operator,
        world.names[world.operator],
        KeyRange(0, 16),
        1,
        bundle=0,
        apart=True,
        left=1,
    )
    calm: list[bool] = []
    for n in range(4):
        world.began[world.operator] = 5.0 * n  # it is replaced again and again
        world.busy[world.operator] = 0.1
        world.look(5.0 * (n + 1))
        calm.append(bool(world.sharing._calm))
    assert calm == [False] * 4
