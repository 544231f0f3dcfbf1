"""The sending half of an instance: fused operators, and an epoch log for each edge."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from raystream.dataflow.emission import (
    Emission,
    cut_for,
    fuse_input,
    inherit,
    nothing,
    of_several,
    one_of,
)
from raystream.dataflow.logic.select import logic_of
from raystream.dataflow.pieces import ANY_CODE, Header, Piece
from raystream.dataflow.plan import Edge, Plan, Vertex
from raystream.dataflow.sources.event_times import EventTimes
from raystream.dataflow.sources.watermark_rules import PLAIN
from raystream.errors import OperatorError
from raystream.schema.blocks import folded
from raystream.schema.columns import Columns
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.counts import OUT, Counts, at_port
from raystream.state.log.epoch_log import Bound, EpochLog, LogEntry


def port_names(vertex: Vertex) -> list[str]:
    """The names under which records are counted: for a sink one for each type of record that it is
    given, for any other vertex one for each port."""
    if vertex.kind == "sink":
        return [f"{vertex.name}.{schema.name}" for schema in vertex.schemas]
    aside = ".ahead" if vertex.kind == "source" else ".late"
    return [f"{p.node}.{p.schema.name}" + (aside if p.late else "") for p in vertex.ports]


class Outlets:
    """The sending half of an instance: fused operators, and one epoch log per edge."""

    def __init__(self, plan: Plan, vertex: Vertex, keys: KeyRange) -> None:
        self.plan = plan
        self.vertex = vertex
        self.keys = keys
        self.fused = [(f, logic_of(f.spec, plan)) for f in vertex.fused]
        self.logs: dict[int, EpochLog[Header]] = {e.id: EpochLog() for e in vertex.outputs}
        """The epochs of each edge that are kept."""
        self.times = EventTimes(plan, vertex, keys)
        self.counted = [(name, at_port(name)) for name in port_names(vertex)]
        """What goes out, or comes to a sink (`port_names`), and the name it is counted under."""
        self._nothing: list[tuple[int, Columns, np.ndarray]] = []
        self._only = self._only_edge()
        """The edge, where what the head emits goes out on one edge as it is, and nowhere else."""
        self.code = 0
        """The number of the version of the code that makes the epochs."""
        self.last = NEVER
        """The epoch after which the range has ended; NEVER while that is not known."""
        self.guard: AbstractContextManager[Any] = nullcontext()
        """Held while the logs change. A process that serves them from other threads sets its
        lock."""

    def _only_edge(self) -> Edge | None:
        edges = self.vertex.outputs
        one = len(edges) == len(self.vertex.ports) == 1 and not self.vertex.fused
        return edges[0] if one and edges[0].rules == PLAIN else None

    def open(self) -> None:
        """Load references."""
        for _, logic in self.fused:
            logic.open(self.keys)

    def upgrade(self, vertex: Vertex, number: int) -> None:
        """Run the fused operators of another version of the code. The streams are the same, and so
        are the logs."""
        fused = [(f, logic_of(f.spec, self.plan)) for f in vertex.fused]
        for _, logic in fused:
            logic.open(self.keys)
        self.vertex, self.fused, self.code, self._nothing = vertex, fused, number, []
        self._only = self._only_edge()

    def emit(self, head: list[Emission], header: Header, counts: Counts) -> None:
        """Run the fused operators on what the head emitted and log one entry per edge."""
        only, groups = self._only, len(self.keys)
        if only is not None and header.epochs == 1 and head[0].rows.length:
            pieces = [(only.id, *cut_for(only, head[0], self.keys, self.plan.groups))]
            counts.add(self.counted[0][1], head[0].offsets)
            counts.add(OUT, head[0].offsets)
        elif any(e.rows.length for e in head):
            ports = self._through(head, header)
            self.times.note(ports)
            pieces = self._cut(ports)
            for (_, name), e in zip(self.counted, ports, strict=True):
                counts.add(name, folded(e.offsets, groups))
            for edge in self.vertex.outputs:
                counts.add(OUT, folded(ports[edge.port].offsets, groups))
        else:
            pieces = self._silence()
        if self.code:
            header = header._replace(code=self.code)
        with self.guard:
            for at, rows, offsets in pieces:
                told = self.times.header(at, header)
                self.logs[at].append(LogEntry(header.epoch, told, rows, offsets, header.epochs))
            if header.ended:
                self.last = header.epoch

    def _cut(self, ports: list[Emission]) -> list[tuple[int, Columns, np.ndarray]]:
        """Per edge its rows and their offsets."""
        return [
            (e.id, *cut_for(e, ports[e.port], self.keys, self.plan.groups))
            for e in self.vertex.outputs
        ]

    def _silence(self) -> list[tuple[int, Columns, np.ndarray]]:
        """The same of an epoch without rows: fused operators make none of nothing."""
        if not self._nothing:
            self._nothing = self._cut(
                [nothing(p.schema, len(self.keys)) for p in self.vertex.ports]
            )
        return self._nothing

    def _through(self, head: list[Emission], header: Header) -> list[Emission]:
        whole = header.epochs == 1 or all(logic.takes_several for _, logic in self.fused)
        try:
            return self._fused(head, header.epoch) if whole else self._by_epoch(head, header)
        except OperatorError:
            if whole and header.epochs > 1:
                self._by_epoch(head, header)  # the epoch is to be named
            raise

    def _by_epoch(self, head: list[Emission], header: Header) -> list[Emission]:
        """As `_fused` of several epochs, one after the other."""
        epochs = range(header.epochs)
        parts = ([one_of(e, i, len(self.keys)) for e in head] for i in epochs)
        return of_several([self._fused(p, header.first + i) for i, p in enumerate(parts)])

    def _fused(self, head: list[Emission], epoch: int) -> list[Emission]:
        ports = list(head)
        for fused, logic in self.fused:
            given, sources = fuse_input(
                [[ports[i] for i in at] for at in fused.inputs], fused.spec.inputs
            )
            given = given.typed(fused.spec.inputs)
            ports = inherit(ports, logic.process(given, epoch, BEFORE_ALL), sources[0])
        return ports

    def piece(self, edge: int, epoch: int, keys: KeyRange) -> Piece:
        """What a consumer range gets for an epoch, or for the run of epochs that it is in."""
        entry = self.logs[edge].entry(epoch)
        rows, offsets = entry.part(keys)
        return Piece(entry.header, rows, offsets)

    def silent(self, edge: int, epoch: int) -> LogEntry[Header] | None:
        """What an ended range has for an epoch after its last: nothing, and that it has ended. None
        for all other epochs.

        A consumer asks for it that has the earlier epochs from instances of other ranges, one of
        which ended later: it did not hear of this end.
        """
        if epoch <= self.last:
            return None
        rows, offsets = next((rows, at) for e, rows, at in self._silence() if e == edge)
        header = Header(epoch, self.keys, NEVER, False, True, code=ANY_CODE)
        return LogEntry(epoch, header, rows, offsets)

    def is_ahead(self, epoch: int, bound: Bound) -> bool:
        """Whether one of the logs holds more, from an epoch on, than a bound allows. A run of empty
        epochs counts as one."""
        for log in self.logs.values():  # noqa: SIM110  asked for at each epoch
            if log.is_beyond(epoch, bound):
                return True
        return False

    def trim(self, committed: int, most: int | None = None) -> bool:
        """Drop what is not newer than the committed checkpoint, but up to `most` epochs of each
        edge; whether all of it is gone."""
        if not self.logs:
            return True
        with self.guard:
            left = [not log.trim(committed, most) for log in self.logs.values()]
        return not any(left)
