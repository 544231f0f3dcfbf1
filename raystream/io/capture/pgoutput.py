"""The messages of `pgoutput`, the output plugin of logical replication, version 1.

A stream is transactions in the order of their commits: `BeginMessage`, the changes,
`CommitMessage`. The first change of a table, and the first after its columns have changed, comes
after a `Relation`.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import NamedTuple

from raystream.errors import InputError


class Unchanged(Enum):
    """What stands for a value."""

    UNCHANGED = "unchanged"
    """A value that is stored apart (TOAST) and that an update left alone: the server does not send
    it."""


UNCHANGED = Unchanged.UNCHANGED
Value = bytes | Unchanged | None
"""The text of a value; None for NULL."""


class BeginMessage(NamedTuple):
    """A transaction begins."""

    lsn: int
    """Where its commit stands in the log: its number."""
    micros: int
    """When it was committed, in microseconds since 1970."""


class CommitMessage(NamedTuple):
    """It ends."""

    lsn: int
    end: int
    """Where the log goes on after the commit."""


class Relation(NamedTuple):
    """The columns of a table, from here on."""

    id: int
    name: str
    """With its schema."""
    columns: tuple[str, ...]
    keys: tuple[bool, ...]
    """Whether each column is part of what identifies a row."""


class Change(NamedTuple):
    """A row is inserted, updated or deleted."""

    kind: str
    """`I`, `U` or `D`."""
    relation: int
    old: tuple[Value, ...] | None
    """The row before, as far as the server says: nothing, its key, or all of it."""
    whole: bool
    """Whether `old` is all of it."""
    new: tuple[Value, ...] | None


class Truncate(NamedTuple):
    """All rows of some tables are deleted at once."""

    relations: tuple[int, ...]


Message = BeginMessage | CommitMessage | Relation | Change | Truncate | None

YEAR_2000 = 946_684_800_000_000
"""Microseconds from 1970 to 2000, from where the server counts."""


def parsed(data: bytes) -> Message:
    """The message that bytes are; None for one that says nothing about rows.

    Raises:
        InputError: it is no message of version 1.
    """
    kind = data[:1]
    try:
        if kind in b"IUD":
            return _change(data)
        if kind == b"B":
            lsn, micros = struct.unpack_from("!Qq", data, 1)
            return BeginMessage(lsn, micros + YEAR_2000)
        if kind == b"C":
            return CommitMessage(*struct.unpack_from("!QQ", data, 2))
        if kind == b"R":
            return _relation(data)
        if kind == b"T":
            (number,) = struct.unpack_from("!I", data, 1)
            return Truncate(struct.unpack_from(f"!{number}I", data, 6))
        if kind in b"OYM":  # origin, type, message
            return None
    except (struct.error, IndexError, UnicodeDecodeError):
        pass
    raise InputError(f"the server sent a message of replication that is none: {kind!r}")


def _relation(data: bytes) -> Relation:
    (oid,) = struct.unpack_from("!I", data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    (number,) = struct.unpack_from("!H", data, at + 1)
    at += 3
    columns, keys = [], []
    for _ in range(number):
        keys.append(bool(data[at] & 1))
        column, at = _text(data, at + 1)
        columns.append(column)
        at += 8
    return Relation(oid, f"{schema or 'pg_catalog'}.{name}", tuple(columns), tuple(keys))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def _change(data: bytes) -> Change:
    (oid,) = struct.unpack_from("!I", data, 1)
    kind, at, old, new, whole = chr(data[0]), 5, None, None, False
    while at < len(data):
        what = data[at : at + 1]
        values, at = _row(data, at + 1)
        if what == b"N":
            new = values
        else:
            old, whole = values, what == b"O"
    return Change(kind, oid, old, whole, new)


def _row(data: bytes, at: int) -> tuple[tuple[Value, ...], int]:
    number = (data[at] << 8) | data[at + 1]
    at += 2
    found: list[Value] = []
    for _ in range(number):
        what = data[at]
        if what == 116:  # t: text
            end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
            found.append(data[at + 5 : end])
            at = end
        else:
            found.append(None if what == 110 else UNCHANGED)  # n: NULL
            at += 1
    return tuple(found), at


def lsn_of(text: str) -> int:
    """A place in the log, as the server writes it: `0/152AF60`."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """A place in the log as the server reads it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
