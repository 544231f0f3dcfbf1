"""Sinks of files when a new run goes on from a saved cut of another: what came later is discarded,
nothing is lost and nothing is there twice, whatever the ranges, and wherever it is interrupted."""

from __future__ import annotations

import enum
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning import make_plan
from raystream.dataflow.plan import Plan
from raystream.errors import InputError, JobError, OutputError, StateError
from raystream.io import manifest
from raystream.io.manifest import read_manifests
from raystream.state.image import Image
from raystream.testing.collect import Collect
from raystream.testing.local import LocalJob
from tests.dataflow.cuts import random_ranges
from tests.examples import examples
from tests.io.kinds import Counted, batch
from tests.io.test_in_flows import Event, flow

GROUPS = 256
ALL = rs.KeyRange(0, GROUPS)
HALVES = [rs.KeyRange(0, 128), rs.KeyRange(128, 256)]


class Row(NamedTuple):
    group: int
    epoch: int
    run: str


def opened(
    sink: Any,
    keys: rs.KeyRange,
    run: str,
    committed: int = 0,
    resumed: str = "",
    generation: int = 0,
    number: int = 0,
) -> Any:
    mine = type(sink)(sink.folder, sink.form)
    context = rs.SinkContext(
        run, "rows", keys, None, 0.0, None, committed, resumed, False, generation, number
    )
    mine.open(context)
    return mine


def rows(epoch: int, keys: rs.KeyRange, run: str) -> list[Row]:
    """One row for every 16th key group; none in every third epoch."""
    return [Row(g, epoch, run) for g in range(0, GROUPS, 16) if g in range(*keys) and epoch % 3]


def files(folder: Path) -> set[Path]:
    return {p for p in folder.rglob("*") if p.is_file()}


def visible(folder: Path) -> list[Row]:
    return [r for b in rs.io.read_parts(folder, Row, partial=True) for r in b.records()]


class Life:
    """The sink's instances of one run, from a cut on to its death."""

    def __init__(self, sink: Any, rng: random.Random, name: str, cut: int, before: str) -> None:
        self.sink, self.rng, self.name, self.cut, self.before = sink, rng, name, cut, before
        self.ranges = random_ranges(rng, GROUPS)
        self.instances: dict[rs.KeyRange, Any] = {}
        self.positions: dict[rs.KeyRange, int] = {}

    def open(self, number: int) -> None:
        """Open so many more instances, in any order."""
        closed = [keys for keys in self.ranges if keys not in self.instances]
        for keys in self.rng.sample(closed, min(number, len(closed))):
            self.instances[keys] = opened(self.sink, keys, self.name, self.cut, self.before)
            self.positions[keys] = self.cut

    def write(self, upto: int, ahead: int = 2) -> None:
        """All write up to an epoch at least, and prepare the cuts on the way."""
        for keys, one in self.instances.items():
            last = upto + self.rng.randint(0, ahead)
            for epoch in range(self.positions[keys] + 1, last + 1):
                found = rows(epoch, keys, self.name)
                if found:
                    one.write(epoch, keys, batch(Row, found))
                if epoch % 2 == 0:
                    one.prepare(epoch)
            self.positions[keys] = last

    def show(self, epoch: int) -> None:
        """A cut is saved."""
        for one in self.instances.values():
            one.commit(epoch)

    def restart(self, committed: int) -> None:
        """One instance dies and another takes its place."""
        keys = self.rng.choice(self.ranges)
        self.instances[keys] = opened(self.sink, keys, self.name, committed, self.before)
        self.positions[keys] = committed


@examples(25)
@given(st.integers(0, 2**32), st.sampled_from(["parquet", "csv"]))
def test_runs_that_go_on_from_cuts_write_every_epoch_once(seed: int, kind: str) -> None:
    """Every second epoch is a cut. Each run writes its own name: what the one before had after the
    cut has to go, all up to it has to stay. Readers never see what is not saved."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sink = getattr(rs.io, kind)(folder)
        writer: dict[int, str] = {}  # by epoch, whose rows count
        saved, saver = 0, ""
        for number in range(rng.randrange(2, 6)):
            life = Life(sink, rng, f"run-{number}", saved, saver)
            before = Counter(_expected(writer, saved)) if saved else None
            life.open(rng.randrange(4))
            if len(life.instances) < len(life.ranges):
                if before is not None:
                    assert before <= Counter(visible(folder)), "the older run is still what counts"
                if rng.random() < 0.5:
                    continue  # it dies before all were opened
                life.open(GROUPS)
            writer = {e: w for e, w in writer.items() if e <= saved}
            assert sorted(visible(folder)) == _expected(writer, saved)
            committed = saved
            for _ in range(rng.randrange(4)):
                committed += 2
                life.write(committed)
                writer |= {e: life.name for e in range(1, committed + 1) if e not in writer}
                assert sorted(visible(folder)) == _expected(writer, saved)
                if rng.random() < 0.3:
                    life.restart(committed)
                if rng.random() < 0.6:
                    saved, saver = committed, life.name
                    life.show(saved)
        life = Life(sink, rng, "last", saved, saver)
        life.open(GROUPS)
        last = saved + 5
        life.write(last, ahead=0)
        for one in life.instances.values():
            one.prepare(last)
            one.commit(last)
            one.close()
        writer = {e: writer[e] if e <= saved else "last" for e in range(1, last + 1)}
        found = [r for b in rs.io.read_parts(folder, Row) for r in b.records()]
        assert sorted(found) == _expected(writer, last)
        listed = {p.path for p in rs.io.parts(folder)}
        lists = {folder / name for m in read_manifests(folder) for name in m.lists}
        manifests = set(folder.glob("_manifest-last-*"))
        assert files(folder) == listed | manifests | lists, "nothing else"


@pytest.mark.parametrize("seed", range(6))
def test_so_they_do_when_their_parts_are_in_lists(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raystream.io.manifest.LIST_PARTS", 1 + seed % 2)
    test_runs_that_go_on_from_cuts_write_every_epoch_once.hypothesis.inner_test(seed, "csv")


class KilledError(BaseException):
    """Nothing is done after it."""


def test_wherever_a_run_dies_that_removes_lists_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raystream.io.manifest.LIST_PARTS", 2)
    for lives in count():
        sink = began(tmp_path / str(lives), upto=14)
        ops = iter(range(lives))
        with monkeypatch.context() as patch:
            for name in ("os.replace", "os.unlink"):  # which `Path.unlink` is, too
                patch.setattr(name, partial(_mortal, getattr(os, name[3:]), ops))
            try:
                opened(sink, ALL, "two", 10, "one")
                break
            except KilledError:
                known = any(sink.folder.glob("_manifest-two-*"))
        for keys in HALVES:
            opened(sink, keys, "three", 8, "one")
        epochs = sorted(r.epoch for r in visible(sink.folder))
        assert epochs == [e for e in range(1, 9) for _ in HALVES]
        named = {sink.folder / name for m in read_manifests(sink.folder) for name in m.lists}
        listed = {p.path for p in rs.io.parts(sink.folder, partial=True)}
        manifests = set(sink.folder.glob("_manifest-three-*"))
        left = files(sink.folder) - named - listed - manifests
        assert not known or not left, "of who has a manifest nothing is left"
    assert lives > 10


def _mortal(call: Any, ops: Any, *args: Any, **options: Any) -> Any:
    if next(ops, None) is None:
        raise KilledError
    return call(*args, **options)


def _expected(writer: dict[int, str], upto: int) -> list[Row]:
    return sorted(r for e in range(1, upto + 1) for r in rows(e, ALL, writer[e]))


def began(folder: Path, *, upto: int = 4) -> Any:
    """A sink and the output of a run "one" that was lost: a part of every second epoch."""
    sink = rs.io.parquet(folder)
    life = Life(sink, random.Random(1), "one", 0, "")
    life.ranges = list(HALVES)
    life.open(2)
    for epoch in range(1, upto + 1):
        for keys, one in life.instances.items():
            one.write(epoch, keys, batch(Row, [Row(keys.lo, epoch, "one")]))
            if epoch % 2 == 0:
                one.prepare(epoch)
    return sink


def test_parts_are_taken_over_by_the_range_of_their_first_key_group(tmp_path: Path) -> None:
    sink = began(tmp_path)
    thirds = [rs.KeyRange(0, 100), rs.KeyRange(100, 200), rs.KeyRange(200, 256)]
    for keys in thirds:
        opened(sink, keys, "two", 2, "one")
    found = rs.io.parts(tmp_path, partial=True)
    assert [(p.after, p.upto, p.keys) for p in found] == [(0, 2, keys) for keys in HALVES]
    assert {p.path for p in found} == files(tmp_path) - set(tmp_path.glob("_manifest-two-*"))


def test_the_older_run_counts_until_all_were_opened(tmp_path: Path) -> None:
    sink = began(tmp_path)
    before = visible(tmp_path)
    one = opened(sink, HALVES[1], "two", 2, "one")
    one.write(3, HALVES[1], batch(Row, [Row(128, 3, "two")]))
    one.prepare(4)
    assert visible(tmp_path) == before
    with pytest.raises(JobError, match="has not ended"):
        rs.io.parts(tmp_path)
    other = opened(sink, HALVES[0], "two", 2, "one")
    other.prepare(4)
    assert {r.epoch for r in visible(tmp_path)} == {1, 2}, "nothing that may come again"
    for instance in (one, other):
        instance.commit(4)
    assert [r for r in visible(tmp_path) if r.epoch > 2] == [Row(128, 3, "two")]


def test_a_run_from_the_beginning_keeps_nothing(tmp_path: Path) -> None:
    sink = began(tmp_path)
    opened(sink, HALVES[0], "two", 2, "one")
    for keys in HALVES:
        opened(sink, keys, "three")
    assert visible(tmp_path) == []
    assert files(tmp_path) == set(tmp_path.glob("_manifest-three-*"))


def test_an_old_run_that_wakes_up_does_no_harm(tmp_path: Path) -> None:
    sink = rs.io.parquet(tmp_path)
    zombie = opened(sink, ALL, "one")
    zombie.write(1, ALL, batch(Row, [Row(0, 1, "one")]))
    zombie.prepare(2)
    zombie.write(3, ALL, batch(Row, [Row(0, 3, "one")]))
    two = opened(sink, ALL, "two", 2, "one")
    for wakes_up in (zombie.prepare, zombie.commit):
        with pytest.raises(OutputError, match="is another run's now"):
            wakes_up(4)
    two.write(3, ALL, batch(Row, [Row(0, 3, "two")]))
    two.prepare(4)
    two.commit(4)
    two.close()
    assert visible(tmp_path) == [Row(0, 1, "one"), Row(0, 3, "two")]


@pytest.mark.parametrize("sleeps_in", ["prepare", "commit", "close"])
@pytest.mark.parametrize("wakes_up", [2, 4, 6])
def test_a_process_that_sleeps_amid_a_write_does_no_harm_to_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeps_in: str, wakes_up: int
) -> None:
    """It sleeps between its look at what is there and its write, as long as it takes another to
    take its place and to get so far."""
    sink = rs.io.parquet(tmp_path)
    zombie = opened(sink, ALL, "one", generation=3)
    zombie.write(1, ALL, batch(Row, [Row(0, 1, "one")]))
    if sleeps_in != "prepare":
        zombie.prepare(2)
    successor: Any = None

    def goes_on(upto: int) -> None:
        nonlocal successor
        if successor is None:
            successor = opened(sink, ALL, "one", 0 if sleeps_in == "prepare" else 2, generation=7)
            for epoch in (1, 3):
                successor.write(epoch, ALL, batch(Row, [Row(0, epoch, "one")]))
        for cut in range(2, upto + 1, 2):
            successor.commit(cut)
        if upto == 6:
            successor.close()

    put = manifest._put

    def late(path: Path, text: str, *, lasting: bool) -> None:
        with monkeypatch.context() as awake:
            awake.setattr(manifest, "_put", put)
            goes_on(wakes_up)
        put(path, text, lasting=lasting)

    with monkeypatch.context() as asleep:
        asleep.setattr(manifest, "_put", late)
        zombie.close() if sleeps_in == "close" else getattr(zombie, sleeps_in)(2)
    with pytest.raises(OutputError, match="another process of this one has taken the place"):
        opened(sink, ALL, "one", 2, generation=6)
    if wakes_up < 6:
        goes_on(6)
    assert [tuple(r) for b in rs.io.read_parts(tmp_path, Row) for r in b.records()] == [
        (0, 1, "one"),
        (0, 3, "one"),
    ]


def test_a_run_that_begins_late_takes_nothing_from_one_that_went_on_from_the_same_cut(
    tmp_path: Path,
) -> None:
    """It was thought dead, and is only told at its next cut that another run has begun."""
    sink = rs.io.parquet(tmp_path)
    one = opened(sink, ALL, "one", number=1)
    one.write(1, ALL, batch(Row, [Row(0, 1, "one")]))
    one.commit(2)
    three = opened(sink, ALL, "three", 2, "one", number=3)
    with pytest.raises(OutputError, match="is another run's now"):
        opened(sink, ALL, "two", 2, "one", number=2)
    three.write(3, ALL, batch(Row, [Row(0, 3, "three")]))
    three.commit(4)
    assert visible(tmp_path) == [Row(0, 1, "one"), Row(0, 3, "three")]
    with pytest.raises(OutputError, match="is another run's now"):
        opened(sink, ALL, "two", 2, "one", number=2)
    four = opened(sink, ALL, "four", 4, "three", number=4)
    four.commit(6)
    assert visible(tmp_path) == [Row(0, 1, "one"), Row(0, 3, "three")]


def test_a_manifest_that_is_replaced_while_it_is_read_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor is there under another name, which the reader has not found."""
    sink = rs.io.parquet(tmp_path)
    one = opened(sink, ALL, "one", generation=3)
    one.write(1, ALL, batch(Row, [Row(0, 1, "one")]))
    one.commit(2)
    parse = manifest._parse

    def late(*args: Any) -> Any:
        monkeypatch.setattr(manifest, "_parse", parse)
        opened(sink, ALL, "one", 2, generation=7)
        return parse(*args)

    monkeypatch.setattr(manifest, "_parse", late)
    assert visible(tmp_path) == [Row(0, 1, "one")]
    (tmp_path / "_manifest-none-00000-00256.json").symlink_to("nowhere")
    assert visible(tmp_path) == [Row(0, 1, "one")], "a name without a file is not waited for"


def test_an_old_run_that_wakes_up_leaves_one_from_the_beginning_alone(tmp_path: Path) -> None:
    """Its manifest would be there beside the other, which replaces none: readers refused both."""
    sink = rs.io.parquet(tmp_path)
    zombie = opened(sink, ALL, "one")
    zombie.write(1, ALL, batch(Row, [Row(0, 1, "one")]))
    anew = opened(sink, ALL, "two")
    for wakes_up in (zombie.prepare, zombie.commit):
        with pytest.raises(OutputError, match="is another run's now"):
            wakes_up(2)
    zombie.close()
    anew.write(1, ALL, batch(Row, [Row(0, 1, "two")]))
    anew.commit(2)
    anew.close()
    assert visible(tmp_path) == [Row(0, 1, "two")]


def test_a_predecessor_that_wakes_up_does_no_harm(tmp_path: Path) -> None:
    """It would put back what its successor has committed, which nobody makes again."""
    sink = rs.io.parquet(tmp_path)
    zombie = opened(sink, ALL, "one")
    zombie.commit(2)
    two = opened(sink, ALL, "one", 2)
    two.commit(4)
    with pytest.raises(OutputError, match="another process of this one has taken the place"):
        zombie.prepare(4)
    two.commit(6)
    opened(sink, ALL, "one", 6)


@pytest.mark.parametrize(
    ("cut", "resumed", "lost", "missing"),
    [
        (6, "one", "", r"\[0, 256\) up to epoch 6"),  # it had not come so far
        (2, "other", "", r"\[0, 256\) up to epoch 2"),
        (2, "", "", r"\[0, 256\) up to epoch 2"),
        (2, "one", "_manifest-one-00128-00256.json", r"\[128, 256\) up to epoch 2"),
        (2, "one", "Row/one-000000000-000000002-00128-00256-000.parquet", r"\[128, 256\)"),
    ],
)
def test_output_that_is_lost_is_missed(
    cut: int, resumed: str, lost: str, missing: str, tmp_path: Path
) -> None:
    sink = began(tmp_path)
    if lost:
        (tmp_path / lost).unlink()
    there = files(tmp_path)
    with pytest.raises(OutputError, match=rf"lacks output of the key groups {missing}"):
        opened(sink, ALL, "two", cut, resumed)
    assert files(tmp_path) == there


def test_a_successor_in_the_same_run_misses_lost_output_too(tmp_path: Path) -> None:
    sink = began(tmp_path)
    (tmp_path / "_manifest-one-00128-00256.json").unlink()
    with pytest.raises(OutputError, match=r"lacks output of the key groups \[128, 256\)"):
        opened(sink, HALVES[1], "one", 4)
    with pytest.raises(OutputError, match=r"lacks output of the key groups \[0, 128\).*epoch 6"):
        opened(sink, HALVES[0], "one", 6)


def test_a_run_that_went_on_from_less_does_not_hold_the_cut(tmp_path: Path) -> None:
    """Two goes on from 2, so what one had after that is gone; three cannot go on from one's 4."""
    sink = began(tmp_path)
    opened(sink, ALL, "two", 2, "one").prepare(6)
    with pytest.raises(OutputError, match="lacks output"):
        opened(sink, ALL, "three", 4, "one")
    assert visible(tmp_path)
    opened(sink, ALL, "three", 2, "one")
    assert {r.epoch for r in visible(tmp_path)} == {1, 2}


def test_runs_that_have_nothing_to_do_with_each_other_are_refused(tmp_path: Path) -> None:
    opened(rs.io.parquet(tmp_path / "a"), ALL, "one")
    opened(rs.io.parquet(tmp_path / "b"), ALL, "two")
    for path in (tmp_path / "b").glob("_manifest*"):
        path.rename(tmp_path / "a" / path.name)
    with pytest.raises(InputError, match="holds output of several runs: one, two"):
        rs.io.parts(tmp_path / "a")


# ---------------------------------------------------------------- in flows

EVENTS = [Event(t, t * 7 % 5) for t in range(120)]


def planned(sink: Any, rng: random.Random) -> Plan:
    plan = make_plan(flow(rs.io.iterable(EVENTS, Event, splits=3), sink), cut_every=2)
    for vertex in plan.ranges:
        plan.ranges[vertex] = random_ranges(rng, plan.groups)
    return plan


@examples(6)
@given(st.integers(0, 2**32), st.sampled_from(["parquet", "csv"]))
def test_a_job_that_is_lost_and_goes_on_elsewhere_writes_exactly_once(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        sink = getattr(rs.io, kind)(Path(name))
        saved: dict[str, list[list[Image]]] = {}
        saver = ""
        for life in range(rng.randrange(4)):
            job = LocalJob(planned(sink, rng), run=f"run-{life}", resume=saved, resumed=saver)
            at = job.committed
            while not job.ended and rng.random() < 0.85:
                job.turn()
                at += 1
                if job.committed == at and rng.random() < 0.5:
                    saved, saver = job.checkpoint(at), f"run-{life}"
        LocalJob(planned(sink, rng), run="last", resume=saved, resumed=saver).run()
        found = [tuple(r) for b in rs.io.read_parts(name, Counted) for r in b.records()]
        for key in range(5):
            assert [n for k, n in found if k == key] == list(range(1, 25))


def test_instances_may_open_at_the_same_moment(tmp_path: Path) -> None:
    rng = random.Random(5)
    for number in range(10):
        sink = began(tmp_path / str(number))
        ranges = random_ranges(rng, GROUPS)
        with ThreadPoolExecutor(len(ranges)) as pool:
            list(pool.map(lambda keys, s=sink: opened(s, keys, "two", 2, "one"), ranges))
        found = rs.io.parts(sink.folder, partial=True)
        assert [(p.after, p.upto, p.keys) for p in found] == [(0, 2, keys) for keys in HALVES]
        assert files(sink.folder) == {p.path for p in found} | set(
            sink.folder.glob("_manifest-two-*")
        )


def test_what_was_not_listed_goes_when_the_run_has_gone(tmp_path: Path) -> None:
    """A run died after it had named a part and before it listed it, and amid writing others."""
    sink = began(tmp_path)
    for name in (
        "one-000000004-000000006-00128-00256-000.parquet",
        ".00128-00256-x1.tmp",
        ".00000-00128-x2.tmp",
    ):
        (tmp_path / "Row" / name).write_bytes(b"half")
    (tmp_path / "Row" / "notes.parquet").write_bytes(b"mine")
    for keys in (rs.KeyRange(0, 60), rs.KeyRange(60, 256)):
        opened(sink, keys, "two", 4, "one")
    parts = {p.path for p in rs.io.parts(tmp_path, partial=True)}
    assert set((tmp_path / "Row").iterdir()) == {*parts, tmp_path / "Row" / "notes.parquet"}


class Numbered(NamedTuple):
    time: int
    k: int


@dataclass(frozen=True)
class Breaking:
    """Twenty records; it breaks before one of them."""

    breaks: int

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Numbered]]]:
        for i in range(position, 20):
            if i == self.breaks:
                raise OSError("power")
            yield i + 1, rs.Batch(Numbered, {"time": [i], "k": [i % 3]})


@pytest.mark.parametrize("nested", [False, True])
def test_a_member_that_an_enumeration_has_lost_is_told(nested: bool, tmp_path: Path) -> None:
    def run(members: list[str], breaks: int) -> None:
        kind: Any = enum.IntEnum("Kind", members)
        annotations = {"last": kind, "all": list[kind]}
        body = {"__annotations__": annotations, "last": kind(1), "all": rs.field(factory=list)}
        state: Any = type("Kinds", (rs.State,), {**body, "__module__": __name__})

        def op(record, kinds):  # type: ignore[no-untyped-def]
            if nested:
                kinds.all = [kind(len(kind))]
            else:
                kinds.last = kind(len(kind))
            yield record

        op.__annotations__ = {"record": Numbered, "kinds": state, "return": Iterator[Numbered]}
        flow, source = rs.Flow("kinds"), Breaking(breaks)
        stream = flow.source(source, epochs=rs.by_time(seconds=1))
        stream.through(rs.operator(key="k")(op)).to(Collect())
        flow.run(durable=str(tmp_path), resume=True, cut_every=3)

    with pytest.raises(InputError, match="power"):
        run(["A", "B", "C"], 15)
    with pytest.raises(StateError, match=r"holds what Kinds or its key cannot: 3 is not a valid"):
        run(["A", "B"], 99)
