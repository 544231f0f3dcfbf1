"""Tuples and lists of compiled code: what is in them, which of two is less, sorting.

Numba compares an int with floats as a float, and sorts what is equal into another order. Python
takes a nan for equal to itself where it is the same object, which compiled code cannot know: it
raises where that would decide.

Importing this module imports Numba.
"""
# Overloads are Python functions that Numba compiles: a bare intrinsic would not do.

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

from raystream.compiled.runtime.checked import OVERLOADED, is_whole, may_be_none, present

_ROWS = (types.List, types.Array)


def unrolled(head: str, result: str, **names: Any) -> Any:
    """A function that returns one expression, made from text. Loops over a tuple are written out in
    it: Numba knows how long a tuple is, but does not loop over values of several types."""
    exec(f"def impl({head}):\n    return {result}", names)
    return names["impl"]


def inside(kind: Any) -> tuple[Any, ...]:
    """The types of the items of a sequence, from its Numba type; empty if it is no sequence."""
    if isinstance(kind, types.BaseTuple):
        items: Any = kind
        return tuple(items)
    return (kind.dtype,) if isinstance(kind, _ROWS) else ()


def unlike(a: Any, b: Any) -> bool:
    """Whether two sequences have ints and floats, or what may be None, at one place: Numba compares
    the ones as floats, and not the others."""
    return any(
        isinstance(x, types.Float) != isinstance(y, types.Float)
        or may_be_none(x, y)
        or unlike(x, y)
        for x, y in zip(inside(a), inside(b), strict=False)
    )


def certain(a: Any, b: Any) -> Any:
    """True; an error where both have a nan at one place."""
    raise NotImplementedError


@overload(certain, **OVERLOADED)
def _certain(a: Any, b: Any) -> Any:
    if isinstance(a, types.Float) and isinstance(b, types.Float):

        def numbers(a: Any, b: Any) -> Any:
            if a != a and b != b:
                raise ValueError("whether a nan is the same one is not known")
            return True

        return numbers
    if isinstance(a, types.BaseTuple) and isinstance(b, types.BaseTuple):
        pairs = range(min(len(a), len(b)))
        steps = " and ".join(f"certain(a[{i}], b[{i}])" for i in pairs)
        return unrolled("a, b", steps or "True", certain=certain)
    if isinstance(a, _ROWS) and isinstance(b, _ROWS):

        def rows(a: Any, b: Any) -> Any:
            for i in range(min(len(a), len(b))):
                certain(a[i], b[i])
            return True

        return rows
    return lambda a, b: True


def holds(values: Any, item: Any, equal: Any) -> Any:
    """What computes `item in values`, for these Numba types. equal: compares two values."""

    def same(a: Any, b: Any) -> Any:
        raise NotImplementedError

    @overload(same, **OVERLOADED)
    def choose(a: Any, b: Any) -> Any:
        if may_be_none(a):
            return lambda a, b: b is None if a is None else same(present(a), b)
        if may_be_none(b):
            return lambda a, b: same(b, a)
        return lambda a, b: certain(a, b) and equal(a, b)

    if isinstance(values, types.BaseTuple):
        steps = " or ".join(f"same(item, values[{i}])" for i in range(len(values)))
        return unrolled("item, values", steps or "False", same=same)
    if isinstance(values, _ROWS):

        def among(item: Any, values: Any) -> Any:
            for value in values:  # noqa: SIM110 -- Numba has no `any` of a generator
                if same(item, value):
                    return True
            return False

        return among
    whole = isinstance(values, types.RangeType) and is_whole(item)
    if whole or isinstance(values, types.UnicodeType):
        return lambda item, values: item in values
    raise TypingError(f"it looks for {item} in {values}")


def ordered(values: Any, reverse: Any = False) -> Any:
    """`sorted`."""
    raise NotImplementedError


@overload(ordered, **OVERLOADED)
def _ordered(values: Any, reverse: Any = False) -> Any:
    kinds = set(inside(values))
    if len(kinds) != 1 or not is_whole(*kinds):
        raise TypingError("only ints are sorted as Python does it")
    return lambda values, reverse=False: sorted([np.int64(v) for v in values], reverse=reverse)


ordered.__name__ = "sorted"  # as errors name it
