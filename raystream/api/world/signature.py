"""What the function of an operator that asks takes and returns, by its annotations.

async def f(record: A) -> B                       also B | C, B | None, list[B]
async def f(record: A) -> AsyncIterator[B]        with `yield`
def f(record: A) -> B                             with recorded=True; also Iterator[B]
def f(records: list[A]) -> list[B]                with batch=; also list[B | None]
"""

from __future__ import annotations

import types
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Any

from raystream.schema.fields import is_record

_MANY = (
    list,
    tuple,
    Sequence,
    Iterable,
    Iterator,
    Generator,
    AsyncIterable,
    AsyncIterator,
    AsyncGenerator,
)


def taken(hint: Any, batch: int) -> Any | None:
    """The type of record that a function takes, from the annotation of its argument.

    None if the function takes batches (`batch` > 0), and the annotation is no list.
    """
    if not batch:
        return hint
    return typing.get_args(hint)[0] if typing.get_origin(hint) in (list, Sequence) else None


def emitted(hint: Any) -> Any | None:
    """The type of record that a function emits, from its return annotation: a class, or a union.
    `type(None)` if it emits nothing; None if the annotation names no type of record."""
    if typing.get_origin(hint) in _MANY:
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = tuple(a for a in typing.get_args(hint) if a is not type(None))
        if all(map(is_record, rest)):
            return typing.Union[rest]  # noqa: UP007  of a tuple
        return emitted(rest[0]) if len(rest) == 1 else None
    return hint if hint is type(None) or is_record(hint) else None
