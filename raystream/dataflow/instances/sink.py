"""An instance of a sink: it hands the user's sink what came in, and tells it what is committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from raystream.api.batch import Batch
from raystream.api.connectors import Sink
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.order import assemble
from raystream.dataflow.pieces import Header, Piece
from raystream.dataflow.plan import Plan, Vertex
from raystream.errors import JobError, RaystreamError, user_frame, what_was_raised
from raystream.schema.blocks import folded
from raystream.schema.columns import Columns
from raystream.schema.types import KeyRange, SinkContext
from raystream.state.counts import IN


class SinkInstance(ReceivingInstance):
    """Writes epochs to a sink of the user's.

    Args:
        sink: that of this instance alone; without one, that of the vertex.
    """

    def __init__(self, plan: Plan, vertex: Vertex, keys: KeyRange, sink: Any = None) -> None:
        super().__init__(plan, vertex, keys)
        self.sink: Sink[Any] = vertex.sink if sink is None else sink
        self.written: tuple[tuple[KeyRange, int], ...] = ()
        """What a predecessor has written: ranges of key groups, each with its last epoch."""
        self._told_of_ends = type(self.sink).end_epoch is not Sink.end_epoch

    def begin(self, context: SinkContext) -> None:
        """Open the user's sink, before its first write."""
        self._call("open", lambda: self.sink.open(context))
        self._call("open", lambda: self._skip(self.sink.already_there()))

    def _skip(self, written: Sequence[tuple[KeyRange, int]]) -> None:
        """Write nothing again that is there."""
        self.written = tuple(sorted((KeyRange(*keys), epoch) for keys, epoch in written))
        self.written_upto = max((epoch for _, epoch in self.written), default=0)

    def goes_on_from(self, checkpoint: int) -> int:
        """The epoch that the sink goes on from: the checkpoint, or its last one if it ended before
        and was told of nothing since."""
        return min(checkpoint, self.position) if self.ended else checkpoint

    def _apply(self, pieces: dict[int, list[Piece]], header: Header, before: int) -> None:
        if not self._write_one(pieces, header):
            self._write(pieces, header.epoch)
        if self._told_of_ends:
            more = not header.ended and self._at_hand(header.epoch + 1)
            self._call("end an epoch", lambda: self.sink.end_epoch(header.epoch, more=more))
        if header.checkpoint or header.ended:
            self._call("prepare", lambda: self.sink.prepare(header.epoch))

    def _write_one(self, pieces: dict[int, list[Piece]], header: Header) -> bool:
        """As `_write` of one piece of one record type, in few steps. False, and nothing is written,
        where an epoch is more than that."""
        epoch, edge = header.epoch, self._alone
        if edge is None or len(self.outlets.counted) > 1 or header.epochs > 1:
            return False
        (piece, *more) = pieces[edge]
        if more or not piece.rows.length or epoch <= self.written_upto:
            return False
        self.counts.add(IN, piece.offsets)
        self.counts.add(self.outlets.counted[0][1], piece.offsets)
        batch = Batch._of(piece.rows)
        self._call("write", lambda: self.sink.write(epoch, self.keys, batch))
        return True

    def _write(self, pieces: dict[int, list[Piece]], epoch: int) -> None:
        """Hand over one batch per record type."""
        if not any(piece.rows.length for ps in pieces.values() for piece in ps):
            return
        for t, (_, name) in enumerate(self.outlets.counted):
            mine = {e.id: pieces[e.id] if e.type == t else [] for e in self.vertex.inputs}
            given = assemble(self.feeds, mine, self.vertex.schemas, self.keys, None)
            rows = given.columns[t]
            if not len(rows):
                continue
            rows = rows if given.where is None else rows.take(given.where)
            totals = folded(given.offsets, len(self.keys))
            self.counts.add(IN, totals)
            self.counts.add(name, totals)
            for each, part, offsets in self._by_epoch(epoch, rows, given.offsets):
                for keys, some in self._unwritten(each, part, offsets):
                    self._call(
                        "write",
                        lambda at=each, keys=keys, some=some: self.sink.write(
                            at, keys, Batch._of(some.ranked(None))
                        ),
                    )

    def _by_epoch(
        self, epoch: int, rows: Columns, offsets: np.ndarray
    ) -> Iterable[tuple[int, Columns, np.ndarray]]:
        """The epochs of a step that have rows: for each its number, rows and offsets.

        Args:
            epoch: the last epoch of the step.
            offsets: int64 [E * R + 1], for E epochs and the R key groups of the instance.
        """
        groups = len(self.keys)
        if len(offsets) == groups + 1:
            return [(epoch, rows, offsets)]
        begins = offsets[::groups].tolist()
        first = epoch - len(begins) + 2
        return (
            (first + i, rows.slice(lo, hi), offsets[i * groups : (i + 1) * groups + 1] - lo)
            for i, (lo, hi) in enumerate(pairwise(begins))
            if hi > lo
        )

    def _unwritten(
        self, epoch: int, rows: Columns, offsets: np.ndarray
    ) -> Iterator[tuple[KeyRange, Columns]]:
        """The rows of an epoch that no predecessor has written, by range."""
        if epoch > self.written_upto:
            yield self.keys, rows
            return
        lo = self.keys.lo
        for keys in _without(self.keys, [k for k, upto in self.written if epoch <= upto]):
            some = rows.slice(int(offsets[keys.lo - lo]), int(offsets[keys.hi - lo]))
            if len(some):
                yield keys, some

    def _at_hand(self, epoch: int) -> bool:
        """Whether all pieces of an epoch are there."""
        return all(inlet.ready(epoch) for inlet in self.inlets.values())

    def publish(self, epoch: int) -> None:
        """Let the sink commit what it wrote up to `epoch`: nothing of that will come again."""
        self._call("commit", lambda: self.sink.commit(epoch))

    def finished(self, committed: int, published: int) -> bool:
        """Whether the output of its last epoch is published: then the work of a sink is done."""
        return self.ended and published >= self.position

    def close(self) -> None:
        """Close the user's sink, after its last commit."""
        self._call("close", self.sink.close)

    def _call(self, doing: str, call: Any) -> None:
        try:
            call()
        except RaystreamError as error:
            error.where = error.where or self.vertex.where
            raise
        except Exception as error:
            could_not = f"sink {self.vertex.name} could not {doing}"
            raise JobError(
                f"{could_not}: {what_was_raised(error)}",
                where=user_frame(error) or self.vertex.where,
                bare=f"{could_not}: {type(error).__name__}",
            ) from error


def _without(keys: KeyRange, others: Iterable[KeyRange]) -> Iterator[KeyRange]:
    """What is left of a range without others, which ascend and do not overlap each other."""
    at = keys.lo
    for other in others:
        if at < other.lo:
            yield KeyRange(at, min(other.lo, keys.hi))
        at = max(at, other.hi)
    if at < keys.hi:
        yield KeyRange(at, keys.hi)
