"""Avro: with a schema registry, or with one schema that both sides know."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import pyarrow as pa

from raystream.api.batch import Batch
from raystream.errors import ConfigError, GraphError, InputError, caller, placed
from raystream.io.files.columns import renamed
from raystream.io.files.declared import table_of
from raystream.io.formats.avro_columns import (
    AvroField,
    Unfit,
    array_of,
    decoded,
    encoded,
    fields_of,
    fits,
    local_times,
)
from raystream.io.formats.base import Codec, Format
from raystream.io.formats.registry import (
    FRAME_BYTES,
    Registry,
    SchemaRegistry,
    Settings,
    framed,
    settings_of,
    unframed,
)
from raystream.io.formats.values import NAIVE, ValueRows
from raystream.schema.fields import AnyRecord

U = TypeVar("U", bound=AnyRecord)


@placed
def avro(
    *,
    registry: Registry | None = None,
    schema: str | Mapping[str, Any] | None = None,
    subject: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> AvroFormat:
    """Avro: a message is a record in binary.

    With a registry each message begins with the number of its schema, as Confluent's tools write
    it; messages are read by the schema with which they were written. Without, all messages are
    written by one schema, and have nothing before them.

    Args:
        registry: its URL, or settings of Confluent's client: `{"url": ...,
            "basic.auth.user.info": ...}`.
        schema: a schema, as text or as JSON in Python. Unless given it follows from the record.
        subject: under which the schema is registered. Unless given the connector says it:
            `orders-value`.
        columns: the names of fields in messages, where they are others.

    Raises:
        ConfigError: an argument cannot be.
    """
    text = schema if isinstance(schema, str) or schema is None else _dumped(schema)
    if text is not None:
        try:
            json.loads(text)
        except ValueError as error:
            raise ConfigError(f"avro(schema=...) is no JSON: {error}", where=caller()[0]) from None
    if subject is not None and (not isinstance(subject, str) or not subject):
        raise ConfigError(f"avro(subject={subject!r:.80}): a name", where=caller()[0])
    settings = None if registry is None else settings_of("avro", registry)
    return AvroFormat(settings, text, subject or "", renamed(columns))


def _in_zone(value: datetime | None, name: str, zone: str | None) -> datetime | None:
    """A time as a message has it that does not name its zone."""
    if value is None:
        return None
    if zone is None:
        raise InputError(f"Avro has {name!r} as a local-timestamp", hint=NAIVE)
    return value.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def _dumped(schema: Any) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"avro(schema=...) is no JSON: {error}", where=caller()[0]) from None


@dataclass(frozen=True)
class AvroFormat(Format):
    """Avro; the attributes are the arguments of `avro`."""

    registry: Settings | None = field(default=None, repr=False)
    schema: str | None = None
    subject: str = ""
    columns: tuple[tuple[str, str], ...] = ()

    def codec(self, record: type[U], /, *, subject: str = "") -> Codec[U]:
        return AvroCodec(record, self, self.subject or subject)


class AvroCodec(Codec[U]):
    """Avro of records of one type. subject: under which the schema is registered."""

    def __init__(self, record: type[U], how: AvroFormat, subject: str) -> None:
        super().__init__(record)
        try:
            import fastavro
        except ImportError as error:
            raise ConfigError(
                "rs.io.formats.avro() needs fastavro, which is not installed.",
                hint="pip install 'raystream[avro]'",
            ) from error
        self._avro: Any = fastavro
        self._rows = ValueRows(record, dict(how.columns))
        self._subject = subject
        self._registry = None if how.registry is None else SchemaRegistry(how.registry)
        self._text = how.schema or json.dumps(schema_of(record.__name__, self._rows.named))
        self._schema = self._parsed(self._text)
        self._flat = fields_of(json.loads(self._text))
        self._writers: dict[int, tuple[Any, tuple[AvroField, ...] | None]] = {}

    @cached_property
    def _number(self) -> int:
        """That of the schema with which messages are written."""
        assert self._registry is not None
        return self._registry.number(self._subject, self._text, "AVRO")

    @cached_property
    def _columns(self) -> Sequence[AvroField] | None:
        """The fields of messages, if columns of records can be written as their schema has them."""
        fields, types = self._flat or (), {f.name: f.type for f in self._rows.named}
        fit = all(f.name in types and fits(types[f.name], f) for f in fields)
        return self._flat if fit else None

    def check(self, *, writes: bool) -> str:
        if self._registry is None:
            return ""
        return self._registry.look(self._subject, "AVRO", self._text if writes else None)

    def decode(self, messages: Sequence[bytes], /) -> Batch[U]:
        if len(messages) > _FEW:
            with suppress(Unfit, InputError):
                return self._rows.batch_of_arrays(self._arrays(messages))
        return self._rows.batch([self._read(message) for message in messages])

    def encode(self, batch: Batch[U], /) -> list[bytes]:
        found = self._at_once(batch) if len(batch) > _FEW else None
        if found is None:
            found = self._one_by_one(batch)
        if self._registry is not None:
            found = [framed(self._number, message) for message in found]
        return found

    def _arrays(self, messages: Sequence[bytes]) -> list[Any]:
        """The columns of messages that have one schema.

        Raises:
            Unfit: they are to be read one by one.
        """
        fields, skip = self._flat, 0
        if self._registry is not None:
            if len({message[:FRAME_BYTES] for message in messages}) > 1:
                raise Unfit
            number, _ = unframed(messages[0])
            fields, skip = self._written(number)[1], FRAME_BYTES
        if fields is None:
            raise Unfit
        by_name = {f.name: f for f in fields}
        found = decoded(fields, messages, skip)
        arrays = []
        for f in self._rows.named:
            if f.name not in by_name or not fits(f.type, by_name[f.name]):
                raise Unfit
            arrays.append(array_of(f.type, by_name[f.name], *found[f.name]))
        return arrays

    def _at_once(self, batch: Batch[U]) -> list[bytes] | None:
        """The messages of records, if they are flat."""
        if self._columns is None:
            return None
        columns = dict(zip(self._rows.named.names, table_of(batch).columns, strict=True))
        try:
            return encoded(self._columns, [columns[f.name] for f in self._columns])
        except (Unfit, pa.ArrowException):
            return None

    def _one_by_one(self, batch: Batch[U]) -> list[bytes]:
        rows, found = self._rows.rows(batch), []
        for row in rows:
            for name in self._local:
                row[name] = _in_zone(row[name], name, self._rows.zones[name])
            buffer = io.BytesIO()
            try:
                self._avro.schemaless_writer(buffer, self._schema, row)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                raise InputError(f"Avro cannot hold a {self.record.__name__}: {error}") from None
            found.append(buffer.getvalue())
        return found

    @cached_property
    def _local(self) -> list[str]:
        """The values that are times without a zone in the messages that are written."""
        return [name for name in local_times(json.loads(self._text)) if name in self._rows.zones]

    def _written(self, number: int) -> tuple[Any, tuple[AvroField, ...] | None]:
        """The schema of messages with this number, and its fields if they are simple."""
        if number not in self._writers:
            assert self._registry is not None
            text = self._registry.schema(number)
            self._writers[number] = self._parsed(text), fields_of(json.loads(text))
        return self._writers[number]

    def _read(self, message: bytes) -> dict[str, Any]:
        schema = self._schema
        if self._registry is not None:
            number, message = unframed(message)
            schema = self._written(number)[0]
        buffer = io.BytesIO(message)
        try:
            found = self._avro.schemaless_reader(buffer, schema, None)
        except Exception as error:  # whatever damaged bytes make of it
            raise InputError(f"no Avro: {type(error).__name__}: {error}") from None
        if buffer.read(1):
            raise InputError("no Avro: there are bytes behind the record")
        if not isinstance(found, dict):
            raise InputError("it is no record of Avro")
        return found

    def _parsed(self, text: str) -> Any:
        try:
            return self._avro.parse_schema(json.loads(text))
        except Exception as error:
            raise ConfigError(f"a schema of Avro is none: {error}") from None


_FEW = 16
"""Up to this many messages are taken one by one."""


# ---------------------------------------------------------------- the schema of a record


def schema_of(name: str, fields: Any) -> dict[str, Any]:
    """The schema of Avro for records. fields: their Arrow schema.

    Raises:
        GraphError: Avro has no type for a field.
    """
    return _record(name, fields)


def _record(name: str, fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [_field(name, f) for f in fields],
    }


def _field(within: str, f: Any) -> dict[str, Any]:
    kind = _type(f"{within}_{f.name}", f.type)
    if f.nullable:
        return {"name": f.name, "type": ["null", kind], "default": None}
    return {"name": f.name, "type": kind}


_SIMPLE: dict[str, Any] = {
    "bool": "boolean", "int8": "int", "int16": "int", "int32": "int", "uint8": "int",
    "uint16": "int", "uint32": "long", "int64": "long", "uint64": "long", "float": "float",
    "double": "double", "string": "string", "binary": "bytes",
    "date32[day]": {"type": "int", "logicalType": "date"},
    "duration[us]": "long",
}  # fmt: skip


def _type(name: str, kind: Any) -> Any:
    if (simple := _SIMPLE.get(str(kind))) is not None:
        return simple
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-micros"}
    if pa.types.is_time(kind):
        return {"type": "long", "logicalType": "time-micros"}
    if pa.types.is_decimal(kind):
        digits = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **digits}
    if isinstance(kind, pa.BaseExtensionType):  # a UUID
        return {"type": "string", "logicalType": "uuid"}
    if pa.types.is_fixed_size_binary(kind):
        return {"type": "fixed", "name": f"{name}_bytes", "size": kind.byte_width}
    if pa.types.is_list(kind):
        inner = _type(f"{name}_item", kind.value_type)
        nullable = kind.value_field.nullable
        return {"type": "array", "items": ["null", inner] if nullable else inner}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        inner = _type(f"{name}_value", kind.item_type)
        return {"type": "map", "values": ["null", inner] if kind.item_field.nullable else inner}
    if pa.types.is_struct(kind):
        return _record(name, list(kind))
    raise GraphError(
        f"Avro has no type for {name.replace('_', '.')}: {kind}",
        where=caller()[0],
        hint="Keys of dicts are text in Avro. Use another type, or rs.io.formats.json().",
    )
