"""Cells of CSV as values, where Arrow does not convert them by itself while it parses: numbers as
people write them (`1,234.5`, `+7`, `7.0` for an int), and quoted cells without text.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from raystream.errors import InputError
from raystream.io.files.csv_dialect import Dialect
from raystream.io.files.nested import arrow_type
from raystream.schema.fields import Field
from raystream.schema.records import RecordSchema


class BadCellError(Exception):
    """A cell is no value of its field. row: its position in the array."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def values_of(cells: Any, f: Field, kind: Any, dialect: Dialect) -> Any:
    """A column of text as values.

    Args:
        cells: an Arrow array of strings; None where an empty cell was not quoted.
        kind: the Arrow type that the values have.

    Raises:
        BadCellError: the first cell that does not fit.
    """
    import pyarrow.compute as pc  # takes a while, and most files do without

    if pa.types.is_binary(kind):
        return cells
    if dialect.trim or not pa.types.is_string(kind):
        cells = pc.utf8_trim_whitespace(cells)
    if f.kind == "text":
        return cells
    words = pa.array(sorted(set(dialect.null)), pa.string())
    cells = pc.if_else(pc.is_in(cells, value_set=words), pa.scalar(None, pa.string()), cells)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or _is_number(f):
        cells = _number(cells, kind, dialect)
    return _cast(cells, kind)


def _is_number(f: Field) -> bool:
    """Whether the text of a value of a kind is a number: a Decimal, seconds, a time as a count."""
    if f.value is None or f.value.members:
        return False
    counted = f.value.written is not None and f.value.written.unit is not None
    return counted or f.value.digits is not None or f.value.name == "timedelta"


def _number(cells: Any, kind: Any, dialect: Dialect) -> Any:
    import pyarrow.compute as pc

    if dialect.thousands is not None:
        mark = dialect.thousands
        grouped = rf"^[+-]?\d{{1,3}}(\x{{{ord(mark):x}}}\d{{3}})+($|[.,eE])"
        whole = pc.replace_substring(cells, mark, "")
        cells = pc.if_else(pc.match_substring_regex(cells, grouped), whole, cells)
    if dialect.decimal != ".":
        odd = pc.match_substring(cells, ".")
        cells = pc.if_else(odd, cells, pc.replace_substring(cells, dialect.decimal, "."))
        if (at := pc.index(odd, True).as_py()) >= 0:
            raise BadCellError(at)
    cells = pc.replace_substring_regex(cells, r"^\+(\d|\.)", r"\1")
    if pa.types.is_integer(kind):
        cells = pc.replace_substring_regex(cells, r"^([+-]?\d+)\.0*$", r"\1")
    return cells


def _cast(cells: Any, kind: Any) -> Any:
    try:
        return cells.cast(kind)
    except pa.ArrowException:
        raise BadCellError(_first_bad(cells, kind)) from None


def _first_bad(cells: Any, kind: Any) -> int:
    """The first cell that cannot be cast, by halves."""
    low, high = 0, len(cells)  # it is within
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cells.slice(low, middle - low).cast(kind)
        except pa.ArrowException:
            high = middle
        else:
            low = middle
    return low


def types_of(schema: RecordSchema) -> dict[str, Any]:
    """The Arrow type of each column of a record. Floats of 32 bits are parsed as those of 64: of a
    number that is too large for them Arrow would make infinity."""
    for f in schema.fields:
        if f.kind == "object":
            raise InputError(
                f"A CSV file cannot hold {schema.name}.{f}, only plain values.", hint="Use Parquet."
            )
    kinds = {f.name: arrow_type(f, "text") for f in schema.fields}
    return {name: pa.float64() if k == pa.float32() else k for name, k in kinds.items()}
