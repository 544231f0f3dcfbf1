"""Protobuf: messages of a class that `protoc` made."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from functools import cached_property
from typing import Any, TypeVar

from raystream.api.batch import Batch
from raystream.errors import ConfigError, GraphError, InputError, caller, placed
from raystream.io.files.columns import renamed
from raystream.io.formats.base import Codec, Format
from raystream.io.formats.registry import (
    Registry,
    SchemaRegistry,
    Settings,
    framed,
    settings_of,
    unframed,
)
from raystream.io.formats.values import ValueRows
from raystream.schema.fields import AnyRecord

U = TypeVar("U", bound=AnyRecord)


@placed
def protobuf(
    message: type[Any],
    /,
    *,
    registry: Registry | None = None,
    subject: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> ProtobufFormat:
    """Protobuf: fields of records are fields of a message, by name.

    A field that a message does not have is None where it has presence (`optional`, messages), else
    its default of Protobuf. Timestamps and durations are datetimes and timedeltas, enumerations
    their names or numbers, nested messages records.

    Args:
        message: the class of the messages, as `protoc` makes it.
        registry: as of `avro`: messages then begin with the number of a schema.
        subject: as of `avro`.
        columns: the names of fields in messages, where they are others.

    Raises:
        ConfigError: an argument cannot be.
    """
    if not isinstance(message, type) or not hasattr(message, "DESCRIPTOR"):
        raise ConfigError(
            f"protobuf({message!r:.80}) is no class of Protobuf messages",
            where=caller()[0],
            hint="from orders_pb2 import Order; rs.io.formats.protobuf(Order)",
        )
    if subject is not None and (not isinstance(subject, str) or not subject):
        raise ConfigError(f"protobuf(subject={subject!r:.80}): a name", where=caller()[0])
    settings = None if registry is None else settings_of("protobuf", registry)
    return ProtobufFormat(message, settings, subject or "", renamed(columns))


@dataclass(frozen=True)
class ProtobufFormat(Format):
    """Protobuf; the attributes are the arguments of `protobuf`."""

    message: Any
    registry: Settings | None = field(default=None, repr=False)
    subject: str = ""
    columns: tuple[tuple[str, str], ...] = ()

    def codec(self, record: type[U], /, *, subject: str = "") -> Codec[U]:
        return ProtobufCodec(record, self, self.subject or subject)


class ProtobufCodec(Codec[U]):
    """Protobuf of records of one type. subject: under which the schema is registered."""

    def __init__(self, record: type[U], how: ProtobufFormat, subject: str) -> None:
        super().__init__(record)
        self._message = how.message
        self._rows = ValueRows(record, dict(how.columns))
        self._subject = subject
        self._registry = None if how.registry is None else SchemaRegistry(how.registry)
        self._indexes = _indexes(how.message.DESCRIPTOR)
        self._names = list(self._rows.named.names)
        known = how.message.DESCRIPTOR.fields_by_name
        if unknown := [name for name in self._names if name not in known]:
            raise GraphError(
                f"{how.message.DESCRIPTOR.name} has no field {unknown[0]!r}, which"
                f" {record.__name__} declares",
                where=caller()[0],
                hint=f"It has {', '.join(known)}. columns= says what is called otherwise.",
            )

    @cached_property
    def _number(self) -> int:
        """That of the schema with which messages are written."""
        assert self._registry is not None
        return self._registry.number(self._subject, self._text(), "PROTOBUF")

    def _text(self) -> str:
        """The schema, as registries take it beside a text."""
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        file = FileDescriptorProto()
        self._message.DESCRIPTOR.file.CopyToProto(file)
        return base64.standard_b64encode(file.SerializeToString()).decode()

    def check(self, *, writes: bool) -> str:
        if self._registry is None:
            return ""
        return self._registry.look(self._subject, "PROTOBUF", self._text() if writes else None)

    def decode(self, messages: Sequence[bytes], /) -> Batch[U]:
        return self._rows.batch([self._read(message) for message in messages])

    def encode(self, batch: Batch[U], /) -> list[bytes]:
        found = []
        for row in self._rows.rows(batch):
            message = self._message()
            try:
                _fill(message, row)
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise InputError(
                    f"{self._message.DESCRIPTOR.name} cannot hold a {self.record.__name__}: {error}"
                ) from None
            found.append(message.SerializeToString(deterministic=True))
        if self._registry is not None:
            found = [framed(self._number, message, self._indexes) for message in found]
        return found

    def _read(self, data: bytes) -> dict[str, Any]:
        from google.protobuf.message import DecodeError

        if self._registry is not None:
            _, data = unframed(data)
            if not data.startswith(self._indexes):
                raise InputError(f"it is another message than {self._message.DESCRIPTOR.name}")
            data = data[len(self._indexes) :]
        try:
            message = self._message.FromString(data)
        except DecodeError as error:
            raise InputError(f"no Protobuf: {error}") from None
        return _values(message, self._names)


def _indexes(descriptor: Any) -> bytes:
    """Which message of its file a message is: a list of numbers, as registries have it."""
    path: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        siblings = (
            list(descriptor.file.message_types_by_name.values())
            if parent is None
            else list(parent.nested_types)
        )
        path.insert(0, [s.full_name for s in siblings].index(descriptor.full_name))
        descriptor = parent
    if path == [0]:
        return b"\0"
    return b"".join(map(_zigzag, [len(path), *path]))


def _zigzag(number: int) -> bytes:
    number, found = number << 1, bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _values(message: Any, names: Sequence[str] | None = None) -> dict[str, Any]:
    """The fields of a message by name."""
    known = message.DESCRIPTOR.fields_by_name
    return {name: _field(message, known[name]) for name in names or known}


def _field(message: Any, f: Any) -> Any:
    value = getattr(message, f.name)
    if _is_map(f):
        item = f.message_type.fields_by_name["value"]
        return [(key, _value(value[key], item)) for key in sorted(value)]
    if f.is_repeated:
        return [_value(v, f) for v in value]
    if f.has_presence and not message.HasField(f.name):
        return None
    return _value(value, f)


def _is_map(f: Any) -> bool:
    return f.message_type is not None and f.message_type.GetOptions().map_entry


def _value(value: Any, f: Any) -> Any:
    if f.enum_type is not None:
        known = f.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    if f.message_type is None:
        return value
    if f.message_type.full_name == "google.protobuf.Timestamp":
        return value.ToDatetime(tzinfo=UTC)
    if f.message_type.full_name == "google.protobuf.Duration":
        return value.ToTimedelta()
    return _values(value)


def _fill(message: Any, row: Mapping[str, Any]) -> None:
    """Set the fields of a message."""
    known = message.DESCRIPTOR.fields_by_name
    for name, value in row.items():
        if value is None:
            continue
        f = known[name]
        held = getattr(message, name)
        if _is_map(f):
            of_messages = f.message_type.fields_by_name["value"].message_type is not None
            for key, each in value.items():
                if of_messages:
                    _put(held[key], each)
                else:
                    held[key] = each
        elif f.is_repeated:
            for each in value:
                if f.message_type is None:
                    held.append(each)
                else:
                    _put(held.add(), each)
        elif f.message_type is not None:
            _put(held, value)
        elif f.enum_type is not None and isinstance(value, str):
            setattr(message, name, f.enum_type.values_by_name[value].number)
        else:
            setattr(message, name, value)


def _put(message: Any, value: Any) -> None:
    kind = message.DESCRIPTOR.full_name
    message.SetInParent()
    if kind == "google.protobuf.Timestamp":
        message.FromDatetime(value)
    elif kind == "google.protobuf.Duration":
        message.FromMicroseconds(value)
    else:
        _fill(message, value)
