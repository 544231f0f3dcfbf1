"""What sources of a running job have read, read again by a fork: so that functions that run inside
a source are compared, too.

The edges of a job carry what such functions have made. What they were given is the same whoever
reads it, where epochs are cut by event time and the source can be read again: the split, the
position in the checkpoint and the clock of the job say it all. A fork follows the job: it reads
what belongs to the epochs that have come on the edges, in the same steps, and no more. It compares
the rows that the first version makes of that with those that came, by a digest, so a file that was
changed, or other code than that of the job, is noticed.

Epochs by arrival end where the register says, which the edges do not tell. So are those of all that
cannot be read twice. There the functions are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.sources.epochs import EpochRows
from raystream.errors import JobError, RaystreamError, what_was_raised
from raystream.local.source import LocalSource
from raystream.schema.types import KeyRange
from raystream.state.images.image import Image


def is_read_again(plan: Plan, vertex: Vertex) -> bool:
    """Whether a fork reads this vertex again: functions run inside it, and its epochs are cut by
    time."""
    return vertex.kind == "source" and bool(vertex.fused) and plan.clock is not None


class ReadStep(NamedTuple):
    """What a source has read of an epoch, or of several in one step."""

    rows: EpochRows
    checkpoint: bool
    """Whether the job takes a checkpoint at its end."""


ReadSteps = Mapping[int, Sequence[ReadStep]]
"""By source vertex what was read."""


class ReadAgain:
    """Reads sources of a job again, from its checkpoint on.

    Args:
        plan: of the flow that the job runs. The splits of what is read are added.
        images: of the sources.
    """

    def __init__(self, plan: Plan, images: Mapping[str, Sequence[Sequence[Image]]]) -> None:
        self._plan = plan
        self.left: dict[int, str] = {}
        """By vertex why it cannot be read here."""
        self._again: dict[int, _Repeating] = {}
        for v in plan.vertices:
            if is_read_again(plan, v):
                try:
                    self._again[v.id] = _reader(plan, v, images.get(v.name, ()))
                except RaystreamError as error:
                    self.left[v.id] = error.message
                except Exception as error:  # of a user's source
                    self.left[v.id] = what_was_raised(error)

    @property
    def vertices(self) -> frozenset[int]:
        """The sources that are read again."""
        return frozenset(self._again)

    def hand_splits(self, plan: Plan) -> None:
        """Let another version have the same splits."""
        for vertex in self._again:
            plan.splits[vertex] = self._plan.splits[vertex]
            plan.starts[vertex] = self._plan.starts[vertex]

    def why_not(self, vertex: Vertex) -> str:
        """Why a source is not read again, in words."""
        if vertex.id in self.left:
            return f"it cannot be read here: {self.left[vertex.id]}"
        return "its epochs are cut by arrival"

    def read(self, pieces: Iterable[tuple[int, Piece]]) -> ReadSteps:
        """What belongs to the epochs of these pieces of the job.

        Raises:
            JobError: a source cannot be read any more.
        """
        ends: dict[int, dict[int, bool]] = {v: {} for v in self._again}
        for edge, piece in pieces:
            at = ends.get(self._plan.edges[edge].producer)
            if at is not None:
                epoch = piece.header.epoch
                at[epoch] = at.get(epoch, False) or piece.header.checkpoint
        return {v: self._steps(v, at) for v, at in ends.items()}

    def _steps(self, vertex: int, ends: Mapping[int, bool]) -> list[ReadStep]:
        reader = self._again[vertex]
        try:
            return [s for epoch in sorted(ends) for s in reader.upto(epoch, ends[epoch])]
        except RaystreamError as error:
            name = self._plan.vertices[vertex].name
            said = f"{name} cannot be read again: {error.message}"
            raise JobError(said, hint=error.hint) from None


class _Repeating(LocalSource):
    """A source that hands out what it reads, and emits nothing."""

    def upto(self, epoch: int, checkpoint: bool) -> list[ReadStep]:
        """The steps up to an epoch."""
        self._made: list[EpochRows] = []
        while self.machine.position < epoch and not self.machine.ended:
            self.step(epoch)
        last = len(self._made) - 1
        return [ReadStep(rows, checkpoint and i == last) for i, rows in enumerate(self._made)]

    def _publish(self, rows: EpochRows) -> None:
        self._made.append(rows)
        self.machine.position += rows.epochs
        self.machine.ended = rows.ended


def _reader(plan: Plan, vertex: Vertex, images: Sequence[Sequence[Image]]) -> _Repeating:
    source: Any = vertex.source
    listed = list(source.splits())
    known = {name for c in images for name in c[-1].header.input_position.splits}
    if images:
        listed = [split for split in listed if split.name in known]  # files may have come since
        if gone := known - {split.name for split in listed}:
            raise JobError(f"{min(gone)} is gone")
    plan.splits[vertex.id] = [split.name for split in listed]
    plan.starts[vertex.id] = {split.name: split.begin for split in listed if split.begin}
    whole = KeyRange(0, plan.groups)
    committed = max((c[-1].header.checkpoint for c in images), default=0)
    return _Repeating(plan, vertex, whole, {}, None, images, committed=committed)
