"""State that could not be restored is refused wherever a job runs; the error says whose it is."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import InputError, OperatorError, StateError
from raystream.testing import Collect, run_local


class Mood(enum.IntEnum):
    CALM = 0
    LOUD = 3


class Tick(NamedTuple):
    time: int
    key: str


class Felt(NamedTuple):
    time: int
    mood: Mood
    maybe: Mood | None = None


class Kept(rs.State):
    n: int = 0
    mood: Mood = Mood.CALM
    due: rs.Timer = rs.NEVER


TICKS = [Tick(t, "ab"[t % 2]) for t in range(20)]


def run(change: Callable[[Kept], object], **options: Any) -> None:
    @rs.operator(key="key")
    class Keep:
        def process(self, tick: Tick, kept: Kept) -> None:
            if tick.time == 11:
                change(kept)

        def timer(self, key: str, time: int, kept: Kept) -> Iterator[Tick]:
            yield Tick(time, key)

    flow = rs.Flow("kept")
    ticks = flow.source(rs.io.iterable(TICKS, Tick), epochs=rs.by_time(seconds=1))
    ticks.through(Keep()).to(Collect())
    run_local(flow, **options)


@pytest.mark.parametrize("options", [{}, {"cut_every": 3}, {"check": True}, {"seed": 1}])
@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("n", 1.5, r"Kept\.n of key 'b' holds 1\.5, which does not fit n: int64"),
        ("mood", 7, r"Kept\.mood of key 'b' holds 7, which does not fit mood"),
    ],
)
def test_a_local_run_refuses_what_a_cluster_would(
    field: str, value: Any, says: str, options: dict[str, Any]
) -> None:
    with pytest.raises(StateError, match=rf"Keep keeps .* at the end of epoch \d+: {says}") as told:
        run(lambda kept: setattr(kept, field, value), **options)
    where = told.value.where
    assert where is not None
    assert where.file == __file__


@pytest.mark.parametrize("due", [None, "x", 3.7])
def test_a_timer_is_set_to_a_time(due: Any) -> None:
    with pytest.raises(StateError, match=r"Keep set the timer Kept\.due of key 'b' to .* epoch 12"):
        run(lambda kept: setattr(kept, "due", due))


def test_members_are_checked_where_they_are_emitted() -> None:
    @rs.operator()
    def feel(tick: Tick) -> Iterator[Felt]:
        yield Felt(tick.time, 7 if tick.time == 11 else 3)  # type: ignore[arg-type]

    flow = rs.Flow("felt")
    ticks = flow.source(rs.io.iterable(TICKS, Tick), epochs=rs.by_time(seconds=1))
    ticks.through(feel).to(Collect())
    with pytest.raises(OperatorError, match=r"feel emitted .* Felt\.mood: 7 is no Mood") as told:
        run_local(flow)
    assert "Mood has CALM=0, LOUD=3." in told.value.hint


@pytest.mark.parametrize("wrong", [Felt(1, 7), Felt(1, Mood.LOUD, 7)])  # type: ignore[arg-type]
def test_members_are_checked_where_they_are_read(wrong: Felt) -> None:
    flow = rs.Flow("felt")
    records = [Felt(0, Mood.CALM), wrong]
    flow.source(rs.io.iterable(records, Felt), epochs=rs.by_time(seconds=1)).to(Collect())
    with pytest.raises(InputError, match=r"record 1 of an iterable: Felt\.\w+: 7 is no Mood"):
        run_local(flow)
