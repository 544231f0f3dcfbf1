"""Checkpoint and restore of an instance: all that its later output depends on, as an image.

    captured = capture(instance, since)      right after a step, on the thread that computes
    data = captured.image().encode()         anywhere, later, though the instance goes on, or
    for part in captured.parts(nbytes): ...  one after the other, of consecutive ranges

    install(instance, chains)                before `open()`: per part of its range the images
                                             that are needed

Beside the rows that is where the instance stands in its input (see `state.image.Standing`). What it
has received and not applied is no part of it, nor is its log: both are made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from typing import Any

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.api.windows import Session, Sliding, Tumbling
from raystream.dataflow.inlet import Inlet
from raystream.dataflow.instance import Instance, SourceInstance
from raystream.dataflow.pieces import silence
from raystream.errors import InternalError, StateError, Where
from raystream.schema.types import KeyRange
from raystream.state.chain import FULL, Chain, Size, Wanted
from raystream.state.checkpoint import (
    WHOLE,
    Shape,
    Taken,
    check_objects,
    count_objects,
    put_objects,
    take_none,
    take_objects,
)
from raystream.state.counts import LEFT, Counted, Counts
from raystream.state.image import Ended, Image, ImageHeader, Standing, check_whole
from raystream.state.objects import ObjectTable
from raystream.state.partition import follows, part_of, together
from raystream.state.rows import StructuredTable
from raystream.state.structured import Texts, count_rows, fill_rows, put_rows, take_rows
from raystream.state.upgrade import upgraded

Machine = Instance | SourceInstance


@dataclass(frozen=True, slots=True)
class Captured:
    """What changed since the base, copied or in view; `image` or `parts` make the rest of it, on
    any thread (with the table's guard). Once: the memory of what was copied is given away."""

    header: ImageHeader
    taken: Taken | None
    where: Where | None = None

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory it takes until the image is made. Any thread may ask."""
        counts = sum(len(counted) for counted in self.header.standing.counts.values())
        return counts + (self.taken.held() if self.taken is not None else 0)

    def copy(self) -> None:
        """Copy what is in view, on the thread that will ask for the parts: until that is done
        whoever computes has more to do. It is part of asking for them, and may be done before."""
        if self.taken is not None:
            self.taken.copy()

    def image(self) -> Image:
        """The image.

        Raises:
            StateError: a value in a Python row does not fit its field.
        """
        return next(self.parts(WHOLE))

    def parts(self, nbytes: int) -> Iterator[Image]:
        """Images of consecutive ranges that tile that of the header, of about so many bytes each;
        each is made when it is asked for. Of Python rows and of what has no rows there is one.

        Raises:
            StateError: a value in a Python row does not fit its field.
        """
        if self.taken is None:
            yield Image(self.header, None, None)
            return
        at, whole = self.header.keys.lo, self.header.keys.hi
        with _of(self.header.operator, self.header.cut, self.where):
            for end, rows, gone in self.taken.finish(nbytes):
                keys = KeyRange(at, min(end, whole))
                yield Image(part_of(self.header, keys), rows, gone)
                at = end


def capture(
    machine: Machine,
    wanted: Wanted = FULL,
    *,
    cut: int | None = None,
    splits: Mapping[str, tuple[int, ...]] | None = None,
    table: str = "",
) -> Captured:
    """Copy what an instance knows at the end of a cut.

    Args:
        wanted: what of it.
        cut: the epoch that the instance has just applied, unless given; an instance that has ended
            is at every later cut, too.
        splits: of a source, per split its key group and where to read on.
        table: the name of the table of structured rows, if the image is to name slots; no other
            table that has images in the same chain has it.

    Raises:
        StateError: a value in a Python row has no stored form.
    """
    since = wanted.base
    if cut is not None and cut != machine.position and not (machine.ended and cut > since):
        raise InternalError(f"{machine.vertex.name} at {machine.position} was cut at {cut}")
    table = table if isinstance(_table(machine), StructuredTable) and not machine.ended else ""
    header = ImageHeader(
        machine.vertex.name,
        _shape_in_words(machine),
        machine.plan.groups,
        machine.keys,
        since,
        machine.position if cut is None else cut,
        Standing(
            machine.watermark,
            machine.ended,
            _ends(machine) if isinstance(machine, Instance) else {},
            dict(splits or {}),
            {**machine.counts.stored(), **_left(machine)},
        ),
        wanted.oldest,
        table,
    )
    where = machine.vertex.where if machine.vertex.spec is None else machine.vertex.spec.where
    with _of(header.operator, header.cut, where):
        return Captured(header, _take(machine, wanted, named=bool(table)), where)


def next_wanted(machine: Machine, chain: Chain) -> Wanted:
    """What the next checkpoint of an instance is to hold. None of the rows of one that has ended:
    nothing comes that they could change the answer to. They are checked as ever.

    Raises:
        StateError: a value in a Python row of one that has ended does not fit its field.
    """
    if machine.ended:
        check_state(machine, chain.stored.upto)
        return FULL
    return chain.next(rows_of(machine), sample_of(machine))


def check_state(machine: Machine, since: int) -> None:
    """Check that what an instance keeps and changed after the cut `since` could be captured, where
    it is not. Structured rows hold nothing else.

    Raises:
        StateError: a value in a Python row does not fit its field.
    """
    shape, table = _shape(machine), _table(machine)
    if shape is not None and isinstance(table, ObjectTable):
        assert machine.vertex.spec is not None
        with _of(machine.vertex.name, machine.position, machine.vertex.spec.where):
            check_objects(table, shape, since)


@contextmanager
def _of(operator: str, epoch: int, where: Where | None) -> Iterator[None]:
    """Say of a value that cannot be stored whose it is."""
    try:
        yield
    except StateError as error:
        raise StateError(
            f"{operator} keeps what cannot be stored, at the end of epoch {epoch}: {error.message}",
            where=error.where or where,
            hint=error.hint,
        ) from None


def settled(machine: Machine, cut: int) -> None:
    """A cut is stored and no delta will be asked for against an older base."""
    machine.cuts.settle(cut)
    table = _table(machine)
    if table is not None:
        table.settled(cut)


def view_with(guard: AbstractContextManager[Any], machine: Machine) -> None:
    """Let images be made on other threads, with this lock; it is then held in each step."""
    logic = getattr(machine, "logic", None)
    if isinstance(table := getattr(logic, "table", None), StructuredTable):
        table.guard = guard
    for known in texts_of(logic):
        if known is not None:
            known.guard = guard


def _table(machine: Machine) -> Any:
    """What an instance keeps its rows in; None if it keeps none."""
    return getattr(getattr(machine, "logic", None), "table", None)


def rows_of(machine: Machine) -> int:
    """How many rows of state an instance has now; any thread may ask. One that was put in the place
    of one that had ended has those that were left then."""
    if LEFT in machine.counts:
        return machine.counts.total(LEFT)
    table = _table(machine)
    return 0 if table is None else len(table)


def _left(machine: Machine) -> Counted:
    """By key group how many rows an instance that has ended has left."""
    shape, table = _shape(machine), _table(machine)
    if not machine.ended or shape is None or table is None or LEFT in machine.counts:
        return {}
    groups = machine.plan.groups
    if isinstance(table, ObjectTable):
        counts = count_objects(table, shape, groups)
    else:
        counts = count_rows(table, shape, groups, texts_of(getattr(machine, "logic", None)))
    return {LEFT: counts[slice(*machine.keys)].tobytes()}


def sample_of(machine: Machine) -> Callable[[], np.ndarray] | None:
    """A sample of the rows that can be refreshed in the next image, see `StructuredTable.sample`;
    None if none ever can."""
    table = _table(machine)
    if not isinstance(table, StructuredTable):
        return None
    return table.sample


def sizes_of(chains: Sequence[Sequence[Image]]) -> list[Size]:
    """What each image of a chain takes, of all parts of a range together."""
    return [
        Size(sum([i.nbytes for i in parts]), sum([len(i) for i in parts]))
        for parts in zip(*chains, strict=False)
    ]


def install(machine: Machine, chains: Sequence[Sequence[Image]], floor: int = 0) -> Standing:
    """Put what instances knew into a new one; returns where it stands now.

    Args:
        chains: each the images that are needed of one part of the instance's range, each a delta on
            the one before; the parts tile it exactly. All are of one cut, but that of a source that
            had ended by then may be of its end. The instance stands at the newest.
        floor: the cut that they were asked for, where it stands if they are of a source that had
            ended.

    Raises:
        StateError: an image is of something else, or does not apply to the one before; the chains
            leave a hole, overlap or are not of one cut; or the user's `upgrade` failed.
    """
    newest = _tiled(machine, chains)
    for chain in chains:
        for i, image in enumerate(chain):
            _check(machine, image)
            if i:
                follows(_upto(chain[0], chain[i - 1]), image)
        check_whole([i.header for i in chain])
    _put(machine, [[_as_now(machine, image) for image in chain] for chain in chains])
    standing = together([h.standing for h in newest])
    over = standing.ended and isinstance(machine, SourceInstance)
    cut = max(h.cut for h in newest) if not over else max(floor, *(h.cut for h in newest))
    _stand(machine, cut, standing)
    return standing


def advance(machine: Machine, delta: Image) -> None:
    """Bring an instance that was put where it stands by `install`, and was not opened, to where the
    owner of its range is: a delta on what it holds, or a full image if it holds nothing yet.

    Raises:
        StateError: the delta is of something else, or does not apply to what it holds.
    """
    header = delta.header
    _check(machine, delta)
    if (header.keys, header.base) != (machine.keys, machine.position):
        raise StateError(
            f"the {header} does not apply to {machine.vertex.name} {machine.keys} at"
            f" {machine.position}"
        )
    _put(machine, [[delta]], onto=bool(header.base))
    _stand(machine, header.cut, header.standing)


def _stand(machine: Machine, cut: int, standing: Standing) -> None:
    """Let an instance stand there."""
    machine.position = machine.cuts.begun = cut
    machine.watermark = standing.watermark
    # A source says once more that it ended: in other ranges nobody has heard of it.
    machine.ended = standing.ended and isinstance(machine, Instance)
    machine.counts = Counts(len(machine.keys), standing.counts)
    for log in machine.outlets.logs.values():
        log.next = cut + 1
    if isinstance(machine, Instance):
        for edge in machine.vertex.inputs:
            inlet = Inlet(machine.plan.groups, cut)
            ends = standing.inlets.get(edge.id, ())
            inlet.ended = [
                silence(e.epoch, KeyRange(e.lo, e.hi), edge.schema, len(machine.keys)) for e in ends
            ]
            machine.inlets[edge.id] = inlet


def _tiled(machine: Machine, chains: Sequence[Sequence[Image]]) -> list[ImageHeader]:
    """The newest header of each chain, by range; they tile the machine's."""
    newest = sorted((chain[-1].header for chain in chains), key=lambda h: h.keys)
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
    last = max(newest, key=lambda h: h.cut)
    for header in newest:
        of_source = isinstance(machine, SourceInstance)
        if header.cut != last.cut and not (of_source and header.standing.ended):
            raise StateError(f"the {header} does not belong with the {last}: they are of two cuts")
        one, two = header.standing, last.standing
        if not of_source and (one.watermark, one.ended) != (two.watermark, two.ended):
            raise StateError(f"the {header} does not belong with the {last}: they stand elsewhere")
    return newest


def _upto(first: Image, last: Image) -> Image:
    """What the images so far stand for, as a base."""
    return Image(replace(last.header, base=first.header.base), None, None)


def _check(machine: Machine, image: Image) -> None:
    header, plan = image.header, machine.plan
    if (header.operator, header.groups) != (machine.vertex.name, plan.groups):
        raise StateError(
            f"the {header} of {header.groups} key groups was put into {machine.vertex.name},"
            f" which has {plan.groups}"
        )
    shape, now = _shape(machine), _shape_in_words(machine)
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


@lru_cache(maxsize=256)
def shape_of(spec: OperatorSpec) -> Shape | None:
    """What the rows of an operator hold; None for one that keeps none."""
    if spec.state is None:
        return None
    fields = tuple(f for k in spec.key if (f := spec.inputs[0].field(k)) is not None)
    return Shape(fields, spec.state, _window_in_words(spec), isinstance(spec.window, Session))


def _window_in_words(spec: OperatorSpec) -> str:
    window = spec.window
    if isinstance(window, Tumbling):
        return f"in windows of {window.seconds:g} s"
    if isinstance(window, Sliding):
        return f"in windows of {window.seconds:g} s every {window.every:g} s"
    return f"in sessions with gaps of {window.gap:g} s" if window is not None else ""


def _shape(machine: Machine) -> Shape | None:
    spec = machine.vertex.spec
    return None if spec is None else shape_of(spec)


def _shape_in_words(machine: Machine) -> str:
    shape = _shape(machine)
    return "" if shape is None else shape.fingerprint


def _take(machine: Machine, wanted: Wanted, *, named: bool) -> Taken | None:
    shape, logic = _shape(machine), getattr(machine, "logic", None)
    if shape is None or logic is None:
        return None
    if machine.ended:
        return take_none(shape, machine.plan.groups)
    if isinstance(logic.table, ObjectTable):
        return take_objects(logic.table, shape, machine.plan.groups, wanted.base)
    groups, at, texts = machine.plan.groups, machine.position, texts_of(logic)
    since, before = wanted.base, wanted.before
    return take_rows(logic.table, shape, groups, since, at, texts, before, named=named)


def texts_of(logic: Any) -> Texts:
    """Per key field what its numbers stand for, where it is text or bytes; () where none is."""
    keyed = getattr(logic, "keyed", None)
    return () if keyed is None else keyed.texts


def _as_now(machine: Machine, image: Image) -> Image:
    """An image whose state class was another version, upgraded."""
    shape = _shape(machine)
    if shape is None or image.header.shape == shape.fingerprint:
        return image
    return upgraded(image, shape)


def _put(machine: Machine, chains: Sequence[Sequence[Image]], *, onto: bool = False) -> None:
    """Put rows into a table; all of them, unless they go `onto` what is there."""
    shape, logic = _shape(machine), getattr(machine, "logic", None)
    if shape is None or logic is None:
        return
    if isinstance(logic.table, ObjectTable):
        for image in (image for chain in chains for image in chain):
            put_objects(logic.table, shape, image)
        return
    if not onto:
        first = [_of_one_table(chain) for chain in chains]
        fill_rows(logic.table, shape, first, texts_of(logic))
        chains = [chain[len(those) :] for chain, those in zip(chains, first, strict=True)]
    for image in (image for chain in chains for image in chain):
        put_rows(logic.table, shape, image, texts_of(logic))


def _of_one_table(chain: Sequence[Image]) -> list[Image]:
    """The first image, and those after it whose rows name slots of the same table."""
    table = chain[0].header.table
    rest = takewhile(lambda image: table and image.header.table == table, chain[1:])
    return [chain[0], *rest]


# ---------------------------------------------------------------- standing


def _ends(machine: Instance) -> dict[int, tuple[Ended, ...]]:
    ends = {
        edge: tuple(
            sorted(
                Ended(p.header.epoch, *p.header.keys)
                for p in inlet.ended
                if p.header.epoch <= machine.position
            )
        )
        for edge, inlet in machine.inlets.items()
    }
    return {edge: ranges for edge, ranges in ends.items() if ranges}
