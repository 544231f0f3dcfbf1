"""Checkpoint and restore of an instance: all that its later output depends on, as an image.

    captured = capture(instance, since)      right after a step, on the thread that computes
    data = captured.image().encode()         anywhere, later, though the instance goes on, or
    for part in captured.parts(nbytes): ...  one after the other, of consecutive ranges

    install(instance, chains)                before `open()`: per part of its range the images
                                             that are needed

An image holds the rows and the instance's position in its input (`InputPosition`). It does not hold
what the instance has received and not yet applied, nor its log: both are made again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from raystream.api.row_shapes import shape_of
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.plan import Vertex
from raystream.errors import InternalError, StateError, Where
from raystream.schema.types import KeyRange
from raystream.state.counts import LEFT, EncodedCounts
from raystream.state.images.chain import FULL, Chain, CheckpointRequest, Size
from raystream.state.images.image import Image, ImageHeader, InputPosition, check_whole
from raystream.state.images.partition import follows, part_of, together
from raystream.state.images.row_shape import RowShape
from raystream.state.images.upgrade import upgraded
from raystream.state.tables.backend import WHOLE, Guard, NoRows, PendingRows

CARRIED_BYTES = 8 << 20
"""About how many bytes of rows go over to other code at a time."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What changed since the base, copied or in view. `image` or `parts` make the image of it, on
    any thread (with the table's guard), and only once: they give the memory of the copy away."""

    header: ImageHeader
    taken: PendingRows | None
    """The rows that changed; None for an operator without state."""
    where: Where | None = None
    """The line of the user's code that errors name."""

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory this takes until the image is made. Any thread may ask."""
        counts = sum(len(counted) for counted in self.header.input_position.counts.values())
        return counts + (self.taken.nbytes if self.taken is not None else 0)

    def copy(self) -> None:
        """Copy what is in view, on the thread that will ask for the parts. Until that is done the
        computing thread has more work with every row that it changes. Asking for the parts copies
        it, too."""
        if self.taken is not None:
            self.taken.copy()

    def image(self) -> Image:
        """The image.

        Raises:
            StateError: a value in a Python row does not fit its field.
        """
        return next(self.parts(WHOLE))

    def parts(self, nbytes: int) -> Iterator[Image]:
        """Images of consecutive ranges that tile that of the header, each made when it is asked
        for. Of Python rows, and of an instance without rows, there is a single one.

        Args:
            nbytes: about how many bytes each image has.

        Raises:
            StateError: a value in a Python row does not fit its field.
        """
        if self.taken is None:
            yield Image(self.header, None, None)
            return
        at, whole = self.header.keys.lo, self.header.keys.hi
        with _of(self.header.operator, self.header.checkpoint, self.where):
            for end, rows, gone in self.taken.parts(nbytes):
                keys = KeyRange(at, min(end, whole))
                yield Image(part_of(self.header, keys), rows, gone)
                at = end


def capture(
    machine: Instance,
    wanted: CheckpointRequest = FULL,
    *,
    checkpoint: int | None = None,
    splits: Mapping[str, tuple[int, ...]] | None = None,
    table: str = "",
) -> Captured:
    """Copy what an instance knows at a checkpoint: the first half of an image.

    Args:
        wanted: what the image is to hold.
        checkpoint: the epoch of the checkpoint; by default the one that the instance has just
            applied. Another one is allowed only of an instance that has ended, whose state is the
            same at every later checkpoint.
        splits: of a source, for each split its key group and where to read on.
        table: the name of the table of structured rows, if the image is to name slots. Each table
            that has images in one chain has a name of its own.

    Raises:
        StateError: a value in a Python row has no stored form.
    """
    since = wanted.base
    if (
        checkpoint is not None
        and checkpoint != machine.position
        and not (machine.ended and checkpoint > since)
    ):
        raise InternalError(
            f"{machine.vertex.name} at {machine.position} was captured at {checkpoint}"
        )
    rows = machine.table
    table = table if rows is not None and rows.names_slots and not machine.ended else ""
    header = ImageHeader(
        operator=machine.vertex.name,
        shape=_shape_in_words(machine),
        groups=machine.plan.groups,
        keys=machine.keys,
        base=since,
        checkpoint=machine.position if checkpoint is None else checkpoint,
        input_position=InputPosition(
            machine.watermark,
            machine.ended,
            machine.input_ends(),
            dict(splits or {}),
            {**machine.counts.stored(), **_left(machine), **machine.outlets.times.stored()},
            _control_row(machine),
        ),
        oldest=wanted.oldest,
        table=table,
        code=machine.switching.version,
    )
    where = machine.vertex.where if machine.vertex.spec is None else machine.vertex.spec.where
    with _of(header.operator, header.checkpoint, where):
        taken = _take(machine, wanted, named=bool(table))
    return Captured(header, taken, where)


def note_rows(machine: Instance) -> None:
    """A checkpoint was captured that is to be stored: note what a successor on this node can open.

    Raises:
        StateError: the disk refuses.
    """
    if machine.table is not None and not machine.ended:
        machine.table.note(machine.vertex.name, machine.keys, machine.position)


def _control_row(machine: Instance) -> bytes:
    where = None if machine.vertex.spec is None else machine.vertex.spec.where
    with _of(machine.vertex.name, machine.position, where):
        return machine.control_row()


def next_wanted(machine: Instance, chain: Chain) -> CheckpointRequest:
    """What the next checkpoint of an instance is to hold.

    The checkpoint of an instance that has ended holds no rows: no record will come that they could
    make a difference to. They are still checked.

    Raises:
        StateError: a value in a Python row of an instance that has ended does not fit its field.
    """
    if machine.ended:
        check_state(machine, chain.stored.upto)
        return FULL
    return chain.next(rows_of(machine), sample_of(machine))


def check_state(machine: Instance, since: int) -> None:
    """Check that what an instance changed after the checkpoint `since` could be stored, although
    nothing is stored. Structured rows can always be stored.

    Raises:
        StateError: a value in a Python row does not fit its field.
    """
    if machine.table is not None:
        where = None if machine.vertex.spec is None else machine.vertex.spec.where
        with _of(machine.vertex.name, machine.position, where):
            machine.table.check(since)


@contextmanager
def _of(operator: str, epoch: int, where: Where | None) -> Iterator[None]:
    """Name the operator and the epoch in the error of a value that cannot be stored."""
    try:
        yield
    except StateError as error:
        raise StateError(
            f"{operator} keeps what cannot be stored, at the end of epoch {epoch}: {error.message}",
            where=error.where or where,
            hint=error.hint,
        ) from None


def settled(machine: Instance, checkpoint: int) -> None:
    """Forget what only deltas against older bases need: this checkpoint is stored."""
    machine.checkpoints.settle(checkpoint)
    if machine.table is not None:
        machine.table.settle(checkpoint)


def view_with(guard: Guard, machine: Instance) -> None:
    """Let other threads make images while they hold this lock; each step holds it too."""
    if machine.table is not None:
        machine.table.use_guard(guard)


def rows_of(machine: Instance) -> int:
    """How many rows of state an instance has now; any thread may ask. An instance that replaced one
    that had ended reports the rows that were left at that end."""
    if LEFT in machine.counts:
        return machine.counts.total(LEFT)
    return 0 if machine.table is None else len(machine.table)


def _left(machine: Instance) -> EncodedCounts:
    """By key group the number of rows that are left in an instance that has ended."""
    if not machine.ended or machine.table is None or LEFT in machine.counts:
        return {}
    return {LEFT: machine.table.count_by_group()[slice(*machine.keys)].tobytes()}


def sample_of(machine: Instance) -> Callable[[], np.ndarray] | None:
    """The function that samples the rows that the next image can refresh (see `Table.sample`); None
    if no row can ever be refreshed."""
    table = machine.table
    return table.sample if table is not None and table.names_slots else None


def measured(chains: Iterable[Sequence[Image]], sizes: list[Size]) -> Iterator[Sequence[Image]]:
    """The same chains. sizes: gets the size of each image of a chain, all parts of the range
    together, as far as all chains have that many."""
    for i, chain in enumerate(chains):
        these = [Size(image.nbytes, len(image)) for image in chain]
        sizes[:] = these if not i else [a.plus(b) for a, b in zip(sizes, these, strict=False)]
        yield chain


def install(
    machine: Instance,
    chains: Iterable[Sequence[Image]],
    committed: int = 0,
    *,
    since: Callable[[KeyRange], int] | None = None,
) -> InputPosition:
    """Restore a new instance from images; returns its input position.

    Args:
        chains: for each part of the instance's range the images that are needed, each a delta on
            the one before. They are gone through once, and not all are in memory at a time unless
            they are given so. The parts tile the range exactly. All chains end at one checkpoint,
            except that the chain of a source that had ended by then may end where the source did.
            The instance is restored at the newest checkpoint of all chains.
        committed: the checkpoint that the chains were asked for. A source that had ended is
            restored there.
        since: for a part of the range the checkpoint at which the table has its rows; the chains
            have newer images. None: they are whole.

    Raises:
        StateError: an image is of another operator or state, or does not apply to the one before;
            the chains leave a hole, overlap or are not of one checkpoint; or the user's `upgrade`
            failed.
    """
    newest: list[ImageHeader] = []
    if isinstance(chains, Sequence):
        _tiled(machine, [chain[-1].header for chain in chains])
    rows = _checked(machine, chains, newest, since)
    if machine.table is None:
        deque(rows, maxlen=0)
    else:
        machine.table.fill(rows)
    newest = _tiled(machine, newest)
    input_position = together([h.input_position for h in newest])
    over = input_position.ended and machine.ends_by_range
    checkpoint = (
        max(h.checkpoint for h in newest)
        if not over
        else max(committed, *(h.checkpoint for h in newest))
    )
    machine.stand(checkpoint, input_position)
    return input_position


def advance(machine: Instance, delta: Image) -> None:
    """Bring an instance to the position of its range's owner. The instance was restored by
    `install`, or holds nothing yet, and is not opened.

    Args:
        delta: what the owner changed since the instance's position; a full image for an instance
            that holds nothing yet.

    Raises:
        StateError: the delta is of another operator or state, or does not apply to what the
            instance holds.
    """
    header = delta.header
    _check(machine, delta)
    if (header.keys, header.base) != (machine.keys, machine.position):
        raise StateError(
            f"the {header} does not apply to {machine.vertex.name} {machine.keys} at"
            f" {machine.position}"
        )
    if machine.table is not None:
        if header.base:
            machine.table.apply(delta)
        else:
            machine.table.fill([[delta]])
    machine.stand(header.checkpoint, header.input_position)


def rows_for(machine: Instance, vertex: Vertex) -> Iterator[list[Image]]:
    """The rows of an instance between two epochs as those of other code of its vertex: images of
    one range after the other, each made when it is asked for.

    Raises:
        StateError: they are of another state class, which has no `upgrade`, or that failed.
    """
    for image in capture(machine).parts(CARRIED_BYTES):
        _check(machine, image, vertex)
        yield [_as_now(vertex, image)]


def _checked(
    machine: Instance,
    chains: Iterable[Sequence[Image]],
    newest: list[ImageHeader],
    since: Callable[[KeyRange], int] | None = None,
) -> Iterator[list[Image]]:
    """The images with rows, each held against the machine and the image before it. newest: gets the
    last header of each chain. since: see `install`."""
    for chain in chains:
        for i, image in enumerate(chain):
            _check(machine, image)
            if i:
                follows(_upto(chain[0], chain[i - 1]), image)
        if since is None:
            check_whole([i.header for i in chain])
        else:
            _follow_on(since, chain)
        newest.append(chain[-1].header)
        if any(i.rows is not None for i in chain):
            yield [_as_now(machine.vertex, image) for image in chain]


def _follow_on(since: Callable[[KeyRange], int], chain: Sequence[Image]) -> None:
    """Check that images are newer than the rows in a table, and build on those."""
    first, at = chain[0].header, since(chain[0].header.keys)
    if not at or (first.checkpoint > at and first.base != at):
        raise StateError(f"the {first} does not build on the rows on disk at {at}")


def _tiled(machine: Instance, headers: Iterable[ImageHeader]) -> list[ImageHeader]:
    """The newest headers of all chains, by range; together they tile the machine's range."""
    newest = sorted(headers, key=lambda h: h.keys)
    at = machine.keys.lo
    for header in newest:
        if header.keys.lo != at or header.keys.hi > machine.keys.hi:
            raise StateError(
                f"the {header} was put into an instance of {machine.keys}"
                + (f", where key groups up to {at} are there" if at > machine.keys.lo else ""),
                hint="Cut images to the parts of its range that they are to bring.",
            )
        at = header.keys.hi
    if at != machine.keys.hi:
        raise StateError(
            f"no image of {machine.vertex.name} [{at}, {machine.keys.hi}) was put into an instance"
            f" of {machine.keys}"
        )
    last = max(newest, key=lambda h: h.checkpoint)
    for header in newest:
        early = machine.ends_by_range and header.input_position.ended
        if header.checkpoint != last.checkpoint and not early:
            raise StateError(
                f"the {header} does not belong with the {last}: they are of two checkpoints"
            )
        one, two = header.input_position, last.input_position
        if not machine.ends_by_range and (one.watermark, one.ended) != (two.watermark, two.ended):
            raise StateError(
                f"the {header} does not belong with the {last}: their positions differ"
            )
    return newest


def _upto(first: Image, last: Image) -> Image:
    """The base that the images up to `last` make together, for the next delta."""
    return Image(replace(last.header, base=first.header.base), None, None)


def _check(machine: Instance, image: Image, vertex: Vertex | None = None) -> None:
    header, plan = image.header, machine.plan
    if (header.operator, header.groups) != (machine.vertex.name, plan.groups):
        raise StateError(
            f"the {header} of {header.groups} key groups was put into {machine.vertex.name},"
            f" which has {plan.groups}"
        )
    shape = _shape(machine.vertex if vertex is None else vertex)
    now = "" if shape is None else shape.fingerprint
    if header.shape == now:
        return
    hint = f"stored: {header.shape or 'none'}\n  now:    {now or 'none'}"
    if shape is not None and shape.may_take(header.shape):
        if shape.state.upgrade is not None:
            return
        hint += f"\n  {shape.upgrade_words}"
    raise StateError(
        f"the {header} holds other state than {machine.vertex.name} keeps now", hint=hint
    )


# ---------------------------------------------------------------- rows


def _shape(vertex: Vertex) -> RowShape | None:
    return None if vertex.spec is None else shape_of(vertex.spec)


def _shape_in_words(machine: Instance) -> str:
    shape = _shape(machine.vertex)
    return "" if shape is None else shape.fingerprint


def _take(machine: Instance, wanted: CheckpointRequest, *, named: bool) -> PendingRows | None:
    shape, table = _shape(machine.vertex), machine.table
    if shape is None or table is None:
        return None
    if machine.ended:
        return NoRows(shape, machine.plan.groups)
    return table.capture(wanted, machine.position, named=named)


def _as_now(vertex: Vertex, image: Image) -> Image:
    """The image in the state class of today: upgraded if it was stored by another version."""
    shape = _shape(vertex)
    if shape is None or image.header.shape == shape.fingerprint:
        return image
    return upgraded(image, shape)
