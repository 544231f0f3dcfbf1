"""`Instance`: what a driver may ask of an instance of any kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np

from raystream.dataflow.checkpoint_epochs import CheckpointEpochs
from raystream.dataflow.inlet import Inlet
from raystream.dataflow.instances.outlets import Outlets
from raystream.dataflow.pieces import Header, Piece
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.sources.epochs import EpochRows
from raystream.dataflow.upgrading.switching import Switching
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.schema.types import BEFORE_ALL, KeyRange, SinkContext
from raystream.state.counts import IN, Counts
from raystream.state.images.image import EndedRange, InputPosition
from raystream.state.tables.backend import Table


class Instance(ABC):
    """An instance of one vertex and one range of key groups. How far it has come in all its inputs
    is one integer, `position`: the last epoch that it has applied. The position advances in the
    step that changes the state (law L3)."""

    ends_by_range: ClassVar[bool] = False
    """Whether each range of the vertex ends by itself, as those of a source do. The ranges of
    another vertex all end with their input, at the same epoch."""

    def __init__(self, plan: Plan, vertex: Vertex, keys: KeyRange) -> None:
        self.plan = plan
        self.vertex = vertex
        self.keys = keys
        self.position = 0
        self.watermark = BEFORE_ALL
        self.ended = False
        self.checkpoints = CheckpointEpochs(plan.checkpoint_every)
        self.counts = Counts(len(keys))
        self.cut_off_keys: tuple[str, ...] = ()
        self.written_upto = 0
        """Of a sink: the last epoch that a predecessor has written."""
        self.inlets: dict[int, Inlet] = {}
        self.outlets = Outlets(plan, vertex, keys)
        self.switching = Switching()
        self.swapping: AbstractContextManager[Any] = nullcontext()
        """Held while it goes over to other code, which is brief. A process whose other threads look
        at the rows sets its lock."""
        self.upgraded: list[Callable[[], None]] = []
        """Called when it has gone over to other code."""

    @property
    def load(self) -> np.ndarray:
        """int64 [R]: how many records it has taken so far, by key group of its range."""
        return self.counts.by_group(IN)

    @property
    def reached(self) -> int:
        """The last epoch of which its code has made something."""
        return self.position

    @property
    def table(self) -> Table | None:
        """The rows of state; None if it keeps none."""
        return None

    def open(self) -> None:
        """Prepare for the first epoch, after a restore if there is one: load references."""
        self.outlets.open()

    def takes(self, edge: int) -> KeyRange:
        """Which key groups of an input it takes."""
        return self.keys

    def control_row(self) -> bytes:
        """The row of its control stream, as it is stored; nothing without one.

        Raises:
            StateError: it cannot be stored, or was changed.
        """
        return b""

    def begin(self, context: SinkContext) -> None:  # noqa: B027  a default
        """Open the user's sink, before the first step. Other kinds have nothing to open."""

    def goes_on_from(self, checkpoint: int) -> int:
        """The epoch that a sink is told it goes on from, when it was restored at `checkpoint`."""
        return checkpoint

    @abstractmethod
    def receive(self, edge: int, piece: Piece) -> bool:
        """Take a piece of an input; whether it was new.

        Raises:
            JobError: in checking mode, the piece differs from a copy that came before.
        """

    @abstractmethod
    def ready(self) -> bool:
        """Whether the next epoch can be applied as far as the input goes. A source has one until it
        ends, though its rows may still have to be read."""

    def runs(self, version: CodeVersion | None) -> None:
        """It was made with the code of this version; None: with the one that the job began with."""
        if version is not None:
            self.switching.version = self.outlets.code = version.number

    def _may_pass(self) -> bool:
        """Whether it may apply the next epoch, as far as versions of the code go. It goes over to
        another version if that makes the next epoch."""
        if self.switching.holds(self.position, self.reached):
            return False
        while self.switching.due(self.position):
            version = self.switching.next()
            for inlet in self.inlets.values():
                inlet.go_over(version.number)
            self._upgrade(version.of(self.vertex), version.number)
            for told in self.upgraded:
                told()
        return True

    def _upgrade(self, vertex: Vertex, number: int) -> None:
        """Go over to other code of the same vertex, version `number`, between two epochs."""
        with self.swapping:
            self.vertex = vertex
            self.outlets.upgrade(vertex, number)

    def end_of_step(self, after: int, upto: int) -> int:
        """The epoch at which a step of a source ends that begins after one epoch, and could go on
        to another, because no epoch before has rows."""
        return self.switching.stop(after, self.checkpoints.stop(after, upto))

    @abstractmethod
    def step(self, rows: EpochRows | None = None) -> Header:
        """Apply the next epoch, or a run of epochs in which nothing is read, closed or due.

        Args:
            rows: what a source has read for this epoch; None for every other kind.
        """

    def trim(self, committed: int, most: int | None = None) -> bool:
        """Drop what only a restore before the checkpoint `committed` would need; nobody goes back
        behind it while the cluster lives.

        Args:
            most: how many epochs of each log to drop at most.

        Returns whether all of it is dropped.
        """
        return self.outlets.trim(committed, most)

    def publish(self, epoch: int) -> None:  # noqa: B027  a default
        """Nothing up to `epoch` will come again, whatever fails: a sink may show it to others."""

    def finished(self, committed: int, published: int) -> bool:
        """Whether all its work is done: its last epoch is committed, and of a sink published.

        Args:
            committed: the newest committed checkpoint. published: what sinks may show.
        """
        return self.ended and committed >= self.position

    def close(self) -> None:  # noqa: B027  a default
        """Close the user's sink, after its last commit. Other kinds have nothing to close."""

    # ------------------------------------------------------------ checkpoints

    def input_ends(self) -> dict[int, tuple[EndedRange, ...]]:
        """By edge the ranges of its producer that have ended by now, if there are any."""
        found = {
            edge: tuple(
                sorted(
                    EndedRange(p.header.epoch, *p.header.keys)
                    for p in inlet.ended
                    if p.header.epoch <= self.position
                )
            )
            for edge, inlet in self.inlets.items()
        }
        return {edge: ranges for edge, ranges in found.items() if ranges}

    def stand(self, checkpoint: int, at: InputPosition) -> None:
        """Go on after the epoch `checkpoint`, from where the input was then."""
        self.position = self.checkpoints.begun = checkpoint
        self.watermark = at.watermark
        self.ended = at.ended
        self.counts = Counts(len(self.keys), at.counts)
        self.outlets.times.stand(at.counts)
        for log in self.outlets.logs.values():
            log.next = checkpoint + 1
