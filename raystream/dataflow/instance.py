"""The instance machine: what a running copy of an operator does with an event.

Pure: no Ray, threads, clocks or I/O of its own (a source's and a sink's user code does its own).

    receive(edge, piece)  ->  ready()  ->  step()  ->  logs to serve

The position of an instance in all its input is one integer, the last epoch applied; it advances in
the step that changes the state (law L3).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from raystream.dataflow.checking import Checksums
from raystream.dataflow.cuts import Cuts
from raystream.dataflow.emission import (
    Emission,
    cut_for,
    emissions,
    fuse_input,
    inherit,
    late_emission,
    nothing,
    two_phases,
)
from raystream.dataflow.inlet import Inlet
from raystream.dataflow.logic import Logic
from raystream.dataflow.order import assemble, feeds_of
from raystream.dataflow.pieces import Header, Piece
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.select import logic_of
from raystream.dataflow.source import Taken
from raystream.errors import JobError, RaystreamError, user_frame
from raystream.schema.columns import Columns
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange, SinkContext
from raystream.state.counts import IN, LATE, OUT, Counts, at_port
from raystream.state.log import Entry, EpochLog


def port_names(vertex: Vertex) -> list[str]:
    """What is counted for itself: of a sink each type of record that it is given, of all others
    what goes out at each port."""
    if vertex.kind == "sink":
        return [f"{vertex.name}.{schema.name}" for schema in vertex.schemas]
    return [f"{p.node}.{p.schema.name}" + (".late" if p.late else "") for p in vertex.ports]


class Outlets:
    """The sending half of an instance: fused operators, and one epoch log per edge.

    guard: held while the logs change; a shell that serves them from other threads sets its lock.
    last: the epoch after which the range has ended, NEVER while that is not known.
    counted: what goes out, or comes to a sink (`port_names`), and under which name it is counted.
    """

    def __init__(self, plan: Plan, vertex: Vertex, keys: KeyRange) -> None:
        self.plan = plan
        self.vertex = vertex
        self.keys = keys
        self.fused = [(f, logic_of(f.spec, plan)) for f in vertex.fused]
        self.logs: dict[int, EpochLog[Header]] = {e.id: EpochLog() for e in vertex.outputs}
        self.counted = [(name, at_port(name)) for name in port_names(vertex)]
        self._nothing: list[tuple[int, Columns, np.ndarray]] = []
        self.last = NEVER
        self.guard: AbstractContextManager[Any] = nullcontext()

    def open(self) -> None:
        """Load references."""
        for _, logic in self.fused:
            logic.open(self.keys)

    def emit(self, head: list[Emission], header: Header, counts: Counts) -> None:
        """Run the fused operators on what the head emitted and log one entry per edge."""
        if any(e.rows.length for e in head):
            ports = self._through(head, header.epoch)
            cut = self._cut(ports)
            for (_, name), e in zip(self.counted, ports, strict=True):
                counts.add(name, e.offsets)
            for edge in self.vertex.outputs:
                counts.add(OUT, ports[edge.port].offsets)
        else:
            cut = self._silence()
        with self.guard:
            for at, rows, offsets in cut:
                self.logs[at].append(Entry(header.epoch, header, rows, offsets))
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

    def _through(self, head: list[Emission], epoch: int) -> list[Emission]:
        ports = list(head)
        for fused, logic in self.fused:
            given, sources = fuse_input(
                [[ports[i] for i in at] for at in fused.inputs], fused.spec.inputs
            )
            ports = inherit(ports, logic.process(given, epoch, BEFORE_ALL), sources[0])
        return ports

    def piece(self, edge: int, epoch: int, keys: KeyRange) -> Piece:
        """What a consumer range gets for an epoch."""
        entry = self.logs[edge].entry(epoch)
        rows, offsets = entry.part(keys)
        return Piece(entry.header, rows, offsets)

    def silent(self, edge: int, epoch: int) -> Entry[Header] | None:
        """What an ended range has for an epoch after its last: nothing, and that it has ended. None
        for all other epochs.

        Who asks for it has the epochs before from instances of other ranges, one of which ended
        later, and did not hear of this end.
        """
        if epoch <= self.last:
            return None
        rows, offsets = next((rows, at) for e, rows, at in self._silence() if e == edge)
        return Entry(epoch, Header(epoch, self.keys, NEVER, False, True), rows, offsets)

    def trim(self, floor: int, most: int | None = None) -> bool:
        """Drop what is at or below the floor, but not more than `most` epochs of each edge; whether
        all of it is gone."""
        with self.guard:
            left = [not log.trim(floor, most) for log in self.logs.values()]
        return not any(left)


class SourceInstance:
    """An instance of a source: epochs are handed in by whoever reads."""

    def __init__(self, plan: Plan, vertex: Vertex, keys: KeyRange) -> None:
        self.plan = plan
        self.vertex = vertex
        self.keys = keys
        self.position = 0
        self.watermark = BEFORE_ALL
        self.ended = False
        self.cuts = Cuts(plan.cut_every)
        self.counts = Counts(len(keys))
        self.outlets = Outlets(plan, vertex, keys)

    @property
    def load(self) -> np.ndarray:
        """int64 [R]: the records it has taken so far, by key group of its range."""
        return self.counts.by_group(IN)

    def open(self) -> None:
        """Make ready for the first epoch."""
        self.outlets.open()

    def publish(self, taken: Taken) -> Header:
        """The next epoch."""
        epoch = self.position + 1
        self.watermark = max(self.watermark, taken.watermark)
        cut = self.cuts.due(epoch)
        header = Header(epoch, self.keys, self.watermark, cut, taken.ended)
        self.counts.add(IN, taken.offsets)
        self.outlets.emit([Emission(taken.rows, taken.offsets, None)], header, self.counts)
        if cut:
            self.cuts.take(epoch)
        self.position = epoch
        self.ended = taken.ended
        return header

    def commit(self, epoch: int, most: int | None = None) -> bool:
        """As `Instance.commit`."""
        return self.outlets.trim(epoch, most)


class Instance:
    """An instance of a keyed operator or a sink."""

    def __init__(self, plan: Plan, vertex: Vertex, keys: KeyRange, sink: Any = None) -> None:
        self.plan = plan
        self.vertex = vertex
        self.keys = keys
        self.sink = sink
        self.position = 0
        self.watermark = BEFORE_ALL
        self.ended = False
        self.cuts = Cuts(plan.cut_every)
        self.counts = Counts(len(keys))
        self.feeds = feeds_of(vertex)
        self.inlets = {e.id: Inlet(plan.groups) for e in vertex.inputs}
        self.checksums = Checksums(plan) if plan.check else None
        self.logic: Logic | None = logic_of(vertex.spec, plan) if vertex.spec is not None else None
        self.outlets = Outlets(plan, vertex, keys)
        outputs = vertex.spec.outputs if vertex.spec is not None else ()
        self._nothing = [nothing(schema, len(keys)) for schema in outputs]

    @property
    def load(self) -> np.ndarray:
        """int64 [R]: the records it has taken so far, by key group of its range."""
        return self.counts.by_group(IN)

    def open(self) -> None:
        """Make ready for the first epoch: load references, set the alarms of restored rows; at the
        beginning, make room for those that are expected."""
        if self.logic is not None:
            self.logic.open(self.keys)
            if not self.position and (rows := self.plan.rows.get(self.vertex.id)):
                self.logic.table.make_room(rows * len(self.keys) // self.plan.groups, self.keys)
        self.outlets.open()

    def receive(self, edge: int, piece: Piece) -> bool:
        """Take a piece; whether it was new.

        Raises:
            JobError: in checking mode, it differs from a copy that came before.
        """
        if self.checksums is not None:
            self.checksums.compare(edge, piece)
        return self.inlets[edge].receive(piece)

    def ready(self) -> bool:
        """Whether all pieces of the next epoch are there."""
        if self.ended:
            return False
        epoch = self.position + 1
        for inlet in self.inlets.values():  # noqa: SIM110  asked for at each piece that comes
            if not inlet.ready(epoch):
                return False
        return True

    def step(self) -> Header:
        """Apply the next epoch, which is ready."""
        epoch = self.position + 1
        pieces = {edge: inlet.apply(epoch) for edge, inlet in self.inlets.items()}
        headers = [p.header for ps in pieces.values() for p in ps]
        before, self.watermark = (
            self.watermark,
            max(self.watermark, min(h.watermark for h in headers)),
        )
        ended = all(inlet.finished for inlet in self.inlets.values())
        cut = any(h.cut for h in headers if h.epoch == epoch)
        header = Header(epoch, self.keys, NEVER if ended else self.watermark, cut, ended)
        if self.logic is None:
            self._write(pieces, epoch)
            if (cut or ended) and hasattr(self.sink, "prepare"):
                self._guard("prepare", lambda: self.sink.prepare(epoch))
        else:
            self._apply(self.logic, pieces, header, before)
        if cut:
            self.cuts.take(epoch)
        self.position = epoch
        self.ended = ended
        return header

    def _apply(
        self, logic: Logic, pieces: dict[int, list[Piece]], header: Header, before: int
    ) -> None:
        spec = self.vertex.spec
        assert spec is not None
        given = assemble(self.feeds, pieces, spec.inputs, self.keys, spec.order_by)
        head, late = [*self._nothing], None
        if len(given):
            output = logic.process(given, header.epoch, before)
            head, late = emissions(output), output.late
            self.counts.add(IN, given.offsets)
        fired = logic.fire(self.keys, header.epoch, header.watermark, last=header.ended)
        if fired is not None:
            head = two_phases(head, emissions(fired))
        if spec.window is not None:
            too_late = [late_emission(late, given, t, s) for t, s in enumerate(spec.inputs)]
            for e in too_late if late is not None else ():
                self.counts.add(LATE, e.offsets)
            head += too_late
        self.outlets.emit(head, header, self.counts)

    def _write(self, pieces: dict[int, list[Piece]], epoch: int) -> None:
        """Hand a sink what came in, one batch per record type."""
        from raystream.api.batch import Batch

        for t, (_, name) in enumerate(self.outlets.counted):
            mine = {e.id: pieces[e.id] if e.type == t else [] for e in self.vertex.inputs}
            given = assemble(self.feeds, mine, self.vertex.schemas, self.keys, None)
            rows = given.columns[t]
            if not len(rows):
                continue
            rows = rows if given.where is None else rows.take(given.where)
            self.counts.add(IN, given.offsets)
            self.counts.add(name, given.offsets)
            self._guard(
                "write",
                lambda rows=rows: self.sink.write(epoch, self.keys, Batch._of(rows.ranked(None))),
            )

    def goes_on_from(self, cut: int) -> int:
        """The epoch from which a sink that was put into the place of one at a cut goes on: that, or
        its last, if it ended before and was told of nothing since."""
        return min(cut, self.position) if self.ended else cut

    def open_sink(self, context: SinkContext) -> None:
        """Tell the sink, if this is one, before its first write."""
        if hasattr(self.sink, "open"):
            self._guard("open", lambda: self.sink.open(context))

    def close_sink(self) -> None:
        """Tell the sink, if this is one, after its last commit."""
        if hasattr(self.sink, "close"):
            self._guard("close", self.sink.close)

    def commit(self, epoch: int, most: int | None = None) -> bool:
        """Nobody goes back behind the cut at `epoch` while the cluster lives. `most`: see
        `Outlets.trim`."""
        if self.checksums is not None:
            self.checksums.forget(epoch)
        return self.outlets.trim(epoch, most)

    def show(self, epoch: int) -> None:
        """Nothing up to `epoch` will come again, whatever happens: a sink may show it to others."""
        if self.sink is not None:
            self._guard("commit", lambda: self.sink.commit(epoch))

    def _guard(self, doing: str, call: Any) -> None:
        try:
            call()
        except RaystreamError:
            raise
        except Exception as error:
            raise JobError(
                f"sink {self.vertex.name} could not {doing}: {type(error).__name__}: {error}",
                where=user_frame(error) or self.vertex.where,
            ) from error
