"""Which part of a message holds which field of a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raystream.errors import ConfigError, GraphError
from raystream.io.formats import Format
from raystream.io.formats.json import JsonFormat
from raystream.io.formats.plain import RawFormat
from raystream.schema.fields import Field
from raystream.schema.records import defaults_of, record_schema


@dataclass(frozen=True)
class Layout:
    """Where the fields of records are in messages. Fields that are nowhere else are in the value.

    Attributes:
        format: of values. key_format: of keys.
        key: the fields in the key.
        timestamp: the field that is the timestamp.
        headers: fields that are headers, with their names.
        delete: the bool field that says that the value is null.
        unit: of an int field that is the timestamp.
    """

    format: Format
    key: tuple[str, ...] = ()
    key_format: Format = field(default_factory=RawFormat)
    timestamp: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    delete: str | None = None
    unit: str = "s"

    def value_of(self, record: type[Any]) -> tuple[str, ...]:
        """The fields in the value."""
        apart = {*self.key, *dict(self.headers), self.timestamp, self.delete}
        return tuple(n for n in record_schema(record).names if n not in apart)

    def check(self, call: str, record: type[Any]) -> None:
        """Refuse a record that messages cannot stand for.

        Raises:
            GraphError: a field is not there or of another type.
        """
        schema = record_schema(record)
        named = [*self.key, *dict(self.headers), *filter(None, (self.timestamp, self.delete))]
        for name in named:
            if schema.field(name) is None:
                raise GraphError(
                    f"{call}: {schema.name} has no field {name!r}",
                    hint=f"It has {', '.join(schema.names)}.",
                )
        if len(set(named)) < len(named):
            twice = next(n for n in named if named.count(n) > 1)
            raise GraphError(f"{call}: the field {twice!r} is in two parts of the message")
        for name, _ in self.headers:
            f = schema.field(name)
            if f is None or f.kind not in ("text", "bytes") or f.value is not None:
                raise GraphError(f"{call}: a header is str or bytes, and {f} is neither")
        if self.timestamp is not None:
            f = schema.field(self.timestamp)
            if f is None or not schema.has_time(self.timestamp):
                raise GraphError(
                    f"{call}(timestamp={self.timestamp!r}): an int or a datetime, and not {f}"
                )
        if self.delete is not None:
            f = schema.field(self.delete)
            if f is None or f.dtype != "?" or f.optional:
                raise GraphError(f"{call}(delete={self.delete!r}): a bool, and not {f}")
            if not self.key:
                raise GraphError(f"{call}(delete={self.delete!r}) needs key=: what is deleted")

    def check_blanks(self, call: str, record: type[Any]) -> None:
        """Refuse `delete=` where a message without a value makes no record.

        Raises:
            GraphError: a field has no default and may not be None.
        """
        if self.delete is None:
            return
        for name in self.value_of(record):
            if blank_of(record, name) is None and not _field(record, name).optional:
                raise GraphError(
                    f"{call}(delete={self.delete!r}): {record.__name__}.{name} has no value when"
                    " something is deleted",
                    hint="Give it a default, or let it be None.",
                )


def blank_of(record: type[Any], name: str) -> Any:
    """What a field is in a message that does not have it: its default, or None."""
    cls: Any = record
    default = defaults_of(cls).get(name)
    return None if default is None else default()


def _field(record: type[Any], name: str) -> Field:
    found = record_schema(record).field(name)
    assert found is not None
    return found


def layout_of(
    call: str,
    record: type[Any] | None,
    *,
    format: Any,
    key: Any,
    key_format: Any,
    timestamp: Any,
    headers: Any,
    delete: Any,
) -> Layout:
    """The layout of a user, checked against the record if it is known.

    Raises:
        ConfigError: an argument is of another type.
        GraphError: the record does not fit.
    """
    for name, given in (("format", format), ("key_format", key_format)):
        if given is not None and not isinstance(given, Format):
            raise ConfigError(
                f"{call}({name}={given!r:.80}): a format",
                hint="rs.io.formats.json(), raw() or function(...)",
            )
    if key is not None and not isinstance(key, str | list | tuple):
        raise ConfigError(f"{call}(key={key!r:.80}): the name of a field, or of several")
    fields = (key,) if isinstance(key, str) else tuple(key or ())
    if headers is not None and not isinstance(headers, Mapping):
        raise ConfigError(f"{call}(headers={headers!r:.80}): the names of headers by field")
    named = [*fields, *(headers or {}), *(headers or {}).values()]
    named += [n for n in (timestamp, delete) if n is not None]
    if wrong := [n for n in named if not (isinstance(n, str) and n)]:
        raise ConfigError(f"{call}: {wrong[0]!r:.80} is no name of a field or a header")
    made = Layout(
        format=format or JsonFormat(),
        key=fields,
        key_format=key_format or (RawFormat() if len(fields) < 2 else JsonFormat()),
        timestamp=timestamp,
        headers=tuple((headers or {}).items()),
        delete=delete,
    )
    if record is not None:
        made.check(call, record)
    return made
