"""State that could not be restored is refused wherever a job runs; the error says whose it is."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import InputError, OperatorError, StateError
from raystream.testing import Collect, OperatorHarness, check_operator, run_local


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


@pytest.mark.parametrize("options", [{}, {"checkpoint_every": 3}, {"check": True}, {"seed": 1}])
@pytest.mark.parametrize(
    ("field", "value", "says"),
    [("n", 1.5, r"Kept\.n of key 'b' holds 1\.5, which does not fit n: int64")],
)
def test_a_local_run_refuses_what_a_cluster_would(
    field: str, value: Any, says: str, options: dict[str, Any]
) -> None:
    with pytest.raises(StateError, match=rf"Keep keeps .* at the end of epoch \d+: {says}") as told:
        run(lambda kept: setattr(kept, field, value), **options)
    where = told.value.where
    assert where is not None
    assert where.file == __file__


@pytest.mark.parametrize("options", [{}, {"checkpoint_every": 3}, {"check": True}, {"seed": 1}])
def test_a_member_that_an_enum_does_not_have_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(OperatorError, match=r"Keep raised StateError: Kept\.mood: 7 is no") as told:
        run(lambda kept: setattr(kept, "mood", 7), **options)
    assert told.value.where is not None and told.value.where.file == __file__


class Shares(rs.State):
    whole: float = 0
    short: rs.Float32 | None = None
    parts: Annotated[list[float], rs.Array("f8", 2)] = rs.zeros(2)
    n: int = False
    narrow: rs.Int8 | None = None
    marks: Annotated[list[int], rs.Array("i1", 2)] = rs.zeros(2)
    due: rs.Timer = rs.NEVER


class Text(NamedTuple):
    text: str


def told_of(shares: Shares) -> Text:
    return Text(f"{shares.whole} {shares.short} {shares.parts} {told_ints(shares)}")


def told_ints(shares: Shares) -> str:
    return f"{shares.n!r} {shares.narrow!r} {shares.marks}"


@rs.operator(key="key")
class Share:
    def process(self, tick: Tick, shares: Shares) -> Iterator[Text]:
        yield told_of(shares)
        shares.whole = 2**53 + tick.time
        shares.parts[1] = tick.time
        shares.due = tick.time + 1

    def timer(self, key: str, time: int, shares: Shares) -> Iterator[Text]:
        yield told_of(shares)
        shares.short = time
        shares.n, shares.narrow, shares.marks[1] = time > 0, Mood.LOUD, time > 0


class Sums(rs.State):
    whole: float = 0
    parts: Annotated[list[float], rs.Array("f8", 2)] = rs.zeros(2)


@rs.operator(key="key", window=rs.tumbling(seconds=4))
class Tumble:
    def process(self, tick: Tick, sums: Sums) -> None:
        sums.whole = round(sums.whole) + 2**53 + tick.time
        sums.parts[0] += 1

    def close(self, key: str, window: rs.Window, sums: Sums) -> Iterator[Text]:
        yield Text(f"{sums.whole} {sums.parts}")


@rs.operator(key="key", window=rs.sliding(seconds=4, every=2))
class Slide(Tumble):
    pass


@rs.operator(key="key", window=rs.session(gap=3))
class Together(Tumble):
    def merge(self, into: Sums, other: Sums) -> None:
        into.whole += other.whole


@pytest.mark.parametrize("op", [Share(), Tumble(), Slide(), Together()])
def test_numbers_are_of_their_type_before_a_restore_too(op: Any) -> None:
    check_operator(op, TICKS)


def test_a_number_in_the_place_of_another_becomes_one_of_its_type() -> None:
    harness, nothing = OperatorHarness(Share()), "0 None [0, 0]"
    assert harness.send(Tick(0, "a")) == [Text(f"0.0 None [0.0, 0.0] {nothing}")]
    assert harness.advance_watermark(1) == [Text(f"9007199254740992.0 None [0.0, 0.0] {nothing}")]
    assert harness.send(Tick(1, "a")) == [Text("9007199254740992.0 1.0 [0.0, 0.0] 1 3 [0, 1]")]


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
