"""Data that is cut into epochs as it arrives.

The boundary register (`raystream.dataflow.register`) decides once where an epoch ends. Every later
reader of the split ends the epoch at exactly the same place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.register import Boundary
from raystream.dataflow.sources.ahead import ahead_rule
from raystream.dataflow.sources.arrival_split import ArrivalSplit
from raystream.dataflow.sources.epochs import (
    EpochRows,
    Positions,
    gather,
    my_splits,
    parted,
    senders_at,
    start_of,
)
from raystream.dataflow.sources.event_times import follows, holding
from raystream.dataflow.sources.idling import carried, idling_of, joint
from raystream.dataflow.sources.live import LiveSplit
from raystream.dataflow.sources.split_reader import SplitReader
from raystream.schema.columns import concat, empty
from raystream.schema.types import BEFORE_ALL, KeyRange


class Arrival:
    """A source instance cut by arrival. Its shell reads; `take` publishes what was read so far.

    Args:
        positions: where the splits were at the checkpoint from which to go on; None to begin.
        writer: names the process in what it records, if the source cannot be read again.
    """

    def __init__(
        self,
        plan: Plan,
        vertex: Vertex,
        keys: KeyRange,
        positions: Positions | None = None,
        writer: str = "",
    ) -> None:
        assert vertex.epochs is not None
        self.keys = keys
        self._follows = follows(vertex)
        self.schema = vertex.ports[0].schema
        timed = vertex.epochs.time if self.schema.has_time(vertex.epochs.time) else None
        disorder = int(-(-vertex.epochs.disorder * plan.ticks // 1))
        split: tuple[Any, ...]
        idling = idling_of(vertex.epochs, plan.ticks)
        self.rule = ahead_rule(vertex.epochs, timed, plan.ticks)
        self.groups = [g for g, _ in my_splits(plan, vertex, keys)]
        self.splits: list[ArrivalSplit] = []
        self.live: list[LiveSplit] = []
        """Those splits that cannot be read again: all of them, or none."""
        for group, name in my_splits(plan, vertex, keys):
            start = start_of(plan, vertex, name) if positions is None else 0
            _, at, watermark, *beyond = (positions or {}).get(name, (group, start, BEFORE_ALL))
            if senders := senders_at(tuple(beyond)):
                beyond.pop()
            registered = f"{vertex.id}:{name}"
            split = (name, registered, timed, disorder, idling, at, watermark, *beyond)
            if vertex.source.recorded:
                self.live.append(LiveSplit(self.schema, writer, *split))
                self.live[-1].knows(senders)
                self.live[-1].sender_seconds = vertex.source.sender_seconds
            else:
                self.splits.append(ArrivalSplit(*split))
                self.splits[-1].later = vertex.source.comes_later(name)
                if self.rule is not None:
                    self.splits[-1].set_aside_by(
                        self.rule.guard(vertex.name, name, where=vertex.where)
                    )
        self.splits += self.live

    def positions(self) -> Positions:
        """The positions of the splits after the epoch that was taken last."""
        found: dict[str, tuple[Any, ...]] = {
            s.name: (g, s.position, s.watermark, *(() if s.idle is None else (s.beyond,)))
            for g, s in zip(self.groups, self.splits, strict=True)
        }
        for split in self.live:
            if senders := split.senders:
                found[split.name] += (senders,)
        return found

    def take(self, boundaries: list[Boundary]) -> EpochRows:
        """The rows of the next epoch, which ends at these boundaries, one for each split."""
        rows = [
            concat([empty(self.schema), *s.take(b)])
            for s, b in zip(self.splits, boundaries, strict=True)
        ]
        ended = all(b.ended for b in boundaries)
        columns, offsets = (
            gather(self.groups, rows, self.keys)
            if rows
            else (empty(self.schema), np.zeros(len(self.keys) + 1, np.int64))
        )
        watermark, idle = joint([(carried(b), b.idle) for b in boundaries])
        holds = None
        if self._follows:
            going = [not (b.ended or b.idle) for b in boundaries]
            holds = holding(self.groups, going, self.keys)
        taken = EpochRows(columns, offsets, watermark, ended, idle, holding=holds)
        if self.rule is None or not self.splits:
            return taken
        return parted(taken, np.concatenate([s.taken_aside for s in self.splits]))


def reader_of(vertex: Vertex, split: ArrivalSplit) -> SplitReader:
    """Begins to read a split where it is."""
    source, schema = vertex.source, vertex.ports[0].schema
    known = None
    if isinstance(split, LiveSplit):
        known = {sender: last for sender, last, _ in split.senders}
    reader = SplitReader(
        split.name,
        vertex.name,
        schema,
        source.read,
        split.position,
        None if known is None else source,
        ahead=source.read_ahead,
        where=vertex.where,
    )
    if known is not None:
        reader.knows(known)
        reader.position = 0  # the numbers of its batches are the source's own, and begin above 0
    return reader
