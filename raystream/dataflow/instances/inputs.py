"""The receiving half of an instance: an inlet for each input edge, and the step."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left

from raystream.dataflow.checking import Checksums
from raystream.dataflow.inlet import Inlet
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.order import feeds_of
from raystream.dataflow.pieces import Header, Piece, lag_of, silence
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.sources.epochs import EpochRows
from raystream.dataflow.sources.idling import joint
from raystream.dataflow.sources.recorded import clock_of
from raystream.errors import InternalError
from raystream.schema.types import NEVER, KeyRange
from raystream.state.images.image import InputPosition


def no_clock(epoch: int) -> int:
    """The clock of a plan without one, which has no runs with a lag."""
    raise InternalError(f"epoch {epoch} has no time")


def greatest(parts: list[tuple[int, bool]]) -> tuple[int, bool]:
    """The watermark of an edge that follows the greatest time of all ranges of its producer, and
    whether all of these are idle. parts: the same of each range."""
    return max([watermark for watermark, _ in parts]), all(idle for _, idle in parts)


class ReceivingInstance(Instance):
    """An instance with inputs. Each kind decides what it does with an epoch of them."""

    def __init__(self, plan: Plan, vertex: Vertex, keys: KeyRange) -> None:
        super().__init__(plan, vertex, keys)
        self.feeds = feeds_of(vertex)
        self.inlets = {e.id: Inlet(plan.groups) for e in vertex.inputs}
        self._alone = vertex.inputs[0].id if len(vertex.inputs) == 1 else None
        """The id of the input edge, if there is only one."""
        self.checksums = Checksums(plan) if plan.check else None
        self._greatest = {e.id for e in vertex.inputs if e.greatest}
        self._clock = no_clock if plan.clock is None else clock_of(plan)

    def receive(self, edge: int, piece: Piece) -> bool:
        """Take a piece of an input; whether it was new.

        Raises:
            JobError: in checking mode, the piece differs from a copy that came before.
        """
        if self.checksums is not None:
            self.checksums.compare(edge, piece)
        return self.inlets[edge].receive(piece)

    def ready(self) -> bool:
        """Whether all pieces of the next epoch are there."""
        if self.ended or (self.switching.told and not self._may_pass()):
            return False
        epoch = self.position + 1
        for inlet in self.inlets.values():  # noqa: SIM110  asked for at each piece that comes
            if not inlet.ready(epoch):
                return False
        return True

    def step(self, rows: EpochRows | None = None) -> Header:
        """Apply the next epoch, which is ready. If it is empty, apply with it all that follow and
        are known to be empty, before the first in which something is due here."""
        epoch, before = self.position + 1, self.watermark
        if (only := self._only(epoch)) is not None:
            return self._step_of_one(only, before)
        inlets = self.inlets
        last = min([inlet.reach(epoch) for inlet in inlets.values()])
        if last > epoch and self.switching.told:
            last = self.switching.stop(epoch - 1, last)
        if last > epoch:
            last = self._stop(epoch, last)
        pieces = {edge: inlet.apply(epoch, last) for edge, inlet in inlets.items()}
        watermark, idle = self._watermark_after(last, pieces)
        headers = [p.header for ps in pieces.values() for p in ps]
        timing = [p.header for ps in self._timing(pieces).values() for p in ps]
        self.watermark = max(before, watermark)
        ended = all(inlet.finished for inlet in inlets.values())
        checkpoint = any(h.checkpoint for h in headers if h.epoch == last)
        header = Header(
            last,
            self.keys,
            NEVER if ended else self.watermark,
            checkpoint,
            ended,
            idle,
            last - epoch + 1,
            lag_of(timing) if last > epoch else None,
        )
        self._apply(pieces, header, before)
        if checkpoint:
            self.checkpoints.take(last)
        self.checkpoints.passed(epoch, last - checkpoint)
        self.position = last
        self.ended = ended
        return header

    def _only(self, epoch: int) -> Piece | None:
        """The piece of the next epoch, if one piece is the whole input; otherwise None. One piece
        needs no comparing and no assembling, and most epochs between two instances have one."""
        if self._alone is None:
            return None
        return self.inlets[self._alone].apply_only(epoch)

    def _step_of_one(self, piece: Piece, before: int) -> Header:
        """Apply an epoch that came as one piece. before: the watermark before this epoch."""
        came, edge = piece.header, self._alone
        assert edge is not None
        epoch, ended = came.epoch, self.inlets[edge].finished
        if came.watermark > before:
            self.watermark = came.watermark
        watermark = NEVER if ended else self.watermark
        header = Header(epoch, self.keys, watermark, came.checkpoint, ended, came.idle)
        self._apply({edge: [piece]}, header, before)
        if came.checkpoint:
            self.checkpoints.take(epoch)
        else:
            self.checkpoints.passed(epoch, epoch)
        self.position = epoch
        self.ended = ended
        return header

    def _timing(self, pieces: dict[int, list[Piece]]) -> dict[int, list[Piece]]:
        """Those of the pieces that the watermark follows, by edge."""
        return pieces

    def _watermark_after(self, epoch: int, pieces: dict[int, list[Piece]]) -> tuple[int, bool]:
        """The watermark of the input after an epoch that all of these pieces are of, and whether
        all of the input is idle then. pieces: by edge."""
        parts = []
        for edge, ps in pieces.items():
            of_edge = [(p.header.watermark_after(epoch, self._clock), p.header.idle) for p in ps]
            parts += [greatest(of_edge)] if edge in self._greatest else of_edge
        return joint(parts)

    def _stop(self, epoch: int, last: int) -> int:
        """The last epoch of a step from `epoch` on, up to `last`. Unless these are several epochs
        with rows, all are empty, and what is due in one of them is emitted in a step of its own."""
        due = self._next_due()
        pieces = {edge: inlet.tiled[epoch] for edge, inlet in self.inlets.items()}
        if any(piece.rows.length for ps in pieces.values() for piece in ps):
            return last  # several epochs with rows are one step: their piece is not divided
        if due > self._watermark_after(last, pieces)[0]:
            return last
        epochs = range(epoch, last)
        before = bisect_left(epochs, due, key=lambda e: self._watermark_after(e, pieces)[0])
        return max(epoch, epoch + before - 1)

    def _next_due(self) -> int:
        """The watermark at which the instance emits something of its own accord."""
        return NEVER

    @abstractmethod
    def _apply(self, pieces: dict[int, list[Piece]], header: Header, before: int) -> None:
        """Do with an epoch what this kind does.

        Args:
            pieces: by edge, of this epoch. header: of the epoch that goes out.
            before: the watermark at the end of the epoch before.
        """

    def trim(self, committed: int, most: int | None = None) -> bool:
        """As `Instance.trim`; also forgets checksums up to that checkpoint."""
        if self.checksums is not None:
            self.checksums.forget(committed)
        return super().trim(committed, most)

    def stand(self, checkpoint: int, at: InputPosition) -> None:
        """As `Instance.stand`; also tells the inlets which ranges of their producers have ended."""
        super().stand(checkpoint, at)
        for edge in self.vertex.inputs:
            inlet = Inlet(self.plan.groups, checkpoint, self.switching.version)
            inlet.ended = [
                silence(e.epoch, KeyRange(e.lo, e.hi), edge.schema, len(self.takes(edge.id)))
                for e in at.inlets.get(edge.id, ())
            ]
            self.inlets[edge.id] = inlet
