"""Sources: recorded data is cut by event time, everything else where the register says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning import make_plan
from raystream.dataflow.instance import SourceInstance
from raystream.dataflow.plan import Plan
from raystream.dataflow.register import Boundary
from raystream.dataflow.source import (
    Arrival,
    Cutting,
    Recorded,
    SplitReader,
    Taken,
    my_splits,
    split_group,
)
from raystream.errors import ConfigError, InputError, OperatorError
from raystream.schema.types import NEVER, KeyRange
from raystream.state.keys import even_ranges
from raystream.testing import Collect, run_local
from raystream.testing.local import Ends, LocalJob
from tests.examples import examples
from tests.flows import Line, Rows, running, split


class Tick(NamedTuple):
    time: int
    id: int


@rs.operator(key="id")
def echo(tick: Tick) -> Iterator[Tick]:
    yield tick


def plan_of(parts: tuple[tuple[Any, ...], ...], epochs: Any, *, batch: int = 3) -> Plan:
    flow = rs.Flow("ticks", key_groups=8)
    flow.source(Rows(Tick, parts, batch), epochs=epochs, name="ticks").through(echo).to(Collect())
    return make_plan(flow)


times = st.lists(st.integers(-30, 30), min_size=1, max_size=12)
splits = st.lists(times, min_size=1, max_size=5)


def numbered(parts: list[list[int]]) -> tuple[tuple[Tick, ...], ...]:
    ids = iter(range(1000))
    return tuple(tuple(Tick(t, next(ids)) for t in part) for part in parts)


def naive(parts: tuple[tuple[Tick, ...], ...], origin: int, length: int) -> dict[int, list[Tick]]:
    """Per epoch the rows of all splits, split by split."""
    out: dict[int, list[Tick]] = {}
    for part in parts:
        epoch = 1
        for tick in part:
            epoch = max(epoch, (tick.time - origin) // length + 1)
            out.setdefault(epoch, []).append(tick)
    return out


@examples(60)
@given(splits, st.integers(1, 20), st.integers(1, 8), st.integers(1, 4))
def test_recorded_epochs(parts: list[list[int]], length: int, instances: int, batch: int) -> None:
    rows = numbered(parts)
    plan = plan_of(rows, rs.by_time(seconds=length, disorder=2), batch=batch)
    assert plan.clock is not None
    origin = int(plan.clock.origin)
    # The origin is on the grid, at or before the first row of every split, whatever its batches.
    assert origin % length == 0
    assert origin == min(part[0] for part in parts) // length * length
    machines = [Recorded(plan, plan.vertex("ticks"), k) for k in even_ranges(8, instances)]
    expected = naive(rows, origin, length)
    ended = [False] * instances
    for epoch in range(1, max(expected) + 2):
        taken = [m.take(epoch) for m in machines]
        assert [r for t in taken for r in t.rows.records()] == expected.get(epoch, [])
        for i, t in enumerate(taken):
            assert t.ended >= ended[i]
            assert t.watermark == (NEVER if t.ended else origin + epoch * length - 2)
            assert t.offsets[-1] == len(t.rows)
            ended[i] = t.ended
        last = epoch >= max(expected)
        assert all(ended) == last


wild = st.one_of(st.integers(-50, 50), st.integers(-(2**63), 2**63 - 1))
lengths = st.one_of(st.integers(1, 9), st.integers(1, 2**63 - 1))


@examples(200)
@given(st.lists(wild), wild, lengths, st.one_of(st.integers(0, 9), st.integers(0, 2**62)))
def test_runs_are_the_running_maximum(
    times: list[int], origin: int, length: int, last: int
) -> None:
    """Also where a time is more than 63 bits from the origin; the last epoch has the rest."""
    values = np.array(times, np.int64)
    raw = [min((time - origin) // length + 1, NEVER) for time in times]
    expected = np.array([max(raw[: i + 1] + [last]) for i in range(len(raw))], np.int64)
    runs = Cutting("time", origin, length, 1, 0).runs(values, last)
    assert runs.epochs.tolist() == sorted(set(expected.tolist()))
    starts = [0, *runs.ends.tolist()]
    assert np.repeat(runs.epochs, np.diff(starts)).tolist() == expected.tolist()
    assert [runs.epoch_at(i) for i in range(len(times))] == expected.tolist()
    for epoch in {0, last, *expected.tolist()}:
        assert runs.end_of(epoch) == np.searchsorted(expected, epoch, side="right")


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8"])
def test_any_integer_column_is_cut(kind: str) -> None:
    values = np.array([-3, 5, 4, 12, 12, 30], kind)
    runs = Cutting("time", -5, 10, 1, 0).runs(values, 1)
    assert runs.ends.tolist() == [1, 5, 6] and runs.epochs.tolist() == [1, 2, 4]


@pytest.mark.parametrize("times", [[0, 5, 10**10, 3], [2**40, 0, 2**40], [-(2**61), 7]])
def test_a_row_that_no_job_would_come_to_is_refused(times: list[int]) -> None:
    flow = rs.Flow("leap")
    lines = [Line(time, "") for time in times]
    late = [Line(time, "") for time in sorted(times)[:1]]
    for i, part in enumerate((lines, late)):
        source = rs.io.iterable(part, Line)
        flow.source(source, epochs=rs.by_time(seconds=1), name=f"lines-{i}").to(Collect())
    with pytest.raises(InputError, match=r"lines-0: .* time=\d+, \d+ epochs after those") as told:
        run_local(flow)
    assert "rs.by_time(ticks=...)" in told.value.hint


def test_the_greatest_time_is_one() -> None:
    flow, sink = rs.Flow("last"), Collect()
    lines = [Line(2**63 - 1, "end")]
    flow.source(rs.io.iterable(lines, Line), epochs=rs.by_time(seconds=1)).to(sink)
    run_local(flow)
    assert sink.records() == lines


def test_splits_are_spread_over_the_key_groups() -> None:
    assert [split_group(i, 3, 8) for i in range(3)] == [0, 2, 5]
    assert [split_group(i, 20, 4) for i in range(20)] == sorted([0, 1, 2, 3] * 5)
    plan = plan_of(numbered([[1]] * 5), rs.by_time(seconds=1))
    vertex = plan.vertex("ticks")
    found = [s for k in even_ranges(8, 3) for s in my_splits(plan, vertex, k)]
    assert found == my_splits(plan, vertex, KeyRange(0, 8))
    assert [name for _, name in found] == [f"split-{i}" for i in range(5)]


def test_an_epoch_is_a_whole_number_of_ticks() -> None:
    with pytest.raises(ConfigError, match=r"an epoch of 0\.5 s is not a whole number of ticks"):
        plan_of(numbered([[1]]), rs.by_time(seconds=0.5))
    plan_of(numbered([[1]]), rs.by_time(seconds=0.5, ticks=4))


# ---------------------------------------------------------------- cut by arrival


@dataclass
class Recorder:
    """Notes what every source instance of a job publishes."""

    job: LocalJob
    published: dict[KeyRange, list[Taken]]

    @classmethod
    def of(cls, job: LocalJob) -> Recorder:
        recorder = cls(job, {})
        for source in job.sources:
            recorder._wrap(source.machine)
        return recorder

    def _wrap(self, machine: SourceInstance) -> None:
        notes = self.published.setdefault(machine.keys, [])
        publish = machine.publish

        def noting(taken: Taken) -> Any:
            notes.append(taken)
            return publish(taken)

        machine.publish = noting  # type: ignore[method-assign]


def again(plan: Plan, keys: KeyRange, ends: Ends, rng: random.Random) -> list[Taken]:
    """What a successor publishes that reads from the beginning and cuts where others did."""
    vertex = plan.vertex("ticks")
    arrival = Arrival(plan, vertex, keys)
    readers = [
        SplitReader(name, vertex.name, arrival.schema, vertex.source.read)
        for _, name in my_splits(plan, vertex, keys)
    ]
    out: list[Taken] = []
    while not out or not out[-1].ended:
        boundaries = []
        for each, reader in zip(arrival.splits, readers, strict=True):
            held = ends.get((each.registered, len(out) + 1), Boundary(each.position, NEVER, True))
            while reader.position < held.position or rng.random() < 0.3:
                rows = reader.next()
                if rows is None:
                    each.done = True
                    break
                each.add(reader.position, rows)
            boundaries.append(ends.setdefault((each.registered, len(out) + 1), each.wanted()))
        out.append(arrival.take(boundaries))
    return out


def shown(taken: list[Taken]) -> list[Any]:
    return [(list(t.rows.records()), t.offsets.tolist(), t.watermark, t.ended) for t in taken]


@examples(30)
@given(splits, st.integers(0, 2**16), st.integers(1, 8))
def test_a_successor_cuts_where_others_did(
    parts: list[list[int]], seed: int, instances: int
) -> None:
    rng = random.Random(seed)
    rows = numbered(parts)
    plan = plan_of(rows, rs.by_arrival(disorder=1))
    plan.ranges[plan.vertex("ticks").id] = even_ranges(8, instances)
    job = LocalJob(plan, rng=rng, boundaries={})
    recorder = Recorder.of(job)
    job.run()
    for keys, taken in recorder.published.items():
        if my_splits(plan, plan.vertex("ticks"), keys):
            assert shown(again(plan, keys, job.boundaries, rng)) == shown(taken)
    by_split = {name: i for i, name in enumerate(plan.splits[0])}
    for name, at in by_split.items():
        ends = [b for (s, _), b in sorted(job.boundaries.items()) if s == f"0:{name}"]
        assert [b.watermark for b in ends] == sorted(b.watermark for b in ends)
        assert ends[-1] == Boundary(len(parts[at]), NEVER, True)


class Stamped(NamedTuple):
    ts: int
    id: int


def test_by_arrival_the_watermark_follows_the_field_that_was_named() -> None:
    """It has to: windows over a source that never ends would never close."""
    flow = rs.Flow("stamped", key_groups=8)
    rows = Rows(Stamped, (tuple(Stamped(t, t) for t in (10, 30, 20, 40)),), 1)
    flow.source(rows, epochs=rs.by_arrival("ts", disorder=5)).to(Collect())
    job = LocalJob(make_plan(flow), boundaries={})
    job.run()
    seen = [b.watermark for _, b in sorted(job.boundaries.items(), key=lambda item: item[0][1])]
    assert list(dict.fromkeys(seen)) == [5, 25, 35, NEVER]


@examples(20)
@given(splits, st.integers(0, 2**16))
def test_a_job_is_run_again_over_its_boundaries(parts: list[list[int]], seed: int) -> None:
    plan = plan_of(numbered(parts), rs.by_arrival(disorder=1))
    one = LocalJob(plan, rng=random.Random(seed), boundaries={})
    first = Recorder.of(one)
    one.run()
    two = LocalJob(plan, boundaries=dict(one.boundaries))
    second = Recorder.of(two)
    two.run()
    assert two.boundaries == one.boundaries
    assert {k: shown(t) for k, t in second.published.items()} == {
        k: shown(t) for k, t in first.published.items()
    }


def test_a_source_that_reads_otherwise_is_refused() -> None:
    plan = plan_of(numbered([[1, 2, 3, 4, 5, 6, 7]]), rs.by_arrival(), batch=3)
    arrival = Arrival(plan, plan.vertex("ticks"), KeyRange(0, 8))
    source = replace(plan.vertex("ticks").source, batch=2)
    reader = SplitReader("split-0", "ticks", arrival.schema, source.read)
    for _ in range(3):
        rows = reader.next()
        assert rows is not None
        arrival.splits[0].add(reader.position, rows)
    with pytest.raises(
        InputError, match="cut at position 3 before, which reading it again does no"
    ):
        arrival.take([Boundary(3, 0, False)])


def test_by_arrival_gives_the_same_words_whatever_the_boundaries() -> None:
    from tests.flows import Line, lines

    found = []
    for seed in (None, 1, 2, 3):
        sink = Collect()
        flow = rs.Flow("arriving")
        source = Rows(Line, lines(3), batch=4)
        flow.source(source, epochs=rs.by_arrival()).through(split).through(running).to(sink)
        run_local(flow, seed=seed, instances={"rows": 2, "running": 3})
        found.append(sorted(sink.records()))
    assert found[0] and all(f == found[0] for f in found)


# ---------------------------------------------------------------- readers


@dataclass(frozen=True)
class Faulty:
    record: type
    doing: str

    def splits(self) -> list[rs.Split]:
        return [rs.Split("one")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Any]]]:
        if self.doing == "os":
            raise FileNotFoundError("no such file: x")
        if self.doing == "bug":
            yield 1, 1 // 0
        if self.doing == "begin":  # where the batch begins, not where the next one does
            yield 0, rs.Batch(Tick, {"time": [1], "id": [1]})
        if self.doing == "nothing":
            yield 1, rs.Batch(Tick, {"time": [1], "id": [1]})
            yield None  # type: ignore[misc]
            yield 2, rs.Batch(Tick, {"time": [2], "id": [2]})
            return
        if self.doing == "misfit":
            yield 1, rs.Batch(Tick, {"time": [1.5], "id": [1]})
        yield 1, rs.Batch(Other, {"n": [1]})


class Other(NamedTuple):
    n: int


@pytest.mark.parametrize(
    ("doing", "kind", "complaint"),
    [
        ("os", InputError, "faulty: cannot read one: FileNotFoundError: no such file"),
        ("bug", OperatorError, r"faulty\.read\('one'\) raised ZeroDivisionError"),
        ("type", InputError, "faulty yields Other, but declared Tick"),
        ("begin", InputError, r"at which it begins, 0: (.|\n)*not \(n, batch\)"),
        ("nothing", InputError, r"faulty\.read\('one'\) yields a NoneType"),
        ("misfit", InputError, r"faulty\.read\('one'\): Tick\.time: .*\n.*rs\.Batch\(Tick"),
    ],
)
def test_what_a_source_can_do_wrong(doing: str, kind: type[Exception], complaint: str) -> None:
    flow = rs.Flow("faulty")
    flow.source(Faulty(Tick, doing)).through(echo).to(Collect())
    with pytest.raises(kind, match=complaint):
        run_local(flow)


# ---------------------------------------------------------------- sources without rows


def pairs(sink: Any, *sources: tuple[tuple[Tick, ...], ...], **by_time: Any) -> rs.Flow:
    flow = rs.Flow("pairs", key_groups=8)
    for i, parts in enumerate(sources):
        epochs = rs.by_time(seconds=2, **by_time)
        ticks = flow.source(Rows(Tick, parts, 3), epochs=epochs, name=f"ticks-{i}")
        ticks.through(echo, name=f"echo-{i}").to(sink if not i else Collect())
    return flow


SOME = ((Tick(7, 1), Tick(9, 2)), ())


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_source_without_rows_is_at_its_end(seed: int | None) -> None:
    told = []
    for sources in ((SOME,), (SOME, ((),)), (SOME, ((), ()), ((),))):
        sink = Collect()
        run_local(pairs(sink, *sources), seed=seed, instances={"ticks-0": 2}, cut_every=1)
        told.append(sink.by_epoch())
    assert told == [[(1, Tick(7, 1)), (2, Tick(9, 2))]] * 3


@pytest.mark.parametrize("by_time", [{}, {"origin": 5}])
def test_a_job_without_rows_ends(by_time: dict[str, Any]) -> None:
    sink = Collect()
    run_local(pairs(sink, ((),), ((), ()), **by_time), instances={"ticks-1": 2}, check=True)
    assert sink.records() == []


@pytest.mark.parametrize("some", [SOME, ((),)])
def test_a_job_with_a_source_without_rows_goes_on_from_any_cut(some: Any) -> None:
    """From one on the way, and from its end."""
    sink = Collect()
    plan = make_plan(pairs(sink, some, ((),)), cut_every=1)
    job, stored = LocalJob(plan), [{}]
    while not job.ended:
        job.turn()
        cut = max(m.position for m in job.machines)
        stored.append({plan.vertices[v].name: [[i] for i in f] for v, f in job.stored(cut).items()})
    job.finish()
    whole = sink.by_epoch()
    assert len(whole) == len(some[0])
    for cut, images in enumerate(stored):
        later = Collect()
        LocalJob(make_plan(pairs(later, some, ((),)), cut_every=1), resume=images).run()
        assert later.by_epoch() == [(e, r) for e, r in whole if e > cut]


def test_a_saved_job_with_a_source_without_rows_is_resumed(tmp_path: Path) -> None:
    """From a cut on the way; and from its end, after which there is nothing more."""

    def run(**options: Any) -> list[Any]:
        sink = Collect()
        pairs(sink, SOME, ((),)).run(durable=tmp_path, cut_every=1, **options)
        return sink.by_epoch()

    whole = run()
    assert len(whole) == 2
    max(tmp_path.glob("*/cuts/*")).unlink()
    assert run(resume=True) == whole[1:]
    assert run(resume=True) == []


@pytest.mark.parametrize("seed", range(5))
def test_sources_whose_splits_have_the_same_names_are_cut_each_by_itself(seed: int) -> None:
    """By arrival each ends where it ends, whatever another with such a split does."""
    sink, flow = Collect(), rs.Flow("alike", key_groups=8)
    few, many = ([Tick(i, who) for i in range(n)] for who, n in ((0, 3), (1, 12)))
    first, second = (
        flow.source(rs.io.iterable(rows, Tick), epochs=rs.by_arrival(), name=name)
        for rows, name in ((few, "few"), (many, "many"))
    )
    (first | second).through(echo).to(sink)
    names = [make_plan(flow).splits[v] for v in (0, 1)]
    assert names[0] == names[1]
    run_local(flow, seed=seed)
    assert sorted(sink.records()) == sorted(few + many)


@pytest.mark.parametrize(("left", "fails"), [(12, False), (20, False), (7, True), (0, True)])
def test_a_split_that_was_cut_short_is_noticed(left: int, fails: bool) -> None:
    """Also inside the batch that was being taken; what comes behind is no harm."""
    rows = tuple(Tick(i, i) for i in range(20))
    epochs = rs.by_time(seconds=1)

    def recorded(n: int, taken: int = 0, positions: Any = None) -> Recorded:
        plan = plan_of((rows[:n],), epochs, batch=12)
        return Recorded(plan, plan.vertices[0], KeyRange(0, 8), taken=taken, positions=positions)

    before = recorded(12)
    for epoch in range(1, 5):
        before.take(epoch)
    after = recorded(left, 4, before.positions())
    if fails:
        with pytest.raises(InputError, match="is not what it was: it was read up to position 12"):
            after.take(5)
    else:
        assert len(after.take(5).rows) == len(before.take(5).rows) == 1


@dataclass(frozen=True)
class Backwards:
    """A source whose positions are its own, and go down."""

    record: type = Tick

    def splits(self) -> list[rs.Split]:
        return [rs.Split("all")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Tick]]]:
        for left in range(position or 9, 1, -1):
            yield left - 1, rs.Batch(Tick, {"time": [9 - left], "id": [left]})


def test_positions_are_the_source_s_own() -> None:
    flow = rs.Flow("backwards", key_groups=8)
    flow.source(Backwards(), epochs=rs.by_time(seconds=1)).to(Collect())
    plan = make_plan(flow)

    def recorded(**since: Any) -> Recorded:
        return Recorded(plan, plan.vertices[0], KeyRange(0, 8), **since)

    whole = recorded()
    taken = [[r.id for r in whole.take(epoch).rows.records()] for epoch in range(1, 10)]
    assert [i for ids in taken for i in ids] == [*range(9, 1, -1)]
    before = recorded()
    for epoch in range(1, 5):
        before.take(epoch)
    after = recorded(taken=4, positions=before.positions())
    assert [[r.id for r in after.take(e).rows.records()] for e in range(5, 10)] == taken[4:]


@pytest.mark.parametrize(
    ("unit", "seconds", "length"),
    [("us", 8.2, 8_200_000), ("ms", 1.001, 1001), ("ns", 1, 10**9), ("ns", 0.01, 10**7)],
)
def test_epochs_begin_at_multiples_of_their_length_whatever_the_unit(
    unit: Any, seconds: float, length: int
) -> None:
    """Times of these days have more digits in nanoseconds than a float."""
    begin = 1_700_000_000_123_456_789 // length * length
    times = [begin + length - 1, begin + length, begin + 2 * length]
    flow = rs.Flow("ticks", time_unit=unit)
    kept: Collect[Tick] = Collect()
    epochs = rs.by_time("time", seconds=seconds)
    flow.source(rs.io.iterable([Tick(t, 0) for t in times], Tick), epochs=epochs).to(kept)
    run_local(flow)
    assert [epoch for epoch, _ in kept.by_epoch()] == [1, 2, 3]


class Eager:
    """A source whose `read` is no generator: it raises when it is called."""

    record = Tick

    def splits(self) -> list[rs.Split]:
        return [rs.Split("only")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Tick]]]:
        raise KeyError("no such table")


def test_what_read_raises_when_it_is_called_is_told_with_its_line() -> None:
    flow = rs.Flow("eager")
    flow.source(Eager(), epochs=rs.by_time("time", seconds=1)).to(Collect())
    with pytest.raises(
        OperatorError, match=r"read\('only'\) raised KeyError.*no such table"
    ) as told:
        run_local(flow)
    assert "test_sources.py" in str(told.value)
