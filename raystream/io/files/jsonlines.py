"""JSON Lines: an object per line, as a source and as the form of parts.

Lists, and tuples of one type, are arrays; dicts, records and other tuples (of `f0`, `f1` and so on,
as in Parquet) are objects; bytes are text in base64.
"""

from __future__ import annotations

import base64
import json
import re
import typing
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from raystream.errors import ConfigError, GraphError, InputError
from raystream.io.files.declared import file_schema
from raystream.io.files.json_values import EXACT
from raystream.io.files.listing import BATCH_ROWS
from raystream.io.files.nested import JSON, Form, bare, inside
from raystream.io.output.json_text import json_objects
from raystream.io.output.sink import PartSink
from raystream.schema.fields import AnyRecord, Field, is_record
from raystream.schema.records import defaults_of, record_maker, record_schema
from raystream.schema.value_kind import Misfit, ValueKind

U = TypeVar("U", bound=AnyRecord)

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class JsonLine(Generic[U]):
    """Makes a record of a line; of one that is blank, none.

    A field that a line does not have is what the folders on the way to the file say, else its
    default, or None where that may be; of equal names the last one counts.
    """

    record: type[U]
    mapping: tuple[tuple[str, JsonPath], ...] = ()
    """Fields whose values are found elsewhere than by their own names."""
    places: tuple[tuple[str, Any], ...] = ()
    """Fields whose values are in the path of the file."""

    def __call__(self, line: str) -> U | None:
        """Raises `InputError`: it is no JSON object, or a value does not fit its field."""
        line = line.removeprefix("\ufeff")
        if not line.strip():
            return None
        exact = _wants_digits(typing.cast("Any", self.record))
        try:
            return self.of(_decoded(line, exact))
        except _Rounded:
            return self.of(_decoded(line, exact=True))

    def of(self, found: Any) -> U:
        """A record of a value of JSON, as `json_values.EXACT` decodes it. Raises `InputError`, as
        above."""
        if not isinstance(found, dict):
            raise InputError("no JSON object", hint=f"It is {found!r:.80}.")
        if self.mapping:
            there = {f: _at(found, path) for f, path in self.mapping}
            found = found | there
            for f in [f for f, value in there.items() if value is _MISSING]:
                del found[f]
        if self.places:
            found = dict(self.places) | found
        return typing.cast("U", _record(found, self.record, ""))


def _decoded(line: str, exact: bool) -> Any:
    try:
        found = EXACT.decode(line) if exact else json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"no JSON: {error}", hint=_shown(line)) from None
    if not isinstance(found, dict):
        raise InputError("no JSON object", hint=_shown(line))
    return found


@cache
def _wants_digits(record: type) -> bool:
    """Whether a field takes numbers digit by digit, as decimals do; decoding them as floats, which
    is faster, would lose some."""
    return any(_takes_digits(f) for f in record_schema(record).fields)


def _takes_digits(f: Field) -> bool:
    if f.value is not None:
        return not f.value.members
    return f.kind == "object" and any(_takes_digits(g) for g in inside(f)[1].values())


class _Rounded(Exception):
    """A whole number is in question that was decoded as a float, and is too large for one."""


JsonPath = tuple[str | int, ...]
"""Where a value is: the names of objects and positions in arrays on the way to it."""


def json_path(name: str) -> JsonPath:
    """The path that `columns=` says: `$.user.id` and `$.tags[0]` are paths, all else one name.

    Raises:
        ConfigError: it begins as a path and is none.
    """
    if not name.startswith("$."):
        return (name,)
    steps = _STEP.findall(name[1:])
    if not steps or "".join(whole for whole, *_ in steps) != name[1:]:
        raise ConfigError(
            f"columns= says {name!r}, which is no path",
            hint='For example "$.user.id" or "$.tags[0]"; a name that begins with "$." is'
            " \"$.['$.x']\".",
        )
    return tuple(int(n) if n else plain or quoted for _, plain, n, quoted in steps)


_STEP = re.compile(r"(\.([^.\[\]]+)|\.?\[(\d+)\]|\.?\['([^']*)'\])")


def _at(found: Any, path: JsonPath) -> Any:
    for step in path:
        if isinstance(step, int):
            if not isinstance(found, list) or step >= len(found):
                return _MISSING
            found = found[step]
        elif not isinstance(found, dict) or step not in found:
            return _MISSING
        else:
            found = found[step]
    return found


def _shown(line: str) -> str:
    return f"JSON Lines have an object on each line; this one is {line[:80]!r}."


_MISSING = object()


@cache
def _fields(record: type) -> list[tuple[Field, type | None]]:
    """The fields, and of plain ones the type of which most values are: these are taken as found."""
    plain = {"?": bool, "f4": float, "f8": float}
    return [
        (
            f,
            {"fixed": plain.get(f.dtype, int), "text": str}.get(f.kind)
            if f.value is None
            else None,
        )
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
    return record_maker(record)(values)


def _default(record: type, f: Field, within: str) -> Any:
    defaults = defaults_of(record)
    if f.name not in defaults and not f.optional:
        raise InputError(
            f"{within + f.name!r} is missing",
            hint=f"Give {record.__name__}.{f.name} a default, or the line a value.",
        )
    return defaults[f.name]() if f.name in defaults else None


def _value(value: Any, f: Field, path: str) -> Any:
    """A value of JSON as one of the field's own type. path: where in the line it is."""
    kind = type(value)
    if value is None and f.optional:
        return None
    if f.value is not None:
        return _of_kind(value, f, f.value, path)
    if f.kind == "text" and kind is str:
        return value
    if f.kind == "bytes" and kind is str:
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            raise _misfit(value, f, path) from None
    if f.kind == "fixed" and kind is bool and f.dtype == "?":
        return value
    if f.kind == "fixed" and kind in (int, float, Decimal) and f.dtype != "?":
        return _number(value, f, path)
    if f.kind == "object":
        return _built(value, f, path)
    raise _misfit(value, f, path)


def _of_kind(value: Any, f: Field, kind: ValueKind, path: str) -> Any:
    """A value of JSON as one of a kind: members as they are stored, all others as text; lengths
    and decimals as numbers, too, of as many digits as JSON has of them."""
    try:
        if kind.members:
            if type(value) is bool and bool not in map(type, kind.members):
                raise _misfit(value, f, path)
            plain = float(value) if type(value) is Decimal else value
            return kind.restore((kind.stored == "bytes" and base64.b64decode(value)) or plain)
        if isinstance(value, str):
            return kind.parse(value)
        number = type(value) in (int, float, Decimal)
        if number and kind.name != "date" and kind.stored != "bytes":
            return kind.parse(str(value))
    except Misfit as error:
        raise InputError(f"{path!r}: {error}", hint=error.hint) from None
    except (ValueError, ArithmeticError, TypeError):
        pass
    raise _misfit(value, f, path)


def _number(value: float | Decimal, f: Field, path: str) -> float:
    if not f.integer:
        with suppress(OverflowError):
            return float(value)
    elif type(value) is int:
        return value
    elif isinstance(value, Decimal):
        if value.adjusted() < _DIGITS and value == value.to_integral_value():
            return int(value)
    elif value.is_integer():
        if abs(value) >= _ROUNDED:
            raise _Rounded
        return int(value)
    raise _misfit(value, f, path)


_ROUNDED = 1 << 53
"""From here on floats have not all whole numbers."""
_DIGITS = 20
"""No int of 64 bits has more."""


def _built(value: Any, f: Field, path: str) -> Any:
    hint, (shape, inner) = bare(f.hint), inside(f)
    if shape == "any":
        return _any_of(value, list(inner.values()), f, path)
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


def _any_of(value: Any, parts: list[Field], f: Field, path: str) -> Any:
    """A value of one of several types: of the first that takes it as it is, before those that
    would make something else of it, as a float of an int."""
    for part in sorted(parts, key=lambda g: {"f8": 1}.get(g.dtype, 2 * (g.kind == "text"))):
        point = type(value) in (float, Decimal)
        if point and part.kind == "fixed" and part.value is None and part.integer:
            continue
        with suppress(InputError):
            return _value(value, part, path)
    raise _misfit(value, f, path)


def _key(text: str, f: Field, path: str) -> Any:
    """What a key that was written as text was."""
    try:
        if f.kind == "text" or (f.value is not None and not f.value.members):
            return text
        return EXACT.decode(text)
    except ValueError:
        raise _misfit(text, f, path) from None


def _misfit(value: Any, f: Field, path: str) -> InputError:
    shown = str(value) if isinstance(value, Decimal) else repr(value)
    return InputError(
        f"{path!r} is {shown:.80}, which does not fit {f.declared}",
        hint="Mend the line, or declare a type that holds it.",
    )


@dataclass(frozen=True)
class JsonForm:
    """NaN and the infinite are written as `NaN`, `Infinity` and `-Infinity`."""

    suffix: ClassVar[str] = ".jsonl"
    values: ClassVar[Form] = "json"

    def write(self, table: Any, path: Path) -> None:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for rows in table.to_batches(BATCH_ROWS):
                texts = json_objects(rows, table.schema.names).to_pylist()
                file.writelines(f"{text}\n" for text in texts)

    def read(self, path: Path, schema: Any) -> Any:
        with open(path, encoding="utf-8", newline="\n") as file:
            rows = [json.loads(line) for line in file]
        columns = {f.name: [_plain(row[f.name], f) for row in rows] for f in schema}
        return pa.Table.from_pydict(columns, schema)


def _plain(value: Any, field: Any) -> Any:
    """What `JsonForm` wrote, in the shape from which Arrow builds it."""
    if value is None:
        return None
    if field.metadata == JSON:
        return json.dumps(value, ensure_ascii=False)
    return base64.b64decode(value) if pa.types.is_binary(field.type) else value


class JsonParts(PartSink):
    """A sink of files in JSON Lines."""

    def accept(self, record: type[Any], /) -> None:
        """Refuse records with keys that JSON cannot hold, or that do not say what they hold."""
        super().accept(record)
        schema = record_schema(record)
        file_schema(schema, "json")
        for f in schema.fields:
            check_keys(f, f"{schema.name}.{f.name}")


def check_keys(f: Field, name: str) -> None:
    """Refuse fields with keys that JSON cannot hold. name: of the field, for the message."""
    if f.kind != "object":
        return
    shape, inner = inside(f)
    if shape == "map" and inner["key"].kind not in ("text", "fixed") and not inner["key"].value:
        raise GraphError(
            f"JSON cannot hold {name}: its keys are neither text nor numbers.",
            hint="Write it with rs.io.parquet.",
        )
    for g in inner.values():
        check_keys(g, name)
