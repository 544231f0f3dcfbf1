"""Windows that close more than once, or by a count, against brute force, for all epochs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.api.declarations import spec_of
from raystream.dataflow.logic.select import window_logic
from raystream.errors import GraphError
from raystream.schema.blocks import Input
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.testing import Collect
from raystream.testing.check import check_operator
from tests.examples import examples

ALL = KeyRange(0, 1)
KEYS = 3


class Event(NamedTuple):
    time: int
    key: int
    id: int


class Result(NamedTuple):
    key: int
    start: int
    end: int
    ids: list[int]
    kind: str


class Seen(rs.State):
    ids: list[int] = rs.field(factory=list)


class Base:
    def process(self, event: Event, seen: Seen) -> None:
        seen.ids.append(event.id)


@rs.operator(key="key", window=rs.tumbling(seconds=12, every=5))
class Early(Base):
    def close(self, key: int, window: rs.Window, seen: Seen, early: bool) -> Iterator[Result]:
        yield Result(key, *window, [*seen.ids], "early" if early else "final")


@rs.operator(key="key", window=rs.global_window(every=7))
class GlobalEarly(Early):
    pass


@rs.operator(key="key", window=rs.tumbling(seconds=10, lateness=15))
class Corrected(Base):
    def close(self, key: int, window: rs.Window, seen: Seen, correction: bool) -> Iterator[Result]:
        yield Result(key, *window, [*seen.ids], "correction" if correction else "final")


@rs.operator(key="key", window=rs.sliding(seconds=10, every=4, lateness=15))
class CorrectedHops(Corrected):
    pass


@rs.operator(key="key", window=rs.tumbling(seconds=12, every=5, lateness=9))
class Both(Base):
    def close(
        self, key: int, window: rs.Window, seen: Seen, correction: bool, early: bool
    ) -> Iterator[Result]:
        kind = "early" if early else "correction" if correction else "final"
        yield Result(key, *window, [*seen.ids], kind)


@rs.operator(key="key", window=rs.tumbling(count=3))
class Threes(Base):
    def close(self, key: int, window: rs.Window, seen: Seen) -> Iterator[Result]:
        yield Result(key, *window, [*seen.ids], "final")


@rs.operator(key="key", window=rs.global_window(count=3))
class GlobalThrees(Early):
    pass


@rs.operator(key="key", window=rs.global_window(every=7))
class Fresh(Base):
    """Begins again after each result."""

    def close(self, key: int, window: rs.Window, seen: Seen, early: bool) -> Iterator[Result]:
        yield Result(key, *window, [*seen.ids], "early" if early else "final")
        seen.ids = []


@pytest.fixture(autouse=True, scope="module")
def _small_batches() -> Iterator[None]:
    """In this process an epoch by arrival is a batch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("raystream.io.memory.BATCH_ROWS", 3)
        yield


events = st.lists(st.tuples(st.integers(0, 60), st.integers(0, KEYS - 1)), max_size=25)


def numbered(drawn: list[tuple[int, int]]) -> list[Event]:
    return [Event(time, key, n) for n, (time, key) in enumerate(drawn)]


def in_flow(op: Any, given: list[Event], epochs: Any, batch: int = 1) -> list[list[Result]]:
    """By key what an operator emits."""
    sink, flow = Collect(), rs.Flow("triggered")
    stream = flow.source(rs.io.iterable(given, Event), epochs=epochs)
    stream.through(op).to(sink)
    flow.run(on_note=lambda note: None)
    results = [record for _, record in sink.by_epoch()]
    return [[r for r in results if r.key == key] for key in range(KEYS)]


EPOCHS = [rs.by_time(seconds=s) for s in (1, 2, 5, 7, 12, 100)] + [rs.by_arrival()]


def early_of(given: list[Event], size: int, step: int) -> list[list[Result]]:
    """Results by key: at each step of a window that has new records, and at its end."""
    found: list[list[Result]] = []
    for key in range(KEYS):
        mine = [e for e in given if e.key == key]
        told: list[tuple[int, int, Result]] = []
        for start in sorted({e.time // size * size for e in mine}):
            held = [e for e in mine if start <= e.time < start + size]
            for at in range(start + step, start + size, step):
                if any(at - step <= e.time < at for e in held):
                    ids = [e.id for e in held if e.time < at]
                    told.append((at, 0, Result(key, start, start + size, ids, "early")))
            ids = [e.id for e in held]
            told.append((start + size, 1, Result(key, start, start + size, ids, "final")))
        found.append([result for *_, result in sorted(told)])
    return found


@pytest.mark.parametrize("epochs", EPOCHS, ids=str)
@examples(15)
@given(drawn=events)
def test_early_results_do_not_depend_on_epochs(epochs: Any, drawn: list[tuple[int, int]]) -> None:
    given = numbered(sorted(drawn))
    found = in_flow(Early(), given, epochs)
    assert found == early_of(given, 12, 5)


@pytest.mark.parametrize("epochs", EPOCHS, ids=str)
@examples(10)
@given(drawn=events)
def test_results_of_a_global_window_do_not_depend_on_epochs(
    epochs: Any, drawn: list[tuple[int, int]]
) -> None:
    given = numbered(sorted(drawn))
    expected = [
        [r._replace(start=BEFORE_ALL, end=NEVER) for r in results]
        for results in early_of(given, 700, 7)
    ]
    assert in_flow(GlobalEarly(), given, epochs) == expected
    parts = [[r.ids for r in results] for results in in_flow(Fresh(), given, epochs)]
    for key, ids in enumerate(parts):
        assert [n for part in ids for n in part] == [e.id for e in given if e.key == key]
        assert not ids or ids[-1] == []


@pytest.mark.parametrize("epochs", EPOCHS, ids=str)
@examples(10)
@given(drawn=events)
def test_windows_of_three_records(epochs: Any, drawn: list[tuple[int, int]]) -> None:
    given = numbered(sorted(drawn))
    for key, (found, running) in enumerate(
        zip(in_flow(Threes(), given, epochs), in_flow(GlobalThrees(), given, epochs), strict=True)
    ):
        mine = [e for e in given if e.key == key]
        parts = [mine[i : i + 3] for i in range(0, len(mine), 3)]
        assert found == [
            Result(key, p[0].time, p[2].time if len(p) == 3 else NEVER, [e.id for e in p], "final")
            for p in parts
        ]
        ids = [e.id for e in mine]
        expected = [(ids[: i + 3], "early") for i in range(0, len(ids) - 2, 3)]
        assert [(r.ids, r.kind) for r in running] == expected + [(ids, "final")] * bool(ids)


# ---------------------------------------------------------------- corrections


class Run(NamedTuple):
    results: list[list[Result]]
    """By epoch."""
    late: list[int]
    rows_left: int


def run(op: Any, epochs: list[list[Event]], watermarks: list[int]) -> Run:
    """All events in one key group; after the last watermark the input ends."""
    logic = window_logic(spec_of(op), 1, 1)
    results, late, before = [], [], BEFORE_ALL
    for e, (some, after) in enumerate(zip([*epochs, []], [*watermarks, NEVER], strict=True)):
        rows = from_records(record_schema(Event), some)
        given_input = Input((rows,), None, None, np.array([0, len(some)]), 0)
        out = logic.process(given_input, e + 1, before, after)
        assert out.late is not None
        late += [some[i].id for i in out.late]
        found = list(out.emitted[0].rows.records())
        fired = logic.fire(ALL, e + 1, after, last=after == NEVER)
        found += [] if fired is None else fired.emitted[0].rows.records()
        assert logic.next_due() > after or after == NEVER
        results.append(found)
        before = after
    return Run(results, late, len(logic.table))


@pytest.mark.parametrize(("op", "every"), [(Corrected(), 10), (CorrectedHops(), 4)])
@examples(100)
@given(stream=st.lists(events, max_size=5), data=st.data())
def test_corrections(op: Any, every: int, stream: Any, data: st.DataObject) -> None:
    ids = iter(range(1000))
    epochs = [[Event(t, k, next(ids)) for t, k in some] for some in stream]
    marks = st.lists(st.integers(-5, 90), min_size=len(epochs), max_size=len(epochs))
    watermarks = sorted(data.draw(marks))
    found = run(op, epochs, watermarks)

    held: dict[tuple[int, int], list[int]] = {}
    told: set[tuple[int, int]] = set()
    late = []
    for results, some, before, after in zip(
        found.results, [*epochs, []], [BEFORE_ALL, *watermarks], [*watermarks, NEVER], strict=True
    ):
        touched = set()
        for event in some:
            starts = [s for s in range(-40, 100, every) if s <= event.time < s + 10]
            taken = [(event.key, s) for s in starts if s + 10 + 15 > before]
            late += [] if taken else [event.id]
            for window in taken:
                held.setdefault(window, []).append(event.id)
                touched.add(window)
        expected = []
        for key, start in sorted(held):
            end, closed = start + 10, (key, start) in told
            if end <= after and (not closed or (key, start) in touched):
                kind = "correction" if closed else "final"
                expected.append(Result(key, start, end, held[key, start], kind))
                told.add((key, start))
        assert sorted(results) == sorted(expected)
        for window in [w for w in held if w[1] + 25 <= after]:
            del held[window]
            told.discard(window)
    assert found.late == late
    assert found.rows_left == 0


@pytest.mark.parametrize(
    "epochs", [*(rs.by_time(seconds=s) for s in (1, 3, 20, 100)), rs.by_arrival()], ids=str
)
@examples(20)
@given(drawn=events, data=st.data())
def test_the_last_result_is_right(
    epochs: Any, drawn: list[tuple[int, int]], data: st.DataObject
) -> None:
    """If no record is later than `lateness`, whatever the epochs are."""
    behind = data.draw(st.lists(st.integers(0, 9), min_size=len(drawn), max_size=len(drawn)))
    order = sorted(zip(drawn, behind, strict=True), key=lambda each: each[0][0] + each[1])
    given = numbered([event for event, _ in order])
    for op in (Corrected(), Both()):
        size = 10 if isinstance(op, Corrected) else 12
        for key, results in enumerate(in_flow(op, given, epochs)):
            last = {r.start: sorted(r.ids) for r in results}
            mine = [e for e in given if e.key == key]
            starts = {e.time // size * size for e in mine}
            assert last == {
                s: sorted(e.id for e in mine if e.time // size * size == s) for s in starts
            }
            for one, two in pairwise(results):
                assert two.kind != "correction" or one.start != two.start or one.kind != "early"
            said = [(r.start, r.kind) for r in results if r.kind != "early"]
            finals = [start for start, kind in said if kind == "final"]
            assert len(finals) == len(set(finals)) and set(finals) == starts


# ---------------------------------------------------------------- moves, refusals


OPERATORS = [
    Early(), GlobalEarly(), Corrected(), CorrectedHops(), Both(), Threes(), GlobalThrees(), Fresh()
]  # fmt: skip


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: type(op).__name__)
@examples(8)
@given(drawn=events, seed=st.integers(0, 1000))
def test_moves_and_restores_change_nothing(
    op: Any, drawn: list[tuple[int, int]], seed: int
) -> None:
    check_operator(op, numbered(drawn), examples=1, seed=seed)


@dataclass(frozen=True)
class Plain(Base):
    def close(self, key: int, window: rs.Window, seen: Seen) -> Iterator[Result]:
        yield Result(key, *window, [*seen.ids], "final")


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (rs.tumbling(seconds=5, lateness=5), "close` has to say(.|\n)*correction: bool"),
        (rs.tumbling(seconds=5, every=1), "close` has to say(.|\n)*early: bool"),
        (rs.global_window(count=1), "close` has to say(.|\n)*early: bool"),
    ],
)
def test_results_that_are_not_the_only_one_say_so(window: Any, message: str) -> None:
    op = rs.operator(key="key", window=window)(type("Windowed", (Plain,), {}))
    with pytest.raises(GraphError, match=message):
        spec_of(op())


def test_what_is_never_told_is_not_asked_for() -> None:
    op = rs.operator(key="key", window=rs.tumbling(seconds=5))(type("Windowed", (Early,), {}))
    with pytest.raises(GraphError, match="takes 'early', but no result"):
        spec_of(op())


def test_windows_by_count_have_no_zone() -> None:
    with pytest.raises(GraphError, match="has no offset, zone, lateness or every"):
        rs.tumbling(count=5, zone="Europe/Berlin")
    with pytest.raises(GraphError, match="every= or count=, not both"):
        rs.global_window(count=5, every=5)
