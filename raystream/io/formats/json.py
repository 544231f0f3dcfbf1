"""JSON: a message is an object.

Arrow decodes the messages of records that are flat, all at once. It is stricter than what
`rs.io.json` reads, and knows no defaults, so what it does not take is decoded one by one: `1.0` in
an int field, or an object without a field that has a default. So both ways give the same records;
they differ in speed only.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa

from raystream.api.batch import Batch
from raystream.errors import GraphError, InputError, placed
from raystream.io.files.columns import mapping_of
from raystream.io.files.declared import batch_of, batch_of_records, table_of
from raystream.io.files.jsonlines import JsonLine, JsonPath, check_keys, json_path
from raystream.io.formats.base import Codec, Format
from raystream.io.output.json_text import json_objects
from raystream.schema.fields import AnyRecord, Field
from raystream.schema.records import RecordSchema, defaults_of, record_schema

U = TypeVar("U", bound=AnyRecord)


@placed
def json(*, columns: Mapping[str, str] | None = None) -> JsonFormat:
    """JSON: a message is an object with a value for each field, as of `rs.io.json`.

    Args:
        columns: the names of values by field, where they are others: `{"id": "@id"}`. When messages
            are read, one that begins with `$.` is a path: `{"user": "$.actor.login"}`.

    Raises:
        ConfigError: `columns` is no mapping of names, or has a path that is none.
    """
    for column in (columns or {}).values():
        json_path(column)
    return JsonFormat(tuple((columns or {}).items()))


@dataclass(frozen=True)
class JsonFormat(Format):
    """JSON. columns: names of values by field, where they are others."""

    columns: tuple[tuple[str, str], ...] = ()

    def codec(self, record: type[U], /, *, subject: str = "") -> Codec[U]:
        known = record_schema(record).names
        return JsonCodec(record, mapping_of(record, {f: c for f, c in self.columns if f in known}))


class JsonCodec(Codec[U]):
    """JSON of records of one type. mapping: as of `JsonFormat`, with all fields that it is of."""

    def __init__(self, record: type[U], mapping: Sequence[tuple[str, str]]) -> None:
        super().__init__(record)
        paths: dict[str, JsonPath] = {f: json_path(column) for f, column in mapping}
        self._deep = [column for f, column in mapping if not _one_name(paths[f])]
        self._names = {f: str(path[0]) for f, path in paths.items()}
        self._line = JsonLine(record, tuple(paths.items()))
        self._schema = record_schema(record)
        self._defaults: dict[str, Any] = defaults_of(cast("Any", record))
        self._flat = None if self._deep else _flat(self._schema, self._names)
        for f in self._schema.fields:
            check_keys(f, f"{self._schema.name}.{f.name}")

    def decode(self, messages: Sequence[bytes], /) -> Batch[U]:
        if not len(messages):
            return batch_of_records(self.record, [], _nowhere)
        at_once = self._flat is not None and len(messages) > _FEW
        batch = self._at_once(messages, self._flat) if at_once else None
        return self._one_by_one(messages) if batch is None else batch

    def _at_once(self, messages: Sequence[bytes], flat: Any) -> Batch[U] | None:
        """The records of messages, if Arrow takes all of them.

        Arrow reads one text with objects that follow each other, and does not care where lines end.
        Each message begins and ends with a brace. If one is cut off inside, what follows it is
        `\\n{`, which is wrong in any place where an object is not closed; so none has less than an
        object, and where there are as many objects as messages each has one.
        """
        import pyarrow.json as pj  # takes a while, and few sources need it

        stripped = [message.strip(_SPACE) for message in messages]
        if not all(m[:1] == b"{" and m[-1:] == b"}" for m in stripped):
            return None
        text = b"\n".join(stripped)
        try:
            reader = pj.open_json(  # `read_json` goes through another thread, which takes longer
                pa.BufferReader(text),
                pj.ReadOptions(use_threads=False, block_size=min(len(text) + 1, (1 << 31) - 1)),
                pj.ParseOptions(
                    explicit_schema=flat,
                    newlines_in_values=True,
                    unexpected_field_behavior="ignore",
                ),
            )
            table = reader.read_all()
            if table.num_rows != len(messages):
                return None
            columns = [self._column(f, table) for f in self._schema.fields]
            rows = pa.RecordBatch.from_arrays(columns, names=list(self._schema.names))
            return batch_of(self._schema, rows, _nowhere)
        except (pa.ArrowException, InputError, ValueError, _Otherwise):
            return None

    def _column(self, f: Field, table: Any) -> Any:
        column = table.column(self._names.get(f.name, f.name))
        array = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
        if array.null_count and not self._none_is_none(f):
            raise _Otherwise
        if f.kind == "bytes" and f.value is None:
            found = [
                None if v is None else base64.b64decode(v, validate=True) for v in array.to_pylist()
            ]
            return pa.array(found, pa.binary())
        return array

    def _none_is_none(self, f: Field) -> bool:
        """Whether a value that is null, and one that is not there, both are None."""
        default = self._defaults.get(f.name)
        return f.optional and (default is None or default() is None)

    def _one_by_one(self, messages: Sequence[bytes]) -> Batch[U]:
        records = []
        for message in messages:
            try:
                text = message.decode()
            except UnicodeDecodeError:
                raise InputError("no JSON: it is not UTF-8") from None
            record = self._line(text)
            if record is None:
                raise InputError("no JSON: it is empty")
            records.append(record)
        return batch_of_records(self.record, records, _nowhere)

    def encode(self, batch: Batch[U], /) -> list[bytes]:
        if self._deep:
            raise GraphError(
                f"columns= has the path {self._deep[0]!r}: values are read from paths, not written",
                hint="Give columns= for what is read and for what is written apart.",
            )
        table = table_of(batch, "json")
        names = [self._names.get(name, name) for name in table.column_names]
        messages: list[bytes] = json_objects(table, names).cast(pa.large_binary()).to_pylist()
        return messages


_SPACE = b" \t\r\n"
_FEW = 16
"""Up to this many messages are decoded sooner one by one: Arrow takes 0.1 ms for any number."""


class _Otherwise(Exception):
    """Arrow's columns do not say what the record is."""


def _flat(schema: RecordSchema, names: Mapping[str, str]) -> Any:
    """What Arrow is to read, if the fields are flat: times and decimals as text, numbers wide."""
    fields = []
    for f in schema.fields:
        if f.kind in ("object", "array") or (f.kind == "bytes" and f.value and f.value.members):
            return None
        kind = pa.string()
        if f.kind == "fixed" and (f.value is None or f.value.members):
            kind = {"b": pa.bool_(), "f": pa.float64()}.get(np.dtype(f.dtype).kind, pa.int64())
        fields.append(pa.field(names.get(f.name, f.name), kind))
    return pa.schema(fields)


def _one_name(path: JsonPath) -> bool:
    return len(path) == 1 and isinstance(path[0], str)


def _nowhere(n: int) -> str:
    return ""
