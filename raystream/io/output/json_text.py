"""Rows as text in JSON: an object of each.

Arrow writes numbers, plain text and what joins them, a column at a time; Python writes the rest.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from raystream.io.files.nested import JSON


def json_objects(rows: Any, names: Sequence[str]) -> Any:
    """The text of an object for each row of a table in the form `json`, as an Arrow array.

    Args:
        rows: an Arrow table or record batch. names: of the columns in the objects.
    """
    import pyarrow.compute as pc  # takes a while, and few processes need it

    parts: list[Any] = []
    for f, column, name in zip(rows.schema, rows.columns, names, strict=True):
        before = ", " if parts else "{"
        parts += [_text(f"{before}{_ENCODER.encode(name)}: "), _cells(f, column)]
    return pc.binary_join_element_wise(*parts, _text("}"), _text(""))


def _cells(f: Any, column: Any) -> Any:
    """The text of each value of a column."""
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    if f.metadata == JSON or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(_TEXT).fill_null("null")
    if _is_text(kind) and not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        quote = _text('"')
        joined = pc.binary_join_element_wise(quote, column.cast(_TEXT), quote, _text(""))
        return joined.fill_null("null")
    return pa.array([_dumped(v) for v in column.to_pylist()], _TEXT)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _dumped(value: Any) -> str:
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    return _ENCODER.encode(value)


def _text(text: str) -> Any:
    return pa.scalar(text, _TEXT)


_TEXT = pa.large_string()  # text of many rows may be longer than 2 GiB
_ESCAPED = r'["\\\x00-\x1f]'
_ENCODER = json.JSONEncoder(ensure_ascii=False)
