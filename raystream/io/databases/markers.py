"""Markers: what a database knows of the output that it holds, and which instance may add to it.

A sink is *visible by epoch* when it writes the rows of an epoch and a marker in one transaction of
the database. A marker says for a range of key groups up to which epoch the rows are there, and
which instance may write more of them, its *owner*. So rows and marker are always of one mind, and
an instance that takes a range over reads in the marker what it need not write again.

    owner      (run, generation): the run's number among those of the sink in this database, and
               the generation of the instance in the run. Both only rise.
    take_over  decides what an instance changes before its first write: it puts markers of its own
               in the place of all markers that overlap its range.

Invariants:

- The markers of a sink never overlap.
- An instance writes rows only in a transaction that also advances markers which it owns. If one of
  them is gone or another's, the transaction is undone: the instance was replaced.
- At each checkpoint the markers say at least its epoch. So a marker that is behind the checkpoint
  with which an instance begins means that the database has gone back; and an instance advances a
  marker only from where it left it.
- A marker beyond the checkpoint with which an instance begins is believed only if the instance can
  make the same epochs again: in the same run always; in a later run if epochs are cut by time and
  the program is the same. Otherwise the run is refused.

Everything here is a function of values: it knows no database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from raystream.errors import OutputError
from raystream.schema.types import KeyRange, SinkContext

LAST = 2**62
"""After every epoch."""

Existing = Literal["refuse", "keep", "replace"]
"""What a run that begins at the beginning does with the rows of an earlier one that did not end."""
EXISTING: tuple[str, ...] = get_args(Existing)


class MarkerOwner(NamedTuple):
    """The instance that may write rows of a range. A greater owner replaces a lesser one."""

    run: int
    """The number of the run among those of the sink in this database."""
    generation: int
    """The generation of the instance in its run."""


class Marker(NamedTuple):
    """Up to which epoch the rows of a range are there."""

    keys: KeyRange
    epoch: int
    """Up to here the rows are there: in the table, or staged."""
    shown: int
    """Up to here they are in the table."""
    owner: MarkerOwner
    ended: bool = False
    """Whether the owner has written everything up to the end of its input."""

    def at(self, epoch: int, *, shown: bool) -> Marker:
        """The marker after the rows up to an epoch were written."""
        upto = max(self.epoch, epoch)
        return self._replace(epoch=upto, shown=upto if shown else self.shown)


class Run(NamedTuple):
    """A run that has written to the database."""

    order: int
    """Its number among the runs of the sink, from 1."""
    name: str
    number: int
    """Its number in the durable tier; 0 without one."""
    program: str
    """The fingerprint of its program, see `SinkContext.program`."""
    began: int
    """The checkpoint with which it began; 0 for the beginning of the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """What an instance changes in the database before its first write, in one transaction."""

    owner: MarkerOwner
    """The owner that the instance is from now on."""
    register: Run | None
    """Its run, if it is not known yet."""
    clear: bool
    """Whether the rows of all earlier runs are to be deleted."""
    remove: tuple[Marker, ...]
    """The markers that are replaced."""
    put: tuple[Marker, ...]
    """The markers that take their place: those of the instance and what is left of others."""

    forget: int
    """What is staged after this epoch is to be deleted."""

    @property
    def mine(self) -> tuple[Marker, ...]:
        """The markers of the instance. They tile its range."""
        return tuple(m for m in self.put if m.owner == self.owner)


def take_over(
    table: str,
    runs: Iterable[Run],
    markers: Iterable[Marker],
    context: SinkContext,
    existing: Existing,
) -> TakeOver:
    """What an instance changes before its first write.

    Args:
        table: the database and table, for messages.
        runs, markers: those of the sink. context: what the instance was told.

    Raises:
        OutputError: the instance was replaced, or the run cannot go on with what is there.
    """
    known, found = sorted(runs), sorted(markers)
    newest = known[-1] if known else None
    if newest is not None and _is_mine(newest, found, context):
        run, register, clear = newest, None, False
        there = [m for m in found if m.keys.overlaps(context.keys)]
    else:
        run = register = _next(table, known, found, context, existing)
        begins = not _goes_on(context)
        clear = begins and existing == "replace"
        there = found if begins else [m for m in found if m.keys.overlaps(context.keys)]
    owner = MarkerOwner(run.order, context.generation)
    if any(m.owner > owner for m in there):
        raise replaced(table)
    if register is not None and not _goes_on(context):
        put = [Marker(context.keys, 0, 0, owner)]
    else:
        if any(m.epoch < context.committed for m in there):
            raise lost(table, context.committed)
        check_beyond(table, known, there, context, run)
        put = _cut(there, context, owner)
    same = all(m.owner.run == run.order for m in there)
    return TakeOver(
        owner=owner,
        register=register,
        clear=clear,
        remove=tuple(there),
        put=tuple(put),
        forget=LAST if same and there else context.committed,
    )


def _goes_on(context: SinkContext) -> bool:
    """Whether the instance goes on from a checkpoint; otherwise it begins at the beginning."""
    return bool(context.committed or context.resumed)


def _is_mine(newest: Run, found: Sequence[Marker], context: SinkContext) -> bool:
    """Whether the newest run is that of the instance. A job in one process has no generations and
    no successors: what has its name and its range is an earlier job."""
    if (newest.name, newest.number) != (context.run, context.number):
        return False
    there = [m.owner.run for m in found if m.keys.overlaps(context.keys)]
    return bool(context.generation) or newest.order not in there


def _next(
    table: str,
    known: Sequence[Run],
    found: Sequence[Marker],
    context: SinkContext,
    existing: Existing,
) -> Run:
    """The run of an instance, which is the first one of its run here."""
    me = (context.run, context.number)
    if context.generation and any((r.name, r.number) == me for r in known):
        raise replaced(table)  # by an instance of a later run
    if context.resumed:
        if all(r.name != context.resumed for r in known):
            raise OutputError(
                f"{table} holds no output of the run {context.resumed}, from which the job goes"
                f" on: what it wrote up to epoch {context.committed} is missing.",
                hint="Go on with the database that was written before, or begin again from the"
                " start (--fresh, resume=False).",
            )
        if any(r.number > context.number for r in known):
            raise replaced(table)
    elif not context.committed and existing == "refuse":
        _refuse_broken_off(table, known, found)
    order = known[-1].order + 1 if known else 1
    return Run(order, context.run, context.number, context.program, context.committed)


def _refuse_broken_off(table: str, known: Sequence[Run], found: Sequence[Marker]) -> None:
    begun = [m for m in found if not m.ended]
    if begun:
        names = {r.order: r.name for r in known}
        raise OutputError(
            f"{table} has output of the run {names.get(begun[0].owner.run, '?')}, which did not"
            f" end: it holds rows up to epoch {max(m.epoch for m in begun)}, and a run that begins"
            " again would write them a second time.",
            hint="Go on from a saved checkpoint (--resume); or say what becomes of these rows:"
            ' existing="replace" deletes them, existing="keep" adds to them.',
        )


def check_beyond(
    table: str,
    known: Sequence[Run],
    there: Iterable[Marker],
    context: SinkContext,
    run: Run,
) -> None:
    """Check that an instance can make again what is there after the checkpoint with which its run
    began.

    Args:
        there: the markers that overlap its range. run: that of the instance.

    Raises:
        OutputError: it cannot.
    """
    for marker in there:
        if marker.owner.run == run.order or marker.shown <= context.committed:
            continue
        beyond = (
            f"{table} holds output up to epoch {marker.shown} of the key groups {marker.keys},"
            f" and the job goes on from checkpoint {context.committed}"
        )
        if not context.repeatable:
            raise OutputError(
                f"{beyond}. Epochs are cut by arrival, so those in between cannot be made again as"
                " they were.",
                hint='Begin again from the start with existing="replace". With visible="saved" no'
                " table is ahead of a saved checkpoint.",
            )
        made = _programs(known, marker.owner.run, context.committed)
        if made != {context.program}:
            raise OutputError(
                f"{beyond}, but the program has changed since: it would not make the epochs in"
                " between as they were.",
                hint="Run the earlier program once more from that checkpoint until it has saved"
                f" a checkpoint at epoch {marker.shown} or later, and change the program then. With"
                ' visible="saved" no table is ahead of a saved checkpoint.',
            )


def _programs(known: Sequence[Run], order: int, after: int) -> set[str]:
    """The programs of the runs that may have written epochs after `after`, up to a run."""
    found = set()
    for run in reversed([r for r in known if r.order <= order]):
        found.add(run.program)
        if run.began <= after:
            break
    return found


def _cut(there: Iterable[Marker], context: SinkContext, owner: MarkerOwner) -> list[Marker]:
    """Markers in the place of those that overlap a range: of the range with the new owner, of the
    rest as they were. What no marker knows was written up to the checkpoint and no further.

    What an earlier run has staged after the checkpoint is forgotten: no reader has seen it."""
    mine: list[Marker] = []
    rest: list[Marker] = []
    at, committed = context.keys.lo, context.committed
    for m in sorted(there):
        common = m.keys.common(context.keys)
        if common is None:
            continue
        if at < common.lo:
            mine.append(Marker(KeyRange(at, common.lo), committed, committed, owner))
        forgotten = m.owner.run != owner.run and m.shown < m.epoch
        upto = max(m.shown, min(m.epoch, committed)) if forgotten else m.epoch
        mine.append(Marker(common, upto, m.shown, owner))
        at = common.hi
        for lo, hi in ((m.keys.lo, common.lo), (common.hi, m.keys.hi)):
            if lo < hi:
                rest.append(m._replace(keys=KeyRange(lo, hi)))
    if at < context.keys.hi:
        mine.append(Marker(KeyRange(at, context.keys.hi), committed, committed, owner))
    return [*joined(mine), *rest]


def joined(markers: Iterable[Marker]) -> list[Marker]:
    """The same markers, with neighbours of one epoch as one."""
    found: list[Marker] = []
    for m in sorted(markers):
        last = found[-1] if found else None
        if last is not None and last.keys.hi == m.keys.lo and last[1:] == m[1:]:
            found[-1] = last._replace(keys=KeyRange(last.keys.lo, m.keys.hi))
        else:
            found.append(m)
    return found


def lost(table: str, epoch: int) -> OutputError:
    """The error of an instance whose database has gone back."""
    return OutputError(
        f"{table} does not hold any more what was written up to epoch {epoch}: the database has"
        " gone back, to a backup or to a copy that was behind.",
        hint="What is missing cannot be written by this run. Begin again from a checkpoint that is"
        ' not later than the database, or from the start with existing="replace".',
    )


def replaced(table: str) -> OutputError:
    """The error of an instance that was replaced."""
    return OutputError(
        f"{table} is another run's now, or another process of this one has taken the place: this"
        " process writes no more.",
        hint="A job runs once at a time, and each has a table of its own.",
    )
