"""Edited rows of a saved checkpoint in their stored form, and the difference of two states.

People edit the Arrow table that `readable` makes. A value that was not changed keeps its stored
bytes. Values for which Arrow has no type of its own (dicts, or lists of mixed values) can be kept,
but not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from raystream.errors import StateError
from raystream.schema.objects import encode_all
from raystream.state.images.image import KEY, START, Image
from raystream.state.images.partition import in_groups, keys_of
from raystream.state.images.readable import plain_name, readable
from raystream.state.images.row_shape import OBJECT

CHANGE, BEFORE = "change", "_before"
"""Columns of a difference: its kind, and the ending of those with the values of before."""


def edited_images(images: Sequence[Image], table: Any, operator: str) -> list[Image]:
    """Full images of the ranges of an operator, with the rows of a table in place of theirs.

    Args:
        images: one full image for each range, without slots.
        table: its columns are those of `readable`, in any order; each key is there once.

    Raises:
        StateError: the table does not fit, or the input of the operator had ended.
    """
    from raystream.state.kernels import key_groups

    header = images[0].header
    schema = images[0].rows.schema
    if any(image.header.input_position.ended for image in images):
        raise StateError(
            f"the input of {operator} had ended at this checkpoint: it has no rows to be edited"
        )
    before = pa.Table.from_batches([image.rows for image in images])
    plain = {plain_name(name): name for name in schema.names}
    given = list(getattr(table, "column_names", ()))
    if sorted(given) != sorted(plain):
        raise StateError(
            f"the edited rows of {operator} have the columns {', '.join(given) or 'of no table'}",
            hint=f"They are a pyarrow.Table with the columns {', '.join(plain)}.",
        )
    table = table.combine_chunks()
    made = _columns(table, before, schema, operator, header.shape)
    batch = pa.RecordBatch.from_arrays(made, schema=schema)
    _refuse_twice(batch, operator)
    groups = key_groups(keys_of(batch), header.groups)
    found = []
    for image in images:
        keys = image.header.keys
        part = batch.filter(pa.array((groups >= keys.lo) & (groups < keys.hi)))
        rows = in_groups(part.columns, schema, header.groups)
        stored = replace(image.header, base=0, oldest=0, table="")
        found.append(Image(stored, rows, image.gone.slice(0, 0)))
    return found


def _columns(table: Any, before: Any, schema: Any, operator: str, shape: str) -> list[Any]:
    """The columns of the rows in their stored form."""
    known = readable(before, shape)
    keys = [name for name in schema.names if _is_key(name)]
    made = []
    for field in schema:
        name = plain_name(field.name)
        column = table.column(name)
        if field.metadata == OBJECT:
            stored = _encoded(table, before, known, field.name, keys, operator)
            made.append(pa.array(stored, field.type))
            continue
        try:
            cast = column.cast(field.type)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise StateError(
                f"{operator}.{name} is {field.type}, and the edited column is {column.type}:"
                f" {error}"
            ) from None
        if cast.null_count and not field.nullable:
            raise StateError(f"{operator}.{name} has no value in {cast.null_count} edited rows")
        made.append(cast.combine_chunks() if isinstance(cast, pa.ChunkedArray) else cast)
    return [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in made]


def _encoded(
    table: Any, before: Any, known: Any, field: str, keys: Sequence[str], operator: str
) -> list[bytes | None]:
    """A column of msgpack: the stored bytes of what was not changed, and new ones for the rest."""
    name = plain_name(field)
    plain_keys = [plain_name(key) for key in keys]
    rows = zip(_tuples(known, plain_keys), known.column(name).to_pylist(),
               before.column(field).to_pylist(), strict=True)  # fmt: skip
    stored = {key: (value, data) for key, value, data in rows}
    kind = known.column(name).type
    writable = pa.types.is_list(kind) or pa.types.is_primitive(kind) or not known.num_rows
    found: list[bytes | None] = []
    for key, value in zip(_tuples(table, plain_keys), table.column(name).to_pylist(), strict=True):
        was = stored.get(key)
        if was is not None and was[0] == value:
            found.append(was[1])
        elif writable:
            found.append(None if value is None else encode_all([value])[0])
        else:
            raise StateError(
                f"{operator}.{name} of key {key!r:.80} was edited: its values are kept as objects,"
                " and can be kept or removed with their rows only",
                hint="Change them in the job's code, by `upgrade` of its state class.",
            )
    return found


def _tuples(table: Any, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def _is_key(column: str) -> bool:
    return column.startswith(KEY) or column == START


def _refuse_twice(batch: Any, operator: str) -> None:
    names = [name for name in batch.schema.names if _is_key(name)]
    seen = set()
    for key in _tuples(batch, names):
        if key in seen:
            shown = key[0] if len(key) == 1 else key
            raise StateError(f"key {shown!r:.80} of {operator} is there twice")
        seen.add(key)


def difference_of(before: Any, after: Any, keys: Sequence[str]) -> Any:
    """The rows in which two tables of `readable` differ: their keys; `change`, which is "new",
    "gone" or "changed"; and each field as it is and as it was before, None where there is no row.
    A NaN does not differ from a NaN.
    """
    fields = [name for name in after.column_names if name not in keys]
    was = {tuple(row[k] for k in keys): row for row in before.to_pylist()}
    now = {tuple(row[k] for k in keys): row for row in after.to_pylist()}
    found: dict[str, list[Any]] = {name: [] for name in [*keys, CHANGE]}
    found |= {name: [] for field in fields for name in (field, field + BEFORE)}
    for key in [*now, *(k for k in was if k not in now)]:
        one, two = was.get(key), now.get(key)
        if one == two or repr(one) == repr(two):
            continue
        for name, value in zip(keys, key, strict=True):
            found[name].append(value)
        found[CHANGE].append("new" if one is None else "gone" if two is None else "changed")
        for field in fields:
            found[field].append(None if two is None else two[field])
            found[field + BEFORE].append(None if one is None else one.get(field))
    types = {name: after.schema.field(name).type for name in after.column_names}
    types |= {f + BEFORE: before.schema.field(f).type for f in fields if f in before.column_names}
    arrays = [pa.array(v, types.get(n, pa.string())) for n, v in found.items()]
    return pa.table(arrays, names=list(found))
