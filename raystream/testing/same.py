"""Comparing records: by type as well as by value, since two NamedTuples are equal as tuples."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

_END = object()


def same(one: Any, two: Any) -> bool:
    """Whether two records, or two series of records, are alike in every bit.

    Types count (`Toll(1) == Exit(1)` is true, since both are tuples), and so do the order of a
    dict, the sign of zero and the type of a number; a NaN is like itself. Generators are consumed:
    operators are generators, and one that is called and not consumed does nothing.

    Example:
        >>> same(split(Line(3, "to be")), [Word(3, "to"), Word(3, "be")])
        True
    """
    return difference(one, two) is None


def difference(one: Any, two: Any) -> str | None:
    """The first difference between two records, or series of records, in words.

    None if they are alike in every bit.
    """
    if not (_series(one) and _series(two)):
        return None if _alike(one, two) else f"{one!r} is not {two!r}{_of_type(one, two)}"
    for i, (a, b) in enumerate(zip_longest(one, two, fillvalue=_END)):
        if a is _END or b is _END:
            return f"number {i}: {'nothing' if a is _END else repr(a)} is not" + (
                f" {'nothing' if b is _END else repr(b)}"
            )
        if not _alike(a, b):
            return f"number {i}: {a!r} is not {b!r}{_of_type(a, b)}"
    return None


def _series(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, tuple | dict | str | bytes)


def _of_type(one: Any, two: Any) -> str:
    return f" ({type(one).__name__}, {type(two).__name__})" if type(one) is not type(two) else ""


def _alike(one: Any, two: Any) -> bool:
    if type(one) is not type(two):
        return False
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", two) or (one != one and two != two)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(_alike, one, two))
    if isinstance(one, dict):
        return _alike(list(one.items()), list(two.items()))
    return bool(one == two)
