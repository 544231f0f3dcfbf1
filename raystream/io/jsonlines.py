"""JSON Lines: an object per line, as a source and as the form of parts.

Lists, and tuples of one type, are arrays; dicts, records and other tuples (of `f0`, `f1` and so on,
as in Parquet) are objects; bytes are text in base64.
"""

from __future__ import annotations

import base64
import json
import typing
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from raystream.errors import GraphError, InputError
from raystream.io.conform import file_schema
from raystream.io.files import BATCH_ROWS
from raystream.io.nested import bare, inside
from raystream.io.rolling import Parts
from raystream.schema.fields import Field
from raystream.schema.records import RecordSchema, is_record, record_schema

U = TypeVar("U", bound=tuple[Any, ...])

JSON_SUFFIXES = tuple(
    name + packed for name in (".jsonl", ".ndjson", ".json") for packed in ("", ".gz")
)


@dataclass(frozen=True)
class JsonLine(Generic[U]):
    """Makes a record of a line; of one that is blank, none.

    A field that a line does not have is its default, or None where that may be; of equal names the
    last one counts.
    """

    record: type[U]

    def __call__(self, line: str) -> U | None:
        """Raises `InputError`: it is no JSON object, or a value does not fit its field."""
        line = line.removeprefix("\ufeff")
        if not line.strip():
            return None
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"no JSON: {error}", hint=_shown(line)) from None
        if not isinstance(found, dict):
            raise InputError("no JSON object", hint=_shown(line))
        return typing.cast("U", _record(found, self.record, ""))


def _shown(line: str) -> str:
    return f"JSON Lines have an object on each line; this one is {line[:80]!r}."


_MISSING = object()


@cache
def _fields(record: type) -> list[tuple[Field, type | None]]:
    """The fields, and of plain ones the type of which most values are: these are taken as found."""
    plain = {"?": bool, "f4": float, "f8": float}
    return [
        (f, {"fixed": plain.get(f.dtype, int), "text": str}.get(f.kind))
        for f in record_schema(record).fields
    ]


def _record(found: dict[str, Any], record: type, within: str) -> Any:
    values = []
    for f, plain in _fields(record):
        value = found.get(f.name, _MISSING)
        if type(value) is not plain:
            if value is _MISSING:
                value = _default(record, f, within)
            else:
                value = _value(value, f, within + f.name)
        values.append(value)
    return record(*values)


def _default(record: type, f: Field, within: str) -> Any:
    defaults: dict[str, Any] = getattr(record, "_field_defaults", {})
    if f.name not in defaults and not f.optional:
        raise InputError(
            f"{within + f.name!r} is missing",
            hint=f"Give {record.__name__}.{f.name} a default, or the line a value.",
        )
    return defaults.get(f.name)


def _value(value: Any, f: Field, path: str) -> Any:
    """A value of JSON as one of the field's own type. path: where in the line it is."""
    kind = type(value)
    if value is None and f.optional:
        return None
    if f.kind == "text" and kind is str:
        return value
    if f.kind == "bytes" and kind is str:
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            raise _misfit(value, f, path) from None
    if f.kind == "fixed" and kind is bool and f.dtype == "?":
        return value
    if f.kind == "fixed" and kind in (int, float) and f.dtype != "?":
        return _number(value, f, path)
    if f.kind == "object" and kind in (list, dict):
        return _built(value, f, path)
    raise _misfit(value, f, path)


def _number(value: float, f: Field, path: str) -> float:
    if not f.integer:
        with suppress(OverflowError):
            return float(value)
    elif type(value) is int or value.is_integer():
        return int(value)
    raise _misfit(value, f, path)


def _built(value: Any, f: Field, path: str) -> Any:
    hint, (shape, inner) = bare(f.convert), inside(f)
    if shape == "list" and isinstance(value, list):
        items = [_value(v, inner["item"], f"{path}[{i}]") for i, v in enumerate(value)]
        return tuple(items) if typing.get_origin(hint) is tuple else items
    if shape == "map" and isinstance(value, dict):
        key, of = inner["key"], inner["value"]
        built = {
            _value(_key(k, key, path), key, path): _value(v, of, f"{path}[{k!r}]")
            for k, v in value.items()
        }
        if len(built) == len(value):  # "1" and "1.0" are one number
            return built
    if shape == "struct":
        if isinstance(value, dict) and is_record(hint):
            return _record(value, hint, f"{path}.")
        if isinstance(value, list):
            value = {f"f{i}": v for i, v in enumerate(value)}
        if not is_record(hint) and value.keys() == inner.keys():
            return tuple(_value(value[n], g, f"{path}.{n}") for n, g in inner.items())
    raise _misfit(value, f, path)


def _key(text: str, f: Field, path: str) -> Any:
    """What a key that was written as text was."""
    try:
        return text if f.kind == "text" else json.loads(text)
    except ValueError:
        raise _misfit(text, f, path) from None


def _misfit(value: Any, f: Field, path: str) -> InputError:
    return InputError(
        f"{path!r} is {value!r:.80}, which does not fit {f.declared}",
        hint="Mend the line, or declare a type that holds it.",
    )


@dataclass(frozen=True)
class JsonForm:
    """NaN and the infinite are written as `NaN`, `Infinity` and `-Infinity`."""

    suffix: ClassVar[str] = ".jsonl"

    def write(self, table: Any, path: Path) -> None:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for rows in table.to_batches(BATCH_ROWS):
                for row in rows.to_pylist(maps_as_pydicts="strict"):
                    line = json.dumps(row, ensure_ascii=False, default=_base64)
                    file.write(line + "\n")

    def read(self, path: Path, schema: Any) -> Any:
        with open(path, encoding="utf-8", newline="\n") as file:
            rows = [_plain(json.loads(line), pa.struct(schema)) for line in file]
        return pa.Table.from_pylist(rows, schema)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _plain(value: Any, type_: Any) -> Any:
    """What `JsonForm` wrote, in the shape from which Arrow builds it."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {f.name: _plain(value[f.name], f.type) for f in type_}
    if pa.types.is_map(type_):
        keys = value if pa.types.is_string(type_.key_type) else map(json.loads, value)
        return [(k, _plain(v, type_.item_type)) for k, v in zip(keys, value.values(), strict=True)]
    if pa.types.is_list(type_):
        return [_plain(v, type_.value_type) for v in value]
    return base64.b64decode(value) if pa.types.is_binary(type_) else value


class JsonParts(Parts):
    """Parts in JSON Lines."""

    def _accept(self, schema: RecordSchema) -> None:
        """Refuse records, when the flow is built, with keys that JSON cannot hold, or what says not
        what it holds."""
        file_schema(schema)
        for f in schema.fields:
            _check_keys(f, f"{schema.name}.{f.name}")


def _check_keys(f: Field, name: str) -> None:
    if f.kind != "object":
        return
    shape, inner = inside(f)
    if shape == "map" and inner["key"].kind not in ("text", "fixed"):
        raise GraphError(
            f"JSON cannot hold {name}: its keys are neither text nor numbers.",
            hint="Write it with rs.io.parquet.",
        )
    for g in inner.values():
        _check_keys(g, name)
