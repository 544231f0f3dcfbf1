"""Messages that are one value, and messages that a function of the user knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from raystream.api.batch import Batch
from raystream.errors import ConfigError, GraphError, InputError, caller, placed, what_was_raised
from raystream.io.files.columns import place_value
from raystream.io.files.declared import batch_of_records, table_of
from raystream.io.formats.base import Codec, Format, only_field
from raystream.schema.fields import AnyRecord
from raystream.schema.records import record_schema

U = TypeVar("U", bound=AnyRecord)


@placed
def raw() -> RawFormat:
    """A message is the value of a record's one field: its bytes in a `bytes` field, UTF-8 in a
    `str` field, and the text of a value in any other that CSV can hold, such as `42`."""
    return RawFormat()


@dataclass(frozen=True)
class RawFormat(Format):
    """One value."""

    def codec(self, record: type[U], /, *, subject: str = "") -> Codec[U]:
        name = only_field(record, "rs.io.formats.raw()")
        f = record_schema(record).field(name)
        assert f is not None
        if f.kind in ("object", "array"):
            raise GraphError(
                f"rs.io.formats.raw(): {record.__name__}.{f.declared} is no single value",
                where=caller()[0],
                hint="Use rs.io.formats.json().",
            )
        return RawCodec(record, name)


class RawCodec(Codec[U]):
    """One value of a record's one field. name: of the field."""

    def __init__(self, record: type[U], name: str) -> None:
        super().__init__(record)
        self._name = name
        f = record_schema(record).field(name)
        assert f is not None
        self._field = f
        self._bytes = f.kind == "bytes" and f.value is None

    def decode(self, messages: Sequence[bytes], /) -> Batch[U]:
        if self._bytes:
            return Batch(self.record, {self._name: [*messages]})
        try:
            texts = [message.decode() for message in messages]
        except UnicodeDecodeError:
            raise InputError("it is not UTF-8 text") from None
        f = self._field
        if f.kind == "text" and f.value is None:
            return Batch(self.record, {self._name: texts})
        known = {text: self._value(text) for text in dict.fromkeys(texts)}
        return Batch(self.record, {self._name: [known[text] for text in texts]})

    def _value(self, text: str) -> Any:
        f = self._field
        try:
            if f.value is not None:
                return f.value.parse(text)
            return place_value(f, f.name, text, "").as_py()
        except (ValueError, ArithmeticError, InputError):
            raise InputError(
                f"{f.name!r} is {text!r:.80}, which does not fit {f.declared}"
            ) from None

    def encode(self, batch: Batch[U], /) -> list[bytes]:
        f = self._field
        column = table_of(batch, "text").column(0)
        if column.null_count:
            raise InputError(
                f"{self.record.__name__}.{f.name} is None, which is no message",
                hint="Leave such records out, or use rs.io.formats.json().",
            )
        values = column.to_pylist()
        if f.kind == "bytes" and (f.value is None or f.value.members):
            return values
        if f.kind == "fixed" and f.dtype == "?":
            return [b"true" if v else b"false" for v in values]
        return [v.encode() if isinstance(v, str) else repr(v).encode() for v in values]


@placed
def function(
    decode: Callable[[bytes], U] | None = None, encode: Callable[[U], bytes] | None = None, /
) -> FunctionFormat:
    """Functions say how a message stands for a record.

    Args:
        decode: makes a record of a message. What it raises makes the message a bad one.
        encode: makes a message of a record. A source needs only the first, a sink the second.

    Raises:
        ConfigError: neither is a function.
    """
    if (decode is None and encode is None) or not all(
        f is None or callable(f) for f in (decode, encode)
    ):
        raise ConfigError(
            "rs.io.formats.function(decode, encode): functions, of which one may be None",
            hint="decode takes bytes and returns a record, encode the other way round.",
        )
    return FunctionFormat(decode, encode)


@dataclass(frozen=True)
class FunctionFormat(Format):
    """Functions of the user; they are called with one message or record at a time."""

    decode: Callable[[bytes], Any] | None = None
    encode: Callable[[Any], bytes] | None = None

    def codec(self, record: type[U], /, *, subject: str = "") -> Codec[U]:
        return FunctionCodec(record, self)


class FunctionCodec(Codec[U]):
    """The functions of a format, for records of one type."""

    def __init__(self, record: type[U], functions: FunctionFormat) -> None:
        super().__init__(record)
        self._functions = functions

    def decode(self, messages: Sequence[bytes], /) -> Batch[U]:
        if self._functions.decode is None:
            raise _lacking("decodes", "read")
        records = []
        for message in messages:
            try:
                records.append(self._functions.decode(message))
            except InputError:
                raise
            except Exception as error:
                raise InputError(what_was_raised(error)) from error
        return batch_of_records(self.record, records, lambda n: "what the function made")

    def encode(self, batch: Batch[U], /) -> list[bytes]:
        if self._functions.encode is None:
            raise _lacking("encodes", "written")
        made = [self._functions.encode(record) for record in batch.records()]
        if wrong := [m for m in made if not isinstance(m, bytes)]:
            raise InputError(
                f"rs.io.formats.function: encode returned a {type(wrong[0]).__name__}, not bytes"
            )
        return made


def _lacking(verb: str, done: str) -> GraphError:
    return GraphError(
        f"rs.io.formats.function() has no function that {verb}, and messages are to be {done}",
        where=caller()[0],
        hint="rs.io.formats.function(decode, encode)",
    )
