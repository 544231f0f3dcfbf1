"""Sources and sinks: the base classes that people derive from, and how others are adapted.

A class that has the methods without deriving is adapted once, where it joins a flow
(`source_of`, `sink_of`); from there on the engine knows `Source` and `Sink` only.
"""

from __future__ import annotations

import copy
import inspect
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from raystream.api.arguments import DO_IT, undone
from raystream.api.batch import Batch
from raystream.api.looking import look_at
from raystream.api.operator_checks import unfit_key
from raystream.api.operators import OperatorSpec
from raystream.errors import GraphError, InputError, Where
from raystream.schema.fields import AnyRecord
from raystream.schema.records import RecordSchema, record_schema, resolve_hints
from raystream.schema.types import KeyRange, SinkContext, SourceContext, Split

T_contra = TypeVar("T_contra", bound=AnyRecord, contravariant=True)
U_co = TypeVar("U_co", bound=AnyRecord, covariant=True)


class _Unset:
    """An attribute that a subclass may define as a field, a property or a variable (hence `Any`).

    An instance without it has None; the class itself has none, so a dataclass that declares a field
    of this name gives it no default.
    """

    def __get__(self, instance: object, owner: type | None = None) -> None:
        if instance is None:
            raise AttributeError("not set")


class Source(ABC, Generic[U_co]):
    """Where records come from. Derive from it and define `splits` and `read`:

        class Squares(rs.Source[Square]):
            def splits(self) -> list[rs.Split]:
                return [rs.Split("all")]

            def read(self, split, position) -> Iterator[tuple[int, rs.Batch[Square]]]:
                for n in range(position, 3):
                    yield n + 1, rs.Batch(Square, {"n": [n], "squared": [n * n]})

    The object is copied to the processes that read, so it holds only what can be pickled.
    """

    record: Any = _Unset()
    """The type of the records, `type[U]`. None: it is the one in the annotation of `read`."""
    reads: Any = _Unset()
    """The path, glob pattern or folder that is read, or a list of them: no sink of the flow may own
    what is there. None: the source says nothing about files."""

    recorded: ClassVar[bool] = False
    """Whether what is read cannot be read again, as from a socket. The job records it then: each
    batch is stored in `copies` places before an operator sees it, and a replay takes it
    from there. `read` is asked only where the split is owned, and from the present on: its position
    is the number of records of the split that are recorded, and what it yields beside a batch is a
    number of its own, which rises and comes back by `acknowledge`. It may yield a third thing,
    (sender, sequence): who sent the batch, and a number that rises from batch to batch of that
    sender. A batch whose sequence is not above the last recorded one of its sender is left out,
    and acknowledged: it was sent again. In the place of one sequence may be a NumPy array with one
    for each row, which do not fall: rows that are not above the last recorded one are left out.
    `knows` says before the first read what is recorded, `stored` what a checkpoint holds of it."""

    waits: bool = False
    """Whether a split may have nothing now and more later: its epochs are cut by arrival, and
    `read` yields batches without records meanwhile. Its reader sees to other things then."""
    sender_seconds: ClassVar[float] = 86_400
    """A sender is forgotten when another one is recorded this long after it."""
    read_ahead: ClassVar[int] = 4
    """With `rs.by_arrival`: how many batches of a split may wait in the process that reads it."""

    def open(self, context: SourceContext, /) -> None:
        """Called in each process that is to read or stands by, before the first read."""

    def close(self) -> None:
        """Called where `open` was, when nothing is read there any more; not if that dies."""

    @abstractmethod
    def splits(self) -> Sequence[Split]:
        """The parts that can be read independently. Asked once, when the job is planned."""

    @abstractmethod
    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U_co]]]:
        """Batches from a position on, each with the position at which the next one begins.

        Positions are integers of the source's own, of any size, and rise; 0 is the beginning.
        Reading again from a position must yield the same records in the same batches; or in any
        batches, if it yields a third thing: an array with the position after each record, int64 or
        of Python's ints. Then a batch without records may move the position on.
        """

    def acknowledge(self, split: Split, number: int, /) -> None:
        """What `read` has yielded up to this number is recorded: where it came from, it may be
        forgotten. Called where it was read, soon after and on another thread, if `recorded`; it
        must not block."""

    def knows(self, split: Split, sequences: Mapping[str, int], /) -> None:
        """By sender the last sequence that is recorded of a split. Called before a split is read
        here, and again with what a predecessor turns out to have recorded; as `acknowledge` is."""

    def ended(self, split: Split, /) -> None:
        """The end of a split that was read here is recorded: the rest comes too late. Called as
        `acknowledge` is."""

    def stored(self, split: Split, sequences: Mapping[str, int], /) -> None:
        """By sender the last sequence of a split that is in a checkpoint of which `commit` hears:
        nothing up to there is asked for again. Called after `commit`, if `recorded`."""

    def commit(self, positions: Mapping[str, int], /) -> None:
        """A checkpoint is committed and published: by split the position before which nothing is
        ever read again, as far as this process reads the splits. So a broker may be told.

        Called at least once for each commit, in order, where the splits are read, on a thread of
        its own. What it raises is a warning, and no commit waits for it.
        """

    def check(self) -> str:
        """Called by `raystream check`, without a job: read a record, change nothing, and say in a
        few words what is there; no values. What it raises says what is wrong. Unless defined, the
        splits are asked for and read up to the first record."""
        return look_at(self)

    def comes_later(self, split: str, /) -> bool:
        """Whether a split, by its name, may not be there yet. Such a one holds no watermark back
        until it has had a record."""
        return False

    def in_unit(self, unit: str, /) -> Source[U_co]:
        """The same source for a flow whose unit of time is this one, `s`, `ms`, `us` or `ns`: what
        stores times of its own gives them in that unit where the record declares an int."""
        return self

    def stages(self, where: Where, /) -> tuple[OperatorSpec, ...]:
        """Stateless operators of the source's own through which all goes that is read; a flow gets
        what they emit. Without any it gets what is read."""
        return ()


class Sink(ABC, Generic[T_contra]):
    """Where records go. Derive from it and define `write`; the other methods do nothing unless
    defined:

        class Printed(rs.Sink[Word]):
            def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Word]) -> None:
                for word in batch.records():
                    print(epoch, word)

    Each instance of the sink has a copy of the object, and calls `open`, then `write`, `end_epoch`
    and `prepare` as epochs come, `commit` as checkpoints are committed, and `close` at the end.
    """

    owns: Any = _Unset()
    """A folder, `str | os.PathLike`, where no other sink of the flow writes and no source reads;
    None if there is none."""
    keyed_by: Any = _Unset()
    """Fields of the records, `tuple[str, ...]`, by which they are partitioned: all records with the
    same values go to one instance. None: each record goes where its producer's key group is."""

    scales: bool = False
    """Whether other instances may take other ranges while the job runs: each finds out from the
    target, for any range, what is there of it (`already_there`)."""

    def accept(self, record: type[Any], /) -> None:
        """Called for each type of record that is to come, while the flow is built.

        Raises:
            GraphError: the sink cannot take records of this type.
        """

    def open(self, context: SinkContext, /) -> None:
        """Called once, before the first write. `context` says which part of the output this
        instance makes, and after which checkpoint it goes on."""

    def already_there(self) -> Sequence[tuple[KeyRange, int]]:
        """Called once, after `open`: what a predecessor has written after the checkpoint and need
        not be written again, as ranges of key groups that do not overlap, each with the last epoch
        that is there. In these epochs `write` is called for the rest of the key groups only."""
        return ()

    @abstractmethod
    def write(self, epoch: int, keys: KeyRange, batch: Batch[T_contra], /) -> None:
        """Called once per epoch, record type and range of key groups that has records. The same
        (epoch, keys) again replaces the first."""

    def end_epoch(self, epoch: int, /, *, more: bool) -> None:
        """Called after the last `write` of an epoch; for epochs without records that follow each
        other at least once, with the last one.

        Args:
            more: whether the next epoch is at hand: a sink may then wait for it.
        """

    def prepare(self, epoch: int, /) -> None:
        """Called at each checkpoint: when it returns, what was written up to `epoch` must be kept
        where a successor of this instance finds it. The successor gets only what came later."""

    def commit(self, epoch: int, /) -> None:
        """Nothing up to `epoch` will come again: others may see it. With a durable tier this is
        called when the checkpoint is saved there. A successor of this instance hears it again."""

    def close(self) -> None:
        """Called after the last commit."""

    def check(self) -> str:
        """Called by `raystream check`, without a job: see whether the target can be written, leave
        it as it is, and say in a few words what is there. What it raises says what is wrong."""
        return "not tried: the sink has no method `check`"


class SourceLike(Protocol[U_co]):
    """A source by its methods. What does not derive from `Source` is adapted to it; it may have the
    others, too, but `in_unit` and `stages`."""

    def splits(self) -> Sequence[Split]: ...
    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U_co]]]: ...


class SinkLike(Protocol[T_contra]):
    """A sink by its methods. What does not derive from `Sink` is adapted to it; it may have the
    others, too."""

    def write(self, epoch: int, keys: KeyRange, batch: Batch[T_contra], /) -> None: ...
    def commit(self, epoch: int, /) -> None: ...


class AdaptedSource(Source[Any]):
    """A source whose class does not derive from `Source`."""

    def __init__(self, given: Any) -> None:
        self.given = given
        for name in (*_SOURCE_MAY, *_SOURCE_SAYS):
            if hasattr(given, name):
                setattr(self, name, getattr(given, name))

    def splits(self) -> Sequence[Split]:
        return self.given.splits()

    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[Any]]]:
        return self.given.read(split, position)


def hears_commits(source: Source[Any]) -> bool:
    """Whether a source has a `commit` or `stored` of its own."""
    given: Any = source.given if isinstance(source, AdaptedSource) else source
    return any(
        getattr(type(given), name, None) not in (None, getattr(Source, name))
        for name in ("commit", "stored")
    )


class AdaptedSink(Sink[Any]):
    """A sink whose class does not derive from `Sink`."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self._has = frozenset(name for name in _SINK_MAY if hasattr(given, name))
        self.owns = getattr(given, "owns", None)
        self.keyed_by = getattr(given, "keyed_by", None)
        self.scales = bool(getattr(given, "scales", False))

    def __copy__(self) -> AdaptedSink:
        return AdaptedSink(copy.copy(self.given))

    def open(self, context: SinkContext, /) -> None:
        if "open" in self._has:
            self.given.open(context)

    def already_there(self) -> Sequence[tuple[KeyRange, int]]:
        return self.given.already_there() if "already_there" in self._has else ()

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any], /) -> None:
        self.given.write(epoch, keys, batch)

    def end_epoch(self, epoch: int, /, *, more: bool) -> None:
        if "end_epoch" in self._has:
            self.given.end_epoch(epoch, more=more)

    def prepare(self, epoch: int, /) -> None:
        if "prepare" in self._has:
            self.given.prepare(epoch)

    def commit(self, epoch: int, /) -> None:
        self.given.commit(epoch)

    def close(self) -> None:
        if "close" in self._has:
            self.given.close()

    def check(self) -> str:
        return self.given.check() if "check" in self._has else super().check()


def as_given(connector: Any) -> Any:
    """The user's own object behind a source or sink of a plan, for messages about it."""
    return connector.given if isinstance(connector, AdaptedSource | AdaptedSink) else connector


def source_of(given: SourceLike[U_co], where: Where) -> Source[U_co]:
    """An object of the user as a `Source`. Raises a `GraphError` if it is none."""
    _check_methods(given, "source", _SOURCE, _SOURCE | _SOURCE_MAY, where)
    return given if isinstance(given, Source) else AdaptedSource(given)


def sink_of(given: SinkLike[T_contra], where: Where) -> Sink[T_contra]:
    """An object of the user as a `Sink`. Raises a `GraphError` if it is none."""
    _check_methods(given, "sink", _SINK, _SINK | _SINK_MAY, where)
    return given if isinstance(given, Sink) else AdaptedSink(given)


_SOURCE: dict[str, tuple[str, ...]] = {"splits": (), "read": ("split", "position")}
_SOURCE_MAY: dict[str, tuple[str, ...]] = {
    "open": ("context",),
    "close": (),
    "acknowledge": ("split", "number"),
    "knows": ("split", "sequences"),
    "ended": ("split",),
    "stored": ("split", "sequences"),
    "commit": ("positions",),
    "check": (),
    "comes_later": ("split",),
}
_SINK: dict[str, tuple[str, ...]] = {"write": ("epoch", "keys", "batch"), "commit": ("epoch",)}
_SINK_MAY: dict[str, tuple[str, ...]] = {
    "open": ("context",),
    "already_there": (),
    "end_epoch": ("epoch", "*more"),
    "prepare": ("epoch",),
    "close": (),
    "check": (),
}
"""Methods and what they are called with (`*`: by name); those that a source or sink may have."""
_SOURCE_SAYS = ("reads", "recorded", "waits", "read_ahead", "sender_seconds")
"""What a source may say of itself."""
_USUAL = {
    "source": "Records at hand are one by rs.io.iterable(records, Record), files by rs.io.csv.",
    "sink": "A function is one by rs.io.callable(function), a folder by rs.io.parquet(folder).",
}


def _check_methods(
    given: object,
    kind: str,
    needed: Mapping[str, tuple[str, ...]],
    known: Mapping[str, tuple[str, ...]],
    where: Where,
) -> None:
    """Refuse a source or sink that lacks a method, or could not be called as it will be."""
    if isinstance(given, type):
        raise GraphError(f"{given.__name__} is a class: pass an instance of it", where=where)
    if inspect.isfunction(given) and given.__module__.startswith("raystream.io"):
        raise GraphError(f"rs.io.{given.__name__} makes a {kind}: call it", where=where)
    name = type(given).__name__
    for method, arguments in known.items():
        found = getattr(given, method, None)
        if found is None and method not in needed:
            continue
        if not callable(found):
            why = f"{name} is not a {kind}: it has no `{method}`"
            begun = any(map(inspect.isfunction, map(vars(type(given)).get, ("read", "write"))))
            derive = f"Derive it, class {name}(rs.{kind.title()}), and it has what may be left out."
            raise GraphError(why, where=where, hint=derive if begun else _USUAL[kind])
        if (kind == "sink" or inspect.iscoroutinefunction(found)) and (why := undone(found)):
            raise GraphError(f"{name}.{method} {why}", where=where, hint=DO_IT)
        try:
            signature = inspect.signature(found)
        except (TypeError, ValueError):
            continue  # not written in Python
        by_name = {a[1:]: None for a in arguments if a.startswith("*")}
        try:
            signature.bind(*arguments[: len(arguments) - len(by_name)], **by_name)
        except TypeError:
            raise GraphError(
                f"{name}.{method} takes ({', '.join(signature.parameters)}), but a {kind} is called"
                f" with ({_listed(arguments)})",
                where=where,
                hint=f"Write it as def {method}({_listed(('self', *arguments))}).",
            ) from None


def check_keyed(sink: Sink[Any], schema: RecordSchema) -> None:
    """Check that records can be partitioned by the fields that a sink declares as its key.

    Raises:
        GraphError: a field is not there, or cannot serve.
    """
    for name in sink.keyed_by or ():
        f = schema.field(name)
        if f is None:
            raise GraphError(
                f"key {name!r} is not a field of {schema.name}",
                hint=f"{schema.name} has {', '.join(schema.names)}.",
            )
        if why := unfit_key(f):
            raise GraphError(f"key {name!r}: {schema.name}.{f} cannot serve", hint=why)


def _listed(arguments: Iterable[str]) -> str:
    """Arguments as a definition has them."""
    return ", ".join(arguments).replace("*", "*, ")


def changed(name: str, position: int, where: Where | None = None) -> InputError:
    """What a source raises when a split no longer holds what was read of it up to a position."""
    return InputError(
        f"{name} is not what it was: it was read up to position {position}, and now it ends before"
        " that or continues with something else.",
        where=where,
        hint="Put back what was there when the job began, or start the job from the beginning.",
    )


def record_of(source: Any, where: Where, scope: Mapping[str, Any]) -> RecordSchema:
    """The record type of a source: its attribute `record`, or the annotation of `read`.

    Raises:
        GraphError: neither says what it is.
    """
    record = getattr(source, "record", None)
    if record is not None:
        return record_schema(record, scope)
    hint = resolve_hints(source.read, scope).get("return")
    for arg in typing.get_args(hint):
        for inner in typing.get_args(arg):
            if typing.get_origin(inner) is Batch:
                return record_schema(typing.get_args(inner)[0], scope)
    raise GraphError(
        f"{type(source).__name__}.read does not say what it yields",
        where=where,
        hint="Annotate it: -> Iterator[tuple[int, rs.Batch[Line]]], or set `record`.",
    )
