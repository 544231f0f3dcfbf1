"""Which column of a file is which field of a record.

A field is read from the column of its own name, unless a mapping (`columns=`) or the record
(`Annotated[float, rs.field(name="Trip Distance")]`) names another one. What the file does not have
is taken from the folders on the way to it (`day=2024-01-01/`), else it is the field's default, or
None where that may be.
"""

from __future__ import annotations

import typing
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from raystream.errors import ConfigError, GraphError, InputError
from raystream.io.files.declared import _can_hold
from raystream.io.files.listing import hive_values
from raystream.io.files.nested import arrow_type, to_plain
from raystream.schema.fields import Field
from raystream.schema.records import RecordSchema, defaults_of, record_hints, record_schema
from raystream.schema.types import ColumnName

_DELIMITERS = ";\t|,"
"""What may stand between values of CSV."""
Mapped = Mapping[str, str]
"""The name of the column of each field."""


def mapping_of(record: type, given: Mapped | None) -> tuple[tuple[str, str], ...]:
    """The fields whose columns have other names: what the record says, then what was given.

    Raises:
        ConfigError: a field is not there, or two have one column.
    """
    schema = record_schema(record)
    names = {**named_by(record), **_mapping(given)}
    if unknown := [name for name in names if name not in schema.names]:
        raise ConfigError(
            f"columns= names the field {unknown[0]!r}, which {schema.name} does not have",
            hint=f"It maps fields to columns: {{field: column}}. {schema.name} has"
            f" {', '.join(schema.names)}.",
        )
    if wrong := [name for name in names.values() if not isinstance(name, str)]:
        raise ConfigError(f"columns= maps a field to {wrong[0]!r}: the name of a column is a str")
    told = [names.get(name, name) for name in schema.names]
    if twice := [name for name in told if told.count(name) > 1]:
        raise ConfigError(f"Two fields of {schema.name} are read from the column {twice[0]!r}")
    return tuple(names.items())


def _mapping(given: object) -> Mapping[str, str]:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(
            f"columns={given!r:.80} does not map fields to columns",
            hint='For example columns={"trip_distance": "Trip Distance"}.',
        )
    return given or {}


def renamed(given: Mapped | None) -> tuple[tuple[str, str], ...]:
    """The `columns=` of a sink. A sink may take records of several types, so a field need not be in
    all of them.

    Raises:
        ConfigError: it is no mapping of names.
    """
    names = dict(_mapping(given))
    for field, column in names.items():
        if not (isinstance(field, str) and isinstance(column, str) and column):
            raise ConfigError(f"columns= maps {field!r} to {column!r}: both are names, as str")
    return tuple(names.items())


def written_as(record: type, given: Sequence[tuple[str, str]]) -> list[str]:
    """The names of the columns that a sink writes of a record.

    Raises:
        GraphError: two have the same.
    """
    called = {**named_by(record), **dict(given)}
    names = [called.get(name, name) for name in record_schema(record).names]
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise GraphError(f"Two fields of {record.__name__} are written to the column {twice[0]!r}")
    return names


@cache
def named_by(record: type) -> dict[str, str]:
    """The names of columns that a record class gives in its annotations.

    Raises:
        GraphError: one is given as a default.
    """
    found: dict[str, str] = {}
    for field, hint in record_hints(record).items():
        if typing.get_origin(hint) is typing.Annotated:
            found.update((field, m.name) for m in hint.__metadata__ if isinstance(m, ColumnName))
    for field, make in defaults_of(record).items():
        if isinstance(default := make(), ColumnName):
            raise GraphError(
                f"{record.__name__}.{field} has the name of its column for a default",
                hint=f"Write {field}: Annotated[..., rs.field(name={default.name!r})].",
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """How the columns of one file become those of a record."""

    schema: RecordSchema
    taken: dict[str, int]
    """The position of the column of each field that the file has."""
    fixed: dict[str, Any]
    """For the others the one value, as an Arrow scalar, that all rows of the file have."""

    def rows(self, arrays: Mapping[str, Any], number: int) -> Any:
        """A record batch with all fields.

        Args:
            arrays: by field the values of those that are taken. number: of rows.
        """
        columns = [
            arrays[name] if name in arrays else pa.repeat(self.fixed[name], number)
            for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(self.schema.names))


def columns_of(
    schema: RecordSchema,
    found: Any,
    name: str,
    mapping: Sequence[tuple[str, str]] = (),
    *,
    header: str = "",
) -> FileColumns:
    """Find the fields in the columns of a file, before any row is read.

    Args:
        found: the Arrow schema of the file. name: the file. mapping: as of `mapping_of`.
        header: where in the file its columns are named.

    Raises:
        InputError: a column is missing, there twice, or of a type that cannot hold the field.
    """
    called, places = dict(mapping), hive_values(name)
    exact: dict[str, list[int]] = {}
    trimmed: dict[str, list[int]] = {}
    for at, column in enumerate(found.names):
        exact.setdefault(column, []).append(at)
        trimmed.setdefault(column.strip(), []).append(at)
    taken, fixed = {}, {}
    for f in schema.fields:
        column = called.get(f.name, f.name)
        there = exact.get(column) or trimmed.get(column, [])
        if len(there) > 1:
            raise InputError(f"{name}{header}: the column {column!r} is there twice.")
        if not there:
            fixed[f.name] = _fixed(schema, f, column, places, found, name)
            continue
        held = found.field(there[0]).type
        whole = f.integer and f.value is None and pa.types.is_floating(held)  # as pandas has them
        if not whole and not _can_hold(f, held):
            raise InputError(
                f"{name}: the column {column!r} holds {held}, but {schema.name} declares"
                f" {f.declared}.",
                hint="Convert the file, or declare the type it has.",
            )
        taken[f.name] = there[0]
    return FileColumns(schema=schema, taken=taken, fixed=fixed)


def _fixed(
    schema: RecordSchema,
    f: Field,
    column: str,
    places: Mapping[str, str | None],
    found: Any,
    name: str,
) -> Any:
    """The value of a field that has no column in a file."""
    if column in places and f.kind != "object":
        return place_value(f, column, places[column], name)
    if column not in places:
        defaults = defaults_of(schema.cls)
        if f.name in defaults:
            return _scalar(to_plain(defaults[f.name](), f), f)
        if f.optional:
            return _scalar(None, f)
    raise InputError(
        f"{name} has no column {column!r}, which {schema.name} declares.",
        hint=f"It has {', '.join(found.names) or 'none'}."
        f" {_to_find(schema, f, column, found.names)}",
    )


def _to_find(schema: RecordSchema, f: Field, column: str, names: Sequence[str]) -> str:
    """What to do about a field that has no column."""
    if near := [n for n in names if _plain(n) == _plain(column)]:
        return (
            f"If it is {near[0]!r}: columns={{{f.name!r}: {near[0]!r}}}, or"
            f" {f.name}: Annotated[..., rs.field(name={near[0]!r})]."
        )
    for delimiter in _DELIMITERS if len(names) == 1 else "":
        if _plain(column) in map(_plain, names[0].split(delimiter)):
            return f"These are several names in one: delimiter={delimiter!r} reads them apart."
    return (
        f"Give {schema.name}.{f.name} a default if files may lack it, or say which it is:"
        f" columns={{{f.name!r}: ...}}."
    )


def _scalar(value: Any, f: Field) -> Any:
    kind = arrow_type(f)
    return pa.scalar(value, kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def place_value(f: Field, column: str, text: str | None, name: str) -> Any:
    """The value of a field that is in the name of a folder, as an Arrow scalar.

    Raises:
        InputError: it does not fit the field.
    """
    kind = arrow_type(f, "text")
    try:
        if text is None and not f.optional:
            raise ValueError("no value")
        return pa.scalar(text, pa.string()).cast(kind)
    except ValueError:
        raise InputError(
            f"{name}: {column!r} is {text!r} in the path, which does not fit {f.declared}.",
            hint="Declare a type that holds it, such as str.",
        ) from None
