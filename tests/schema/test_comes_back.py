"""State comes back from a checkpoint as what it was, or is refused before."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest

import raystream as rs
from raystream.errors import GraphError, StateError
from raystream.schema.values import check_of
from raystream.testing import Collect, run_local


class Tick(NamedTuple):
    time: int
    key: int


class Said(NamedTuple):
    text: str


class Whole(NamedTuple):
    value: int


class Mood(enum.IntEnum):
    CALM = 0
    LOUD = 3


class Status(str, enum.Enum):  # noqa: UP042  # one whose `str` is not its value
    OPEN = "open"


class Deposit(NamedTuple):
    cents: int


class Withdrawal(NamedTuple):
    cents: int


def ran(op: Any) -> list[Any]:
    """What an operator says to six records, restored after each."""
    flow, sink = rs.Flow("found", key_groups=4), Collect()
    ticks = rs.io.iterable([Tick(t, 0) for t in range(6)], Tick)
    flow.source(ticks, epochs=rs.by_time(seconds=1)).through(op, name="op").to(sink)
    run_local(flow, checkpoint_every=1, check=True)
    return sink.records()


class Marks(rs.State):
    marks: Annotated[list[bool], rs.Array("?", 3)] = rs.field(factory=lambda: [False] * 3)


@rs.operator(key="key")
def mark(ticks: rs.Batch[Tick], rows: rs.Rows[Marks]) -> rs.Batch[Whole]:
    marks = rows["marks"]
    marks[rows.index, ticks["time"] % 3] = True
    return rs.Batch(Whole, {"value": marks[rows.index].sum(axis=1)})


def test_arrays_of_bools_are_restored() -> None:
    assert [w.value for w in ran(mark)] == [1, 2, 3, 3, 3, 3]


@pytest.mark.parametrize("dtype", ["u1", "int8", "f2", ">i4"])
def test_arrays_are_of_numbers_that_have_a_stored_form(dtype: str) -> None:
    class Bad(rs.State):
        some: Annotated[list[int], rs.Array(dtype, 3)] = rs.zeros(3)

    @rs.operator(key="key")
    def op(tick: Tick, row: Bad) -> None: ...

    with pytest.raises(GraphError, match=f"an array of '{dtype}' has no stored form"):
        ran(op)


class Held(rs.State):
    text: str = Status.OPEN
    maybe: str | None = None
    mood: Mood = Mood.CALM
    other: Mood | None = None


@rs.operator(key="key")
def hold(tick: Tick, row: Held) -> Iterator[Said]:
    yield Said(f"{row.text == 'open'} {row.text!r} {row.maybe!r} {row.mood!r} {row.other!r}")
    row.text = row.maybe = Status.OPEN
    row.mood = row.other = 3  # type: ignore[assignment]


def test_members_of_enumerations_are_what_they_are_after_a_restore() -> None:
    first, *rest = [s.text for s in ran(hold)]
    assert first == "True 'open' None <Mood.CALM: 0> None"
    assert set(rest) == {"True 'open' 'open' <Mood.LOUD: 3> <Mood.LOUD: 3>"}


class Nested(NamedTuple):
    of: Deposit | Withdrawal | None


@pytest.mark.parametrize(
    "hint",
    [
        list[Deposit | Withdrawal],
        list[list[int] | tuple[int, int]],
        dict[str, int | Mood],
        list[list[str] | list[Mood]],
        tuple[Deposit | Withdrawal | None, ...],
        list[Nested],
    ],
)
def test_a_union_is_refused_of_which_the_stored_form_does_not_say_what_it_was(hint: Any) -> None:
    class Bad(rs.State):
        some: hint | None = None

    @rs.operator(key="key")
    def op(tick: Tick, row: Bad) -> None: ...

    with pytest.raises(GraphError, match="does not say which of them it was"):
        ran(op)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (list, [(1, 2)]),
        (list, [[Mood.LOUD]]),
        (dict, {"a": Deposit(1)}),
        (dict[str, list], {"a": [{"b": (1,)}]}),
        (tuple, ((1, 2),)),
        (list[str], [Status.OPEN]),
        (list[int], [Mood.LOUD]),
        (list[Mood], [3]),
        (list[float], [np.float64(1)]),
    ],
)
def test_what_would_come_back_as_something_else_is_found(hint: Any, value: Any) -> None:
    assert not check_of(hint)([value])


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (list, [1, "a", [None, {"b": 0.5, 1: True}]]),
        (tuple, (1, [2])),
        (dict[str, list], {"a": [[1]]}),
        (list[int | str], [1, "a"]),
        (list[float], [1, True]),
        (list[str], ["open"]),
    ],
)
def test_what_comes_back_as_it_is_may_be_held(hint: Any, value: Any) -> None:
    assert check_of(hint)([value])


class Loose(rs.State):
    some: list = rs.field(factory=list)  # type: ignore[type-arg]


@rs.operator(key="key")
def loosely(tick: Tick, row: Loose) -> Iterator[Whole]:
    yield Whole(1)
    row.some.append((tick.time, 1))


def test_a_list_of_who_knows_what_is_refused_where_it_would_change() -> None:
    with pytest.raises(StateError, match=r"Loose\.some of key 0 holds \[\(0, 1\)\]"):
        ran(loosely)


def test_a_list_that_holds_itself_is_no_state() -> None:
    value: list[Any] = []
    value.append(value)
    assert not check_of(list)([value])


class Counted(rs.State):
    some: dict[str, list[float]] = rs.field(factory=dict)
    whole: list[Deposit] = rs.field(factory=list)


@rs.operator(key="key")
def with_numpy(tick: Tick, row: Counted) -> Iterator[Said]:
    yield Said(f"{row.some!r} {row.whole!r}")
    row.some["a"] = [np.float64(1.5)]
    row.whole = [Deposit(np.int64(3))]  # type: ignore[arg-type]


def test_numbers_of_numpy_become_pythons_however_deep() -> None:
    first, *rest = [s.text for s in ran(with_numpy)]
    assert first == "{} []"
    assert set(rest) == {"{'a': [1.5]} [Deposit(cents=3)]"}


Cents = Annotated[Decimal, rs.decimal(10, 2)]
BERLIN = timezone(timedelta(hours=1))
NOON = datetime(2024, 1, 1, 13, tzinfo=BERLIN)


class Sum(NamedTuple):
    cents: Cents
    at: datetime | None = None


class Kept(rs.State):
    sums: dict[str, list[Sum]] = rs.field(factory=dict)
    pair: tuple[Cents, str] = (Decimal("0.00"), "")
    some: list[int | Cents | datetime | None] = rs.field(factory=list)
    any: list = rs.field(factory=list)  # type: ignore[type-arg]


@rs.operator(key="key")
def with_others(tick: Tick, row: Kept) -> Iterator[Said]:
    yield Said(f"{row.sums!r} {row.pair!r} {row.some!r} {row.any!r}")
    row.sums["a"] = [Sum(Decimal("1.5") * 2), Sum(Decimal(2), NOON)]
    row.pair = (Decimal("1.500"), Status.OPEN)
    row.some = [np.int64(1), Mood.LOUD, Decimal(2), NOON, None]
    row.any = [np.float64(0.5)]


def test_values_of_another_form_take_the_declared_one_however_deep() -> None:
    """As in a field by itself: it is not the next checkpoint that finds them."""
    rest = {s.text for s in ran(with_others)[1:]}
    at = "datetime.datetime(2024, 1, 1, 12, 0, tzinfo=datetime.timezone.utc)"
    sums = f"[Sum(cents=Decimal('3.00'), at=None), Sum(cents=Decimal('2.00'), at={at})]"
    some = f"[1, 3, Decimal('2.00'), {at}, None]"
    assert rest == {f"{{'a': {sums}}} (Decimal('1.50'), 'open') {some} [0.5]"}


@rs.operator(key="key")
def with_mills(tick: Tick, row: Kept) -> Iterator[Whole]:
    yield Whole(1)
    row.pair = (Decimal("1.505"), "")


def test_a_decimal_inside_that_would_be_rounded_is_refused() -> None:
    with pytest.raises(StateError, match=r"Kept\.pair of key 0 holds \(Decimal\('1.505'\)"):
        ran(with_mills)


class Tally(rs.State):
    of: dict[str, int] = rs.field(factory=dict)


@rs.operator(key="key")
def tally(tick: Tick, row: Tally) -> Iterator[Whole]:
    yield Whole(1)
    row.of = Counter(row.of)
    row.of["a"] += 1


def test_a_counter_in_the_place_of_a_dict_is_refused() -> None:
    with pytest.raises(StateError, match=r"Tally\.of of key 0 holds Counter"):
        ran(tally)
