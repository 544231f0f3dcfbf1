"""Images of sources are split and merged with the positions of their splits."""

from __future__ import annotations

import numpy as np
import pytest

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.instances.source import SourceInstance
from raystream.dataflow.snapshot import capture, install
from raystream.dataflow.sources.epochs import EpochRows
from raystream.errors import StateError
from raystream.schema.columns import empty
from raystream.schema.types import KeyRange
from raystream.state.images.image import decode
from raystream.state.images.partition import merge, partition
from raystream.testing import Collect
from tests.flows import running, word_flow


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
            machine.step(
                EpochRows(nothing, np.zeros(129, np.int64), rs.NEVER if ended else epoch, ended)
            )
    splits = [{"split-0": (0, 40), "split-1": (85, 41)}, {"split-2": (170, 7)}]
    images = [
        decode(capture(machine, checkpoint=4, splits=mine).image().encode())
        for machine, mine in zip(machines, splits, strict=True)
    ]
    whole = merge(images)
    input_position = whole.header.input_position
    assert (input_position.ended, input_position.watermark) == (False, 4)
    assert input_position.splits == splits[0] | splits[1]
    thirds = [KeyRange(0, 85), KeyRange(85, 170), KeyRange(170, 256)]
    parts = partition(whole, thirds)
    assert [dict(p.header.input_position.splits) for p in parts] == [
        {"split-0": (0, 40)},
        {"split-1": (85, 41)},
        {"split-2": (170, 7)},
    ]
    again = SourceInstance(plan, vertex, thirds[0])
    input_position = install(again, [[parts[0]]])
    assert input_position.splits == {"split-0": (0, 40)}
    assert (again.position, again.watermark, again.ended) == (4, 4, False)
    assert {log.first for log in again.outlets.logs.values()} == {5}
    again.step(EpochRows(nothing, np.zeros(86, np.int64), rs.NEVER, True))
    assert again.outlets.piece(0, 5, KeyRange(0, 256)).header.ended


def test_ranges_of_a_source_are_put_together_though_one_had_ended() -> None:
    """What has ended is stored at its end, below the cut; the range as a whole has not ended."""
    plan = make_plan(word_flow(Collect(), running))
    vertex = plan.vertex("rows")
    ended, going = (SourceInstance(plan, vertex, k) for k in (KeyRange(0, 128), KeyRange(128, 256)))
    nothing = empty(vertex.ports[0].schema)
    none = np.zeros(129, np.int64)
    ended.step(EpochRows(nothing, none, rs.NEVER, True))
    for epoch in range(1, 4):
        going.step(EpochRows(nothing, none, epoch, False))
    chains = [
        [capture(going, splits={"b": (130, 7)}).image()],
        [capture(ended, splits={"a": (3, 9)}).image()],
    ]
    whole = SourceInstance(plan, vertex, KeyRange(0, 256))
    input_position = install(whole, chains)
    assert input_position.splits == {"a": (3, 9), "b": (130, 7)}
    assert (whole.position, whole.watermark, whole.ended) == (3, 3, False)
    assert {log.next for log in whole.outlets.logs.values()} == {4}
    chains[1] = [capture(going).image()]
    with pytest.raises(StateError, match="put into an instance"):
        install(SourceInstance(plan, vertex, KeyRange(0, 256)), chains)
