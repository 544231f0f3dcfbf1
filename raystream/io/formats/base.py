"""What a format is, and what all of them share."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from raystream.api.batch import Batch
from raystream.errors import GraphError, InputError, caller
from raystream.schema.columns import Columns, concat, empty, physical
from raystream.schema.fields import AnyRecord
from raystream.schema.records import defaults_of, record_hints, record_schema

U = TypeVar("U", bound=AnyRecord)
M = TypeVar("M")

At = Callable[[int], str]
"""Says where the nth message (from 0) of a batch is: `orders/0, offset 17`."""


class Codec(ABC, Generic[U]):
    """Makes records of one type from messages, and messages from records; many in one call."""

    def __init__(self, record: type[U]) -> None:
        self.record = record

    @abstractmethod
    def decode(self, messages: Sequence[bytes], /) -> Batch[U]:
        """The records of messages, one of each, in order.

        Raises:
            InputError: one of them is no such record. It need not say which: `sift` finds out.
        """

    @abstractmethod
    def encode(self, batch: Batch[U], /) -> list[bytes]:
        """The messages of records, one of each, in order."""

    def check(self, *, writes: bool) -> str:
        """See whether the schema registry can be used, if there is one; in a few words what is
        there. It is called by `raystream check`.

        Args:
            writes: whether messages are written, and not read.

        Raises:
            RaystreamError: what is wrong.
        """
        return ""


def registries(*codecs: Codec[Any] | None, writes: bool) -> str:
    """What is to be added to the answer of a source or sink: the registries of its codecs."""
    told = [codec.check(writes=writes) for codec in codecs if codec is not None]
    return "".join(f"; {words}" for words in dict.fromkeys(told) if words)


class Format(ABC):
    """How messages stand for records. Formats are sent to the processes of a job, so they hold only
    what can be pickled."""

    @abstractmethod
    def codec(self, record: type[U], /, *, subject: str = "") -> Codec[U]:
        """What decodes and encodes the records of a type. It belongs to one thread.

        Args:
            record: their type.
            subject: under which a schema registry knows what the messages are, where the user does
                not say: `orders-value`.

        Raises:
            GraphError: the format cannot hold such records.
            ConfigError: a package is not installed.
        """


# ---------------------------------------------------------------- what is no record


class Sifted(NamedTuple, Generic[U]):
    """Messages, told apart."""

    batch: Batch[U]
    """The records of those that are such."""
    at: np.ndarray[Any, np.dtype[np.int64]]
    """The position of the message of each record."""
    bad: list[tuple[int, InputError]]
    """Positions of the others, and what is wrong with each of them."""


def sift(
    messages: Sequence[M], decode: Callable[[Sequence[M]], Batch[U]], record: type[U]
) -> Sifted[U]:
    """The records of messages, and those that are none.

    Args:
        messages: bytes, or whatever `decode` takes many of.
        decode: makes a record of each, or raises `InputError`; as `Codec.decode`.
    """
    good: list[tuple[int, Batch[U]]] = []
    bad: list[tuple[int, InputError]] = []

    def divide(lo: int, hi: int) -> None:
        if lo == hi:
            return
        try:
            good.append((lo, decode(messages[lo:hi])))
        except InputError as error:
            if hi - lo == 1:
                bad.append((lo, error))
            else:
                divide(lo, (lo + hi) // 2)
                divide((lo + hi) // 2, hi)

    divide(0, len(messages))
    if len(good) == 1:
        lo, batch = good[0]
        return Sifted(batch, np.arange(lo, lo + len(batch)), bad)
    parts = [empty(record_schema(record)), *(batch._columns for _, batch in good)]
    at = [np.arange(lo, lo + len(batch)) for lo, batch in good] or [np.zeros(0, np.int64)]
    return Sifted(Batch._of(concat(parts)), np.concatenate(at), bad)


def whole(
    messages: Sequence[M], decode: Callable[[Sequence[M]], Batch[U]], record: type[U], at: At
) -> Batch[U]:
    """The records of messages that must all be such.

    Raises:
        InputError: one of them is none; it says where that one is.
    """
    try:
        return decode(messages)
    except InputError:
        found = sift(messages, decode, record)
        if not found.bad:
            raise
        n, error = found.bad[0]
        raise InputError(
            f"{at(n)}: {error.message}",
            hint=error.hint,
            bare=f"{at(n)}: the message is no {record_schema(record).name} as declared",
        ) from None


# ---------------------------------------------------------------- parts of a record


def part_of(record: Any, names: tuple[str, ...]) -> type[Any]:
    """The type of records that have some of the fields of another one: those of the key of a
    message, for example. It is for use within a process.

    Raises:
        GraphError: the record has no such field.
    """
    return _part_of(record, names)


@lru_cache(maxsize=1024)
def _part_of(record: Any, names: tuple[str, ...]) -> type[Any]:
    schema, hints, defaults = record_schema(record), record_hints(record), defaults_of(record)
    if unknown := [name for name in names if schema.field(name) is None]:
        raise GraphError(
            f"{schema.name} has no field {unknown[0]!r}",
            where=caller()[0],
            hint=f"It has {', '.join(schema.names)}.",
        )
    if names == schema.names:
        return record
    fields = [
        (name, hints[name], dataclasses.field(default_factory=defaults[name]))
        if name in defaults
        else (name, hints[name])
        for name in names
    ]
    return dataclasses.make_dataclass(record.__name__, fields, frozen=True, kw_only=True)


def joined(
    record: type[U], parts: Sequence[Batch[Any]], columns: Mapping[str, Any] | None = None
) -> Batch[U]:
    """Records whose fields are in several batches, row by row.

    Args:
        parts: batches of equal length, of types of `part_of`.
        columns: the fields that are in none of them, as of `rs.Batch`.

    Raises:
        StateError: a value does not fit its field.
    """
    if columns:
        parts = [*parts, Batch(part_of(record, tuple(columns)), columns)]
    arrays: dict[str, Any] = {}
    for part in parts:
        names = (name for name, _, _ in physical(part._columns.schema))
        arrays |= dict(zip(names, part._columns.arrays, strict=True))
    schema = record_schema(record)
    ordered = [arrays[name] for name, _, _ in physical(schema)]
    return Batch._of(Columns(schema, ordered, len(parts[0])))


def taken_from(batch: Batch[Any], names: tuple[str, ...]) -> Batch[Any]:
    """Some of the fields of records, as the type of `part_of`: the opposite of `joined`."""
    part = record_schema(part_of(batch.record, names))
    arrays = [batch._columns.column(name) for name, _, _ in physical(part)]
    return Batch._of(Columns(part, arrays, len(batch)))


def only_field(record: Any, what: str) -> str:
    """The name of the one field of a record.

    Raises:
        GraphError: it has several. what: the format that needs it.
    """
    names = record_schema(record).names
    if len(names) != 1:
        raise GraphError(
            f"{what}: a message is one value, and {record.__name__} has {', '.join(names)}",
            where=caller()[0],
            hint="Declare a record with one field, or use another format, such as"
            " rs.io.formats.json().",
        )
    return names[0]
