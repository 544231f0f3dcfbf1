"""What an image holds of an instance that runs, and of one that has ended."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import raystream as rs
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.snapshot import advance, capture, install, next_wanted, rows_of, view_with
from raystream.errors import InternalError, StateError
from raystream.schema.types import KeyRange
from raystream.state.images.chain import Chain, CheckpointRequest
from raystream.state.images.image import decode
from raystream.state.images.partition import partition, recut
from raystream.state.keys import key_group
from raystream.state.tables.object_table import ObjectTable
from raystream.testing import Collect
from tests.dataflow.snapshot.job_at import Build, fresh, job_at, one, two, words
from tests.flows import CountWords, Word, running_batch, word_flow


def test_a_cut_is_where_the_instance_is() -> None:
    job = job_at(lambda sink: word_flow(sink, CountWords()), 5)
    with pytest.raises(InternalError, match="CountWords at 5 was captured at 6"):
        capture(job.by_vertex[1][0], checkpoint=6)


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
    assert logic.table.views.guard is lock and [known.guard for known in logic.table.texts] == [
        lock
    ]


def test_an_image_holds_where_an_instance_stands() -> None:
    job = job_at(lambda sink: word_flow(sink, CountWords(), disorder=3), 40)
    (machine,) = job.by_vertex[1]
    header = decode(capture(machine, CheckpointRequest(7)).image().encode()).header
    assert (header.base, header.checkpoint, header.keys) == (7, 40, KeyRange(0, 256))
    assert header.input_position.watermark == machine.watermark
    assert not header.input_position.ended
    job.run()
    header = decode(capture(machine, checkpoint=10_000).image().encode()).header
    assert header.checkpoint == 10_000
    assert header.input_position.ended
    assert header.input_position.watermark == rs.NEVER
    assert header.input_position.inlets[0][0][1:] == (0, 256)
    counts = dict(header.input_position.counts)
    assert not any(counts.pop("left"))  # all windows are closed
    assert counts == machine.counts.stored() and machine.counts.total("in") > 0


def batches(sink: Collect) -> rs.Flow:
    """A batch operator whose rows are kept by text."""
    flow = rs.Flow("batches")
    source = rs.io.iterable([Word(i, f"w{i % 40}") for i in range(200)], Word)
    flow.source(source).through(running_batch, name="count").to(sink)
    return flow


@pytest.mark.parametrize("build", [one, two, words, batches])
def test_of_who_has_ended_no_rows_are_stored_but_how_many_there_were(build: Build) -> None:
    job = job_at(build, 1)
    job.run()
    owner = next(m for m in job.instances if m.vertex.kind == "operator")
    rows, groups = rows_of(owner), job.plan.groups
    assert rows
    image = capture(
        owner, next_wanted(owner, Chain(1)), checkpoint=owner.position + 5, table="t"
    ).image()
    assert not len(image)
    left = np.frombuffer(image.header.input_position.counts["left"], np.int64)
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
    advance(taker, capture(owner, CheckpointRequest(3)).image())
    assert taker.ended and taker.position == owner.position
    assert rows_of(taker) == rows_of(owner) > 0


def keys_by_group(machine: ReceivingInstance) -> list[int]:
    """How many rows of each key group an instance has."""
    logic: Any = machine.logic
    if isinstance(logic.table, ObjectTable):
        keys = list(logic.table.rows)
    else:
        columns = list(logic.table.ordered()["_key"].T)
        texts = logic.table.texts
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
