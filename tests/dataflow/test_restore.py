"""A job that is cut off at any epoch and goes on from images, in other ranges, loses no bit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.api.flow import OperatorNode
from raystream.controller.planning import make_plan
from raystream.dataflow.instance import Instance, SourceInstance
from raystream.dataflow.plan import Plan
from raystream.dataflow.snapshot import (
    advance,
    capture,
    install,
    next_wanted,
    rows_of,
    settled,
    texts_of,
    view_with,
)
from raystream.dataflow.source import Taken
from raystream.errors import InternalError, StateError
from raystream.schema.columns import empty
from raystream.schema.types import KeyRange
from raystream.state.chain import SMALL_BYTES, Chain, Size, Wanted
from raystream.state.checkpoint import WHOLE
from raystream.state.image import Image, decode, header_of, oldest_of
from raystream.state.keys import key_group
from raystream.state.objects import ObjectTable
from raystream.state.partition import by_parts, fold, merge, partition, recut
from raystream.testing import Collect
from raystream.testing.local import LocalJob, totals
from tests.dataflow.cuts import random_ranges
from tests.dataflow.shapes import SHAPES
from tests.dataflow.test_l1 import counted, written
from tests.examples import examples
from tests.flows import (
    CompiledLedger,
    CountWords,
    Ledger,
    Rows,
    Running,
    Word,
    ledger_flow,
    running,
    running_batch,
    word_flow,
)

Build = Callable[[Collect], rs.Flow]


def planned(build: Build, sink: Collect, rng: random.Random) -> Plan:
    plan = make_plan(build(sink))
    for vertex in plan.ranges:
        plan.ranges[vertex] = random_ranges(rng, plan.groups)
    return plan


LARGE = SMALL_BYTES
"""Bytes that a row is said to have, so that rows are refreshed."""


class Backup:
    """What keepers would hold: per instance the images that are needed, in parts."""

    def __init__(self, job: LocalJob, table: str) -> None:
        self.job = job
        self.stored: dict[int, list[list[memoryview]]] = {}
        self.made: dict[int, Chain] = {}
        self.table = table
        """What tables are called; "" if images are to name no slots."""

    def take(self, epoch: int, rng: random.Random) -> None:
        """A cut: of some instances it is lost, as a later one then has an older base."""
        for machine in self.job.instances:
            have = self.stored.setdefault(id(machine), [])
            chain = self.made.setdefault(id(machine), Chain(0))
            wanted = next_wanted(machine, chain)
            captured = capture(machine, wanted, cut=epoch, table=self.table)
            parts = list(captured.parts(rng.choice((1, 300, WHOLE))))
            chain.made(wanted, epoch)
            chain.answered(
                epoch, Size(LARGE * sum(map(len, parts)), sum(map(len, parts))), held=True
            )
            have.append([part.encode() for part in parts])
            headers = [header_of(image[0]) for image in have]
            have[:] = have[[h.cut for h in headers].index(oldest_of(headers)) :]
            settled(machine, wanted.base)

    def chains(self, rng: random.Random) -> dict[str, list[list[Image]]]:
        """Per operator what is held: as it came, folded, merged, or cut into other ranges."""
        out = {}
        for v, machines in self.job.by_vertex.items():
            if self.job.plan.vertices[v].kind != "source":
                held = [
                    chain
                    for m in machines
                    for chain in by_parts(
                        [[decode(data) for data in parts] for parts in self.stored[id(m)]]
                    )
                ]
                for chain in held:
                    if rng.random() < 0.3:
                        chain[:] = [fold(chain[0], chain[1:])]
                if rng.random() < 0.3:
                    held = [[merge([fold(chain[0], chain[1:]) for chain in held])]]
                elif rng.random() < 0.5:
                    ranges = random_ranges(rng, self.job.plan.groups)
                    held = [chain for keys in ranges for chain in recut(held, keys)]
                rng.shuffle(held)
                out[self.job.plan.vertices[v].name] = held
        return out


def interrupted(build: Build, rng: random.Random, other: Build | None = None) -> tuple[Any, Any]:
    """Output and reports of a run that is cut off at random cuts and goes on elsewhere."""
    sink = Collect()
    job, epoch = LocalJob(planned(build, sink, rng)), 0
    for turn in range(rng.randrange(3)):
        backup = Backup(job, rng.choice(("", "one", "one")))
        while not job.ended and rng.random() < 0.9:
            for _ in range(rng.randrange(1, 6)):
                if not job.ended:
                    epoch += 1
                    job.turn()
            backup.take(epoch, rng)
        if not backup.stored:
            break
        after = planned(other or build if turn == 0 else build, sink, rng)
        job = LocalJob(after, resume=backup.chains(rng))
    job.rng = rng if rng.random() < 0.5 else None
    job.run()
    return written(sink), [counted(r) for r in totals(job.progress())]


def uninterrupted(build: Build) -> tuple[Any, Any]:
    sink = Collect()
    job = LocalJob(make_plan(build(sink)))
    job.run()
    return written(sink), [counted(r) for r in totals(job.progress())]


@pytest.mark.parametrize("name", SHAPES)
@examples(4)
@given(seed=st.integers(0, 2**16), data=st.integers(0, 2), seconds=st.sampled_from([4, 9, 30, 200]))
def test_going_on_from_images(name: str, seed: int, data: int, seconds: float) -> None:
    def build(sink: Collect) -> rs.Flow:
        return SHAPES[name].build(sink, seconds, data)

    assert interrupted(build, random.Random(seed)) == uninterrupted(build)


def compiled(build: Build) -> Build:
    """The same flow with its keyed operators compiled."""

    def other(sink: Collect) -> rs.Flow:
        flow = build(sink)
        for node in flow.nodes:
            if isinstance(node, OperatorNode) and node.spec.keyed:
                node.spec = replace(node.spec, compiled=True)
        return flow

    return other


def one(sink: Collect) -> rs.Flow:
    return ledger_flow(sink, op=Ledger(), seconds=10)


def two(sink: Collect) -> rs.Flow:
    return ledger_flow(sink, op=CompiledLedger(), seconds=10)


@examples(10)
@given(seed=st.integers(0, 2**16), backwards=st.booleans())
def test_compiled_and_interpreted_code_take_over_from_each_other(
    seed: int, backwards: bool
) -> None:
    first, second = (two, one) if backwards else (one, two)
    assert interrupted(first, random.Random(seed), second) == uninterrupted(one)


# ---------------------------------------------------------------- hand-over


@pytest.mark.parametrize("build", [one, two], ids=["interpreted", "compiled"])
@examples(12)
@given(epochs=st.tuples(st.integers(0, 8), st.integers(1, 8)), seed=st.integers(0, 2**16))
def test_who_is_brought_on_by_its_owner_knows_what_that_knows(
    build: Build, epochs: tuple[int, int], seed: int
) -> None:
    """What was held at the first cut, and what has changed until the second, of any part."""
    job = job_at(build, epochs[0])
    owner = next(m for m in job.instances if m.vertex.kind == "operator")
    before = capture(owner).image()
    for _ in range(epochs[1]):
        job.turn()
    delta = capture(owner, Wanted(epochs[0])).image()
    (keys, *_) = random_ranges(random.Random(seed), job.plan.groups)
    taker = fresh(build, owner.vertex.name)
    taker.keys = keys
    if epochs[0]:
        install(taker, recut([[before]], keys))
    advance(taker, partition(delta, [keys])[0])
    expected, found = partition(capture(owner).image(), [keys])[0], capture(taker).image()
    assert found.rows == expected.rows
    assert found.header == expected.header
    assert {log.next for log in taker.outlets.logs.values()} == {sum(epochs) + 1}


def test_a_delta_on_something_else_is_refused() -> None:
    job = job_at(one, 5)
    owner = next(m for m in job.instances if m.vertex.kind == "operator")
    taker = fresh(one, owner.vertex.name)
    for since in (3, 4):
        with pytest.raises(StateError, match=r"does not apply to .* at 0"):
            advance(taker, capture(owner, Wanted(since)).image())
    advance(taker, capture(owner).image())
    with pytest.raises(StateError, match=r"does not apply to .* at 5"):
        advance(taker, capture(owner).image())


# ---------------------------------------------------------------- what is refused


def job_at(build: Build, epochs: int) -> LocalJob:
    job = LocalJob(make_plan(build(Collect())))
    for _ in range(epochs):
        job.turn()
    return job


def fresh(build: Build, name: str) -> Instance:
    plan = make_plan(build(Collect()))
    vertex = plan.vertex(name)
    return Instance(plan, vertex, KeyRange(0, plan.groups))


def test_images_of_something_else_are_refused() -> None:
    job = job_at(lambda sink: word_flow(sink, CountWords()), 5)
    (machine,) = job.by_vertex[1]
    image = capture(machine).image()
    target = fresh(lambda sink: word_flow(sink, CountWords()), "CountWords")

    def refused(bad: Image | list[Image], complaint: str) -> None:
        with pytest.raises(StateError, match=complaint):
            install(target, [bad if isinstance(bad, list) else [bad]])

    other = replace(image, header=replace(image.header, operator="x"))
    refused(other, "the image of x .* was put into CountWords")
    other = replace(image, header=replace(image.header, groups=16))
    refused(other, "of 16 key groups was put into CountWords, which has 256")
    delta = capture(machine, Wanted(3)).image()
    refused(delta, "delta 3 to 5 needs the image of cut 3 first")
    refused([image, delta], "the image of .* delta 3 to 5 does not apply to .* cut 5")
    later = capture(machine, Wanted(3, (4, 0), 4)).image()
    refused(later, "delta 3 to 5 needs the image of cut 4 first")
    install(target, [[image]])


def test_parts_that_do_not_tile_the_range_are_refused() -> None:
    job = job_at(lambda sink: word_flow(sink, CountWords()), 5)
    (machine,) = job.by_vertex[1]
    image = capture(machine).image()
    target = fresh(lambda sink: word_flow(sink, CountWords()), "CountWords")
    target.keys = KeyRange(10, 100)

    def refused(complaint: str, *bounds: tuple[int, int], change: object = None) -> None:
        parts = partition(image, [KeyRange(*b) for b in bounds])
        if change is not None:
            parts[-1] = replace(parts[-1], header=replace(parts[-1].header, **change))
        with pytest.raises(StateError, match=complaint):
            install(target, [[part] for part in parts])

    refused(r"\[20, 100\) at cut 5 was put into an instance of \[10, 100\)\n  Cut", (20, 100))
    refused(r"no image of CountWords \[90, 100\) was put into", (10, 50), (50, 90))
    refused(r"\[60, 100\) .*, where key groups up to 50 are there", (60, 100), (10, 50))
    refused(r"\[40, 100\) .*, where key groups up to 50 are there", (10, 50), (40, 100))
    refused(r"\[50, 101\) at cut 5 was put into", (10, 50), (50, 101))
    refused("cut 5 does not belong .* cut 6: .* two cuts", (10, 50), (50, 100), change={"cut": 6})
    other = {"standing": replace(image.header.standing, watermark=1)}
    refused("does not belong .* they stand elsewhere", (10, 50), (50, 100), change=other)
    assert target.position == 0 and not target.logic.table.rows  # nothing of them was put
    install(target, [[part] for part in partition(image, [KeyRange(60, 100), KeyRange(10, 60)])])


def test_state_of_another_class_is_refused_with_both_shapes() -> None:
    job = job_at(lambda sink: word_flow(sink, CountWords()), 5)
    image = capture(job.by_vertex[1][0]).image()
    target = fresh(lambda sink: word_flow(sink, running), "running")
    moved = replace(image, header=replace(image.header, operator="running"))
    with pytest.raises(StateError) as error:
        install(target, [[moved]])
    assert str(error.value) == (
        "the image of running [0, 256) at cut 5 holds other state than running keeps now\n"
        "  stored: Tally(n: int64) by word: str, in windows of 30 s\n"
        "  now:    Tally(n: int64) by word: str"
    )


class Old(rs.State):
    n: int = 0


class New(rs.State):
    n: int = 0


class Renamed(rs.State):
    total: int = 0

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> Self:
        if old["n"] > 2:
            raise ValueError("too many")
        return cls(total=old["n"])


@rs.operator(key="word")
def count(word: Word, state: Old) -> Iterator[Running]:
    state.n += 1
    yield Running(word.word, state.n)


@rs.operator(key="word")
def count_new(word: Word, state: New) -> Iterator[Running]:
    state.n += 1
    yield Running(word.word, state.n)


@rs.operator(key="word")
def count_renamed(word: Word, state: Renamed) -> Iterator[Running]:
    state.total += 1
    yield Running(word.word, state.total)


def counting(op: Any) -> Build:
    def build(sink: Collect) -> rs.Flow:
        flow = rs.Flow("counting")
        rows = Rows(Word, (tuple(Word(t, "ab"[t % 2]) for t in range(9)),))
        words = flow.source(rows, epochs=rs.by_time(seconds=1))
        words.through(op, name="count").to(sink, name="sink")
        return flow

    return build


def chains_at(build: Build, sink: Collect, epoch: int, full: int) -> dict[str, list[list[Image]]]:
    """Chains of a job that was cut at two epochs."""
    job, chains = LocalJob(make_plan(build(sink))), {}
    for at in range(1, epoch + 1):
        job.turn()
        if at in (full, epoch):
            for machine in job.instances:
                image = capture(machine, Wanted(full if at > full else 0)).image()
                chains.setdefault(machine.vertex.name, [[]])[0].append(decode(image.encode()))
    return chains


def test_state_of_a_class_that_changed_is_upgraded() -> None:
    sink, uncut = Collect(), Collect()
    LocalJob(make_plan(counting(count)(uncut))).run()
    chains = chains_at(counting(count), sink, 4, 2)
    LocalJob(make_plan(counting(count_renamed)(sink)), resume=chains).run()
    assert written(sink) == written(uncut)


def test_a_changed_class_without_an_upgrade_is_refused_and_it_says_how_to_declare_one() -> None:
    chains = chains_at(counting(count), Collect(), 4, 2)
    with pytest.raises(StateError) as error:
        LocalJob(make_plan(counting(count_new)(Collect())), resume=chains)
    assert str(error.value) == (
        "the image of count [0, 256) at cut 2 holds other state than count keeps now\n"
        "  stored: Old(n: int64) by word: str\n"
        "  now:    New(n: int64) by word: str\n"
        "  To go on with these rows declare in New:\n"
        "    @classmethod\n"
        "    def upgrade(cls, old: Mapping[str, Any]) -> Self: ..."
    )


def test_an_error_in_an_upgrade_is_told_with_its_line() -> None:
    chains = chains_at(counting(count), Collect(), 6, 2)
    with pytest.raises(StateError) as error:
        LocalJob(make_plan(counting(count_renamed)(Collect())), resume=chains)
    assert error.value.message == "Renamed.upgrade raised ValueError: too many"
    assert error.value.where is not None
    assert error.value.where.text == 'raise ValueError("too many")'
    assert "of the image of count [0, 256) at delta 2 to 6" in error.value.hint
    assert isinstance(error.value.__cause__, ValueError)


def test_a_cut_is_where_the_instance_is() -> None:
    job = job_at(lambda sink: word_flow(sink, CountWords()), 5)
    with pytest.raises(InternalError, match="CountWords at 5 was cut at 6"):
        capture(job.by_vertex[1][0], cut=6)


def test_who_makes_images_on_another_thread_has_the_lock_of_rows_and_texts() -> None:
    def build(sink: Collect) -> rs.Flow:
        flow = rs.Flow("words")
        source = rs.io.iterable([Word(0, "a")], Word)
        flow.source(source).through(running_batch, name="count").to(sink)
        return flow

    lock: Any = nullcontext()
    machine = fresh(build, "count")
    view_with(lock, machine)
    logic: Any = machine.logic
    assert logic.table.guard is lock and [known.guard for known in logic.keyed.texts] == [lock]


def test_an_image_holds_where_an_instance_stands() -> None:
    job = job_at(lambda sink: word_flow(sink, CountWords(), disorder=3), 40)
    (machine,) = job.by_vertex[1]
    header = decode(capture(machine, Wanted(7)).image().encode()).header
    assert (header.base, header.cut, header.keys) == (7, 40, KeyRange(0, 256))
    assert header.standing.watermark == machine.watermark
    assert not header.standing.ended
    job.run()
    header = decode(capture(machine, cut=10_000).image().encode()).header
    assert header.cut == 10_000
    assert header.standing.ended
    assert header.standing.watermark == rs.NEVER
    assert header.standing.inlets[0][0][1:] == (0, 256)
    counts = dict(header.standing.counts)
    assert not any(counts.pop("left"))  # all windows are closed
    assert counts == machine.counts.stored() and machine.counts.total("in") > 0


def batches(sink: Collect) -> rs.Flow:
    """A batch operator whose rows are kept by text."""
    flow = rs.Flow("batches")
    source = rs.io.iterable([Word(i, f"w{i % 40}") for i in range(200)], Word)
    flow.source(source).through(running_batch, name="count").to(sink)
    return flow


def words(sink: Collect) -> rs.Flow:
    return word_flow(sink, running)


@pytest.mark.parametrize("build", [one, two, words, batches])
def test_of_who_has_ended_no_rows_are_stored_but_how_many_there_were(build: Build) -> None:
    job = job_at(build, 1)
    job.run()
    owner = next(m for m in job.instances if m.vertex.kind == "operator")
    rows, groups = rows_of(owner), job.plan.groups
    assert rows
    image = capture(owner, next_wanted(owner, Chain(1)), cut=owner.position + 5, table="t").image()
    assert not len(image)
    left = np.frombuffer(image.header.standing.counts["left"], np.int64)
    assert left.tolist() == keys_by_group(owner)
    for keys in (KeyRange(0, groups // 3), KeyRange(groups // 3, groups)):
        other = fresh(build, owner.vertex.name)
        other.keys = keys
        install(other, recut([[image]], keys))
        assert other.ended and rows_of(other) == left[slice(*keys)].sum()
        again = capture(other, next_wanted(other, Chain(0))).image()
        assert again.header == replace(partition(image, [keys])[0].header, base=0)


@pytest.mark.parametrize("build", [one, two])
def test_who_follows_one_that_ends_knows_how_many_rows_there_were(build: Build) -> None:
    job = job_at(build, 3)
    owner = next(m for m in job.instances if m.vertex.kind == "operator")
    taker = fresh(build, owner.vertex.name)
    install(taker, [[capture(owner).image()]])
    job.run()
    advance(taker, capture(owner, Wanted(3)).image())
    assert taker.ended and taker.position == owner.position
    assert rows_of(taker) == rows_of(owner) > 0


def keys_by_group(machine: Instance) -> list[int]:
    """How many rows of each key group an instance has."""
    logic: Any = machine.logic
    if isinstance(logic.table, ObjectTable):
        keys = list(logic.table.rows)
    else:
        columns = list(logic.table.ordered()["_key"].T)
        texts = texts_of(logic) or [None] * len(columns)
        known = zip(columns, texts, strict=True)
        read = [c.tolist() if t is None else t.text(c, pa.string()).to_pylist() for c, t in known]
        keys = list(zip(*read, strict=True))
    groups = machine.plan.groups
    return np.bincount([key_group(key, groups) for key in keys], minlength=groups).tolist()


def test_a_value_that_cannot_be_stored_is_found_at_the_end_too() -> None:
    job = job_at(words, 3)
    job.run()
    owner: Any = next(m for m in job.instances if m.vertex.kind == "operator")
    next(iter(owner.logic.table.rows.values())).n = "many"
    with pytest.raises(StateError, match="keeps what cannot be stored, at the end of epoch"):
        next_wanted(owner, Chain(3))


# ---------------------------------------------------------------- sources


def test_a_source_is_cut_split_by_split() -> None:
    """Ranges of a source end each for itself; where to read on goes with the range of a split."""
    plan = make_plan(word_flow(Collect(), running))
    vertex = plan.vertex("rows")
    halves = [KeyRange(0, 128), KeyRange(128, 256)]
    machines = [SourceInstance(plan, vertex, keys) for keys in halves]
    nothing = empty(vertex.ports[0].schema)
    for machine, last in zip(machines, (2, 9), strict=True):
        for epoch in range(1, min(last, 4) + 1):
            ended = epoch == last
            machine.publish(
                Taken(nothing, np.zeros(129, np.int64), rs.NEVER if ended else epoch, ended)
            )
    splits = [{"split-0": (0, 40), "split-1": (85, 41)}, {"split-2": (170, 7)}]
    images = [
        decode(capture(machine, cut=4, splits=mine).image().encode())
        for machine, mine in zip(machines, splits, strict=True)
    ]
    whole = merge(images)
    standing = whole.header.standing
    assert (standing.ended, standing.watermark) == (False, 4)
    assert standing.splits == splits[0] | splits[1]
    thirds = [KeyRange(0, 85), KeyRange(85, 170), KeyRange(170, 256)]
    parts = partition(whole, thirds)
    assert [dict(p.header.standing.splits) for p in parts] == [
        {"split-0": (0, 40)},
        {"split-1": (85, 41)},
        {"split-2": (170, 7)},
    ]
    again = SourceInstance(plan, vertex, thirds[0])
    standing = install(again, [[parts[0]]])
    assert standing.splits == {"split-0": (0, 40)}
    assert (again.position, again.watermark, again.ended) == (4, 4, False)
    assert {log.first for log in again.outlets.logs.values()} == {5}
    again.publish(Taken(nothing, np.zeros(86, np.int64), rs.NEVER, True))
    assert again.outlets.piece(0, 5, KeyRange(0, 256)).header.ended


def test_ranges_of_a_source_are_put_together_though_one_had_ended() -> None:
    """What has ended is stored at its end, below the cut; the range as a whole has not ended."""
    plan = make_plan(word_flow(Collect(), running))
    vertex = plan.vertex("rows")
    ended, going = (SourceInstance(plan, vertex, k) for k in (KeyRange(0, 128), KeyRange(128, 256)))
    nothing = empty(vertex.ports[0].schema)
    none = np.zeros(129, np.int64)
    ended.publish(Taken(nothing, none, rs.NEVER, True))
    for epoch in range(1, 4):
        going.publish(Taken(nothing, none, epoch, False))
    chains = [
        [capture(going, splits={"b": (130, 7)}).image()],
        [capture(ended, splits={"a": (3, 9)}).image()],
    ]
    whole = SourceInstance(plan, vertex, KeyRange(0, 256))
    standing = install(whole, chains)
    assert standing.splits == {"a": (3, 9), "b": (130, 7)}
    assert (whole.position, whole.watermark, whole.ended) == (3, 3, False)
    assert {log.next for log in whole.outlets.logs.values()} == {4}
    chains[1] = [capture(going).image()]
    with pytest.raises(StateError, match="put into an instance"):
        install(SourceInstance(plan, vertex, KeyRange(0, 256)), chains)
