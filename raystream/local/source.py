"""How the sources of a job in one process read."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from raystream.dataflow.instances.source import SourceInstance
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.register import Boundary
from raystream.dataflow.sources.arrival import Arrival, reader_of
from raystream.dataflow.sources.arrival_split import ArrivalSplit
from raystream.dataflow.sources.epochs import EndedSource, EpochRows, Positions
from raystream.dataflow.sources.recorded import Recorded
from raystream.dataflow.sources.split_reader import SplitReader, tell_end
from raystream.dataflow.tenure import Tenure
from raystream.local.several import until
from raystream.schema.types import KeyRange
from raystream.state.images.image import Image


class SplitFeed(Protocol):
    """Reads a split on a thread of its own, so that a silent split does not stop the job."""

    @property
    def waiting(self) -> bool:
        """Whether there is something to take."""

    @property
    def done(self) -> bool:
        """Whether the split was read to its end and all of it was handed out."""

    @property
    def silent(self) -> float:
        """For how many seconds nothing has come."""

    def arrived(self, seconds: float = 0.0) -> list[Any]:
        """The arguments of `ArrivalSplit.add` for the batches that were read since the last call;
        waits up to this long for one."""

    def stop(self) -> None:
        """End the thread."""


MakeFeed = Callable[[SplitReader], SplitFeed]
"""Begins to read a split on a thread of its own."""
ARRIVE_SECONDS = 0.5
"""How long a read waits for a batch that an earlier reader of the split has had."""

Ends = dict[tuple[str, int], Boundary]
"""By split and epoch where it ends, for sources that are cut by arrival."""


class LocalSource:
    """A source instance and what reads for it.

    Args:
        boundaries: where epochs end, if they are cut by arrival; new ones are added.
        images: of parts of its range, from which it goes on.
        index: of the instance among those of its vertex.
        feed: begins to read a split that may be silent; None: such a split is waited for.
        writer: see `Arrival`.
        committed: the checkpoint from which the job goes on. A source that had ended before it ends
            once more after it.
    """

    def __init__(
        self,
        plan: Plan,
        vertex: Vertex,
        keys: KeyRange,
        boundaries: Ends,
        rng: random.Random | None,
        images: Sequence[Sequence[Image]] = (),
        index: int = 0,
        feed: MakeFeed | None = None,
        writer: str = "the job",
        committed: int = 0,
    ) -> None:
        self.machine = SourceInstance(plan, vertex, keys)
        self.tenure: Tenure[Any] = Tenure(
            self.machine, index=index, committed=committed, chains=images or None, settles=False
        )
        input_position = self.tenure.input_position
        positions = None if input_position is None else input_position.splits
        self.boundaries = boundaries
        self.rng = rng
        self._several = 0
        """The last epoch of a step of several epochs with rows; 0 before the first such step."""
        self.recorded: Recorded | EndedSource | None = None
        self.arrival: Arrival | None = None
        self.readers: list[SplitReader] = []
        if input_position is not None and input_position.ended:
            self.recorded = EndedSource(vertex, keys, input_position.splits)
        elif plan.clock is not None:
            taken = self.machine.position
            self.recorded = Recorded(plan, vertex, keys, taken=taken, positions=positions)
        else:
            self.arrival = Arrival(plan, vertex, keys, positions, writer)
            self.readers = [reader_of(vertex, s) for s in self.arrival.splits]
        self.feeds: list[SplitFeed] = []
        if feed is not None and may_be_silent(vertex):
            self.feeds = [feed(reader) for reader in self.readers]

    def again(self, image: Image | None) -> LocalSource:
        """Another source of the same range. It goes on from a checkpoint, and its epochs end where
        those of this one did."""
        machine = self.machine
        images = () if image is None else [[image]]
        again = LocalSource(
            machine.plan, machine.vertex, machine.keys, self.boundaries, None, images, writer=""
        )
        again.machine.checkpoints.together = machine.checkpoints.together
        return again

    def positions(self) -> Positions:
        """Where the splits are, after the last epoch."""
        reading = self.recorded or self.arrival
        assert reading is not None
        return reading.positions()

    def read_again(self, checkpoint: int) -> None:
        """Read again what was published up to a checkpoint, as a new instance without images does.

        A range that has ended by then says so once more: other ranges have not heard of it.
        """
        while self.machine.position < checkpoint:
            self.step(checkpoint)
        self.machine.ended = False
        self.machine.outlets.trim(checkpoint)

    def quiet_until(self) -> int:
        """The last epoch before the next one in which it may have something."""
        epoch = self.machine.position + 1
        return epoch if self.recorded is None else self.recorded.quiet_until(epoch)

    def several_until(self) -> int:
        """The last epoch of the next step, where several epochs with rows may be one."""
        machine, recorded = self.machine, self.recorded
        if not isinstance(recorded, Recorded):
            return machine.position + 1
        self._several = until(recorded, machine.position, machine.plan.checkpoint_every)
        return self._several

    def step(self, upto: int = 0) -> None:
        """Publish the next epoch.

        Args:
            upto: the last epoch of the step: epochs without rows may be published together, and
                epochs with rows up to the one that `several_until` has just returned.
        """
        epoch = self.machine.position + 1
        if isinstance(self.recorded, Recorded):
            if epoch < upto == self._several:
                self._publish(self.recorded.take_several(epoch, upto))
                return
            if upto > epoch:
                upto = min(upto, self.recorded.quiet_until(epoch))
            self._publish(self.recorded.take(epoch, upto))
            return
        if self.recorded is not None:
            self._publish(self.recorded.take(epoch))
            return
        assert self.arrival is not None
        boundaries = [self._boundary(epoch, i) for i in range(len(self.arrival.splits))]
        before = [(split.acknowledged, split.ended) for split in self.arrival.live]
        self._publish(self.arrival.take(boundaries))
        vertex = self.machine.vertex
        for split, reader, (acknowledged, ended) in zip(
            self.arrival.live, self.readers, before, strict=False
        ):
            if split.acknowledged is not None and split.acknowledged != acknowledged:
                reader.acknowledge(split.acknowledged)
            if split.ended and not ended:
                tell_end(vertex.source, vertex.name, split.name)

    def _publish(self, rows: EpochRows) -> None:
        header = self.machine.step(rows)
        if header.checkpoint or header.ended:
            self.tenure.note(self.positions())

    def _boundary(self, epoch: int, i: int) -> Boundary:
        """Where an epoch of the i-th split ends; the split has been read up to there."""
        assert self.arrival is not None
        split, at = self.arrival.splits[i], (self.arrival.splits[i].registered, epoch)
        if at in self.boundaries and self.arrival.live:
            return self.boundaries[at]
        self._arrive(i)
        silent = self.feeds[i].silent if self.feeds else 0.0
        held = self.boundaries.setdefault(at, split.wanted(silent))
        while not split.reaches(held) and not split.done:
            self._arrive(i, again=True)
        return held

    def _arrive(self, i: int, *, again: bool = False) -> None:
        """Take what has come of the i-th split. again: wait for something."""
        assert self.arrival is not None
        split = self.arrival.splits[i]
        if split.done:
            return
        if self.feeds:
            _take(split, self.feeds[i], ARRIVE_SECONDS if again else 0.0)
            return
        for _ in range(1 if again or self.rng is None else self.rng.randrange(3)):
            _read(split, self.readers[i])


def end_of_step(sources: Sequence[LocalSource], *, several: bool) -> int:
    """The last epoch of the next step of sources that are at the same epoch. Without `several` no
    source has rows up to there, unless the step is one epoch.

    Args:
        several: whether several epochs with rows may be one step. There is one source then.
    """
    machine = sources[0].machine
    upto = min([source.quiet_until() for source in sources])
    if several and upto == machine.position + 1:
        upto = sources[0].several_until()
        if upto > machine.position + 1:
            return upto
    return machine.end_of_step(machine.position, upto)


def may_be_silent(vertex: Vertex) -> bool:
    """Whether this is a source whose splits may have nothing for long: a job in one process does
    not wait for them then."""
    source = vertex.source
    return vertex.epochs is not None and (
        vertex.epochs.idle is not None or source.recorded or source.waits
    )


def _take(split: ArrivalSplit, feed: SplitFeed, seconds: float = 0.0) -> None:
    """Take what has arrived, and wait up to so long for something."""
    for batch in feed.arrived(seconds):
        split.add(*batch)
    split.done = feed.done


def _read(split: ArrivalSplit, reader: SplitReader) -> None:
    """Read a batch, if there is one."""
    rows = None if split.done else reader.next()
    if rows is None:
        split.done = True
    else:
        split.add(reader.position, rows, *reader.more)
