"""The watermark of a stream whose event time is a field of its own (`Stream.timed`).

A source keeps the greatest time that was emitted so far for each of its splits, and the least of
these holds the watermark back. Any other vertex keeps it for each of its key groups, and its
consumers take the greatest over all of them. So a watermark does not depend on how key groups are
cut into ranges. What is kept goes with its key group: into checkpoints, and into both halves of a
range that is split.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raystream.dataflow.emission import Emission
from raystream.dataflow.pieces import Header
from raystream.dataflow.plan import Plan, Port, Vertex, split_group
from raystream.dataflow.sources.watermark_rules import PLAIN, WatermarkRule
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.counts import EncodedCounts, at_time


class EventTimes:
    """The greatest event times that one range has emitted, for the edges that follow them."""

    def __init__(self, plan: Plan, vertex: Vertex, keys: KeyRange) -> None:
        self._edges = {e.id: e.rules for e in vertex.outputs if e.rules != PLAIN}
        rules = [m for rules in self._edges.values() for m in rules if m.port is not None]
        self._greatest = {(m.port, m.field): np.full(len(keys), BEFORE_ALL) for m in rules}
        self._names = {at: at_time(_name(vertex.ports[at[0] or 0], at[1])) for at in self._greatest}
        self._source = vertex.kind == "source"
        self._splits = np.zeros(len(keys), bool)
        """bool [R]: of a source, whether a split belongs to the key group."""
        names = len(plan.splits.get(vertex.id, ()))
        for i in range(names):
            group = split_group(i, names, plan.groups)
            if keys.holds(group):
                self._splits[group - keys.lo] = True
        self.holding = self._splits
        """bool [R]: of a source, the key groups of its splits that hold the watermark back: they
        have not ended and are not idle."""

    def note(self, ports: Sequence[Emission]) -> None:
        """Take note of what was emitted at each port."""
        for (port, field), greatest in self._greatest.items():
            emitted = ports[port or 0]
            if not emitted.rows.length:
                continue
            begins = emitted.offsets[:-1]
            full = (emitted.offsets[1:] > begins).nonzero()[0]
            times = np.maximum.reduceat(emitted.rows.column(field), begins[full])
            greatest[full] = np.maximum(greatest[full], times)

    def header(self, edge: int, header: Header) -> Header:
        """The header of an epoch as it travels on an edge."""
        rules = self._edges.get(edge)
        if rules is None or header.ended:
            return header
        watermark = min([_less(self._of(m, header), m.disorder + m.behind) for m in rules])
        lags = [m.behind for m in rules if m.port is None] if header.lag is not None else []
        lag = header.lag + max(lags) if header.lag is not None and lags else None
        return header._replace(watermark=watermark, lag=lag)

    def _of(self, rule: WatermarkRule, header: Header) -> int:
        if rule.port is None:
            return header.watermark
        greatest = self._greatest[rule.port, rule.field]
        if not self._source:
            return int(greatest.max())
        if self.holding.any():
            return int(greatest[self.holding].min())
        return int(greatest[self._splits].max()) if self._splits.any() else NEVER

    def stored(self) -> dict[str, bytes]:
        """As it is stored, by key group."""
        return {self._names[at]: _turned(found).tobytes() for at, found in self._greatest.items()}

    def stand(self, counts: EncodedCounts) -> None:
        """Go on from what was stored."""
        for at, greatest in self._greatest.items():
            if (found := counts.get(self._names[at])) is not None:
                greatest[:] = _turned(np.frombuffer(found, np.int64))


def follows(vertex: Vertex) -> bool:
    """Whether the watermark of an edge of a vertex follows times that it emits."""
    return any(m.port is not None for e in vertex.outputs for m in e.rules)


def holding(groups: Sequence[int], holds: Sequence[bool], keys: KeyRange) -> np.ndarray:
    """See `EventTimes.holding`. groups: of each split its key group; holds: whether it holds the
    watermark back."""
    found = np.zeros(len(keys), bool)
    for group, holds_back in zip(groups, holds, strict=True):
        found[group - keys.lo] |= holds_back
    return found


def _name(port: Port, field: str) -> str:
    return f"{port.node}.{port.schema.name}{'.late' if port.late else ''}.{field}"


def _less(watermark: int, by: int) -> int:
    return watermark if watermark in (BEFORE_ALL, NEVER) else max(BEFORE_ALL, watermark - by)


def _turned(times: np.ndarray) -> np.ndarray:
    """Times as they are stored, or back: what is not there counts as 0, and that is BEFORE_ALL."""
    return np.bitwise_xor(times, np.int64(BEFORE_ALL))
