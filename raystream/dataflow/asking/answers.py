"""Answers as entries of the boundary register, and as the output of an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.dataflow.logic.interpreted import Collector
from raystream.dataflow.register import Boundary
from raystream.errors import InternalError
from raystream.schema.blocks import Emitted, Output
from raystream.schema.buffers import blocks_of, columns_in, padded
from raystream.schema.columns import Columns, concat, empty
from raystream.schema.records import RecordSchema
from raystream.schema.types import KeyRange


def entry_name(vertex: int, group: int, code: int = 0) -> str:
    """The name of a key group of an operator that asks, in the register. Splits of sources have
    other names.

    Args:
        code: the number of the version of the code that asks. What one version was answered is no
            answer to another: whoever makes an epoch reads what the version of that epoch wrote.
    """
    return f"{vertex}?{group}@{code}" if code else f"{vertex}?{group}"


def is_answer(name: str) -> bool:
    """Whether an entry of the register is an operator's, and not where an epoch of a split ends."""
    return name.partition("?")[0].isdecimal()


def recorded(spec: OperatorSpec, program: str, epoch: int, emitted: Sequence[Any],
             questions: int) -> Boundary:  # fmt: skip
    """The entry of a key group.

    Args:
        program: the fingerprint of the program with which the run began.
        emitted: the records that its questions brought, in the order in which they go on.
        questions: how many questions it had.
    """
    collector = Collector(spec, epoch)
    collector.extend(emitted)
    collector.close_group()
    parts = [_encoded(part) for part in collector.output().emitted]
    return Boundary(questions, 0, False, rows=msgpack.packb([program, parts]))


def _encoded(part: Emitted) -> list[Any]:
    rows = part.rows
    blocks = blocks_of(rows) if len(rows) else []
    ranks = b"" if part.rank is None else part.rank.astype("<i8").tobytes()
    return [len(rows), [len(block) for block in blocks], b"".join(padded(blocks)), ranks]


class _Part(NamedTuple):
    """The records of one type in an entry, and the places of them among all of it."""

    rows: Columns | None
    ranks: np.ndarray
    """int64."""


def _decoded(schemas: Sequence[RecordSchema], entry: Boundary) -> list[_Part]:
    """The parts of an entry, by type.

    Raises:
        InternalError: it is damaged, or of other records.
    """
    try:
        _, parts = msgpack.unpackb(entry.rows)
        return [_part(schema, *part) for schema, part in zip(schemas, parts, strict=True)]
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise InternalError(f"recorded answers are damaged: {error}") from None


def _part(schema: RecordSchema, length: int, sizes: list[int], body: bytes, ranks: bytes) -> _Part:
    memory = np.frombuffer(body, np.uint8)
    rows = columns_in(schema, length, sizes, memory) if length else None
    return _Part(rows, np.frombuffer(ranks, "<i8") if ranks else np.arange(length))


def output_of(
    spec: OperatorSpec, keys: KeyRange, epoch: int, asked: Mapping[int, int],
    held: Mapping[int, Boundary],
) -> Output:  # fmt: skip
    """The output of an epoch, as it is recorded.

    Args:
        keys: the range of the instance.
        asked: by key group how many questions it has. held: its entry.

    Raises:
        InternalError: an entry is missing, or answers other questions.
    """
    schemas = spec.outputs
    counts = np.zeros((len(schemas), len(keys)), np.int64)
    found: list[list[Columns]] = [[] for _ in schemas]
    ranks: list[list[np.ndarray]] = [[] for _ in schemas]
    before = 0
    for group, questions in sorted(asked.items()):
        entry = held.get(group)
        if entry is None or entry.position != questions:
            there = "none" if entry is None else f"those of {entry.position}"
            raise InternalError(
                f"{spec.name} has {questions} records in key group {group} of epoch {epoch}, and"
                f" the answers that are recorded are {there}"
            )
        parts = _decoded(schemas, entry)
        for t, part in enumerate(parts):
            if part.rows is not None:
                found[t].append(part.rows)
                ranks[t].append(part.ranks + before)
                counts[t, group - keys.lo] = len(part.rows)
        before += sum(len(part.ranks) for part in parts)
    emitted = []
    for t, schema in enumerate(schemas):
        offsets = np.zeros(len(keys) + 1, np.int64)
        counts[t].cumsum(out=offsets[1:])
        rows = concat(found[t]) if found[t] else empty(schema)
        rank = np.concatenate(ranks[t]) if ranks[t] else np.zeros(0, np.int64)
        emitted.append(Emitted(rows, offsets, rank if len(schemas) > 1 else None))
    return Output(tuple(emitted))
