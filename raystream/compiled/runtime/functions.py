"""Functions of Python's that compiled code calls, with Python's results or an error.

Numba's own are silent where an int leaves 64 bits (`sum`, `pow`, `divmod`, those of `operator`).
Some are rounded otherwise than Python's, or NumPy's outside of compiled code: they are refused.

Importing this module imports Numba.
"""
# Overloads are Python functions that Numba compiles: a bare intrinsic would not do.
# ruff: noqa: PLW0108

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

from raystream.compiled.runtime.arithmetic import GUARDED, OPERATORS
from raystream.compiled.runtime.checked import (
    LEFT,
    OVERLOADED,
    exact,
    is_whole,
    may_be_none,
    present,
    sub,
    user_jit,
)
from raystream.compiled.runtime.sequences import inside, ordered, unrolled

_ADD, _FLOOR_DIVIDE = OPERATORS["Add"], OPERATORS["FloorDiv"]
_MOST = 5000
"""An exponent of two with which every float but 0 is no number any more, either way."""


# ---------------------------------------------------------------- of several numbers


def total(values: Any, start: Any = 0) -> Any:
    """`sum`."""
    raise NotImplementedError


@overload(total, **OVERLOADED)
def _total(values: Any, start: Any = 0) -> Any:
    rounded = any(isinstance(kind, types.Float) for kind in inside(values))
    if rounded and sys.version_info >= (3, 12):
        raise TypingError("the sum of floats is rounded otherwise: add them one by one")
    if isinstance(values, types.BaseTuple):
        steps = "start"
        for i in range(len(values)):
            steps = f"add({steps}, values[{i}])"
        return unrolled("values, start=0", steps, add=_ADD)

    def added(values: Any, start: Any = 0) -> Any:
        so_far = start
        for value in values:
            so_far = _ADD(so_far, value)
        return so_far

    return added


def there(value: Any) -> Any:
    """The value; compiled code raises a TypeError if it is None."""
    raise NotImplementedError


@overload(there, **OVERLOADED)
def _there(value: Any) -> Any:
    if not may_be_none(value):
        return lambda value: value

    def inside(value: Any) -> Any:
        if value is None:
            raise TypeError("None is compared")
        return present(value)

    return inside


def _chosen(plain: Callable[..., Any]) -> Any:
    """`min` or `max`: of ints and floats together, Numba's makes floats of all."""

    def choose_one(*values: Any) -> Any:
        raise NotImplementedError

    @overload(choose_one, **OVERLOADED)
    def choose(*values: Any) -> Any:
        of_one = len(values) == 1 and isinstance(values[0], types.BaseTuple)
        items, name = (values[0], "values[0]") if of_one else (values, "values")
        whole = [is_whole(getattr(v, "type", v)) for v in items]
        mixed = any(whole) and not all(whole)
        given = [f"there({name}[{i}])" for i in range(len(items))]
        given = [f"exact({g})" if mixed and w else g for g, w in zip(given, whole, strict=True)]
        return unrolled(
            "*values", f"plain({', '.join(given)})", plain=plain, exact=exact, there=there
        )

    choose_one.__name__ = plain.__name__
    return choose_one


def both(a: Any, b: Any) -> Any:
    """`divmod`."""
    raise NotImplementedError


@overload(both, **OVERLOADED)
def _both(a: Any, b: Any) -> Any:
    if may_be_none(a, b):
        return None
    if is_whole(a, b):
        return lambda a, b: (_FLOOR_DIVIDE(a, b), np.int64(a) % np.int64(b))
    return lambda a, b: divmod(a, b)


@user_jit
def _gcd(a: Any, b: Any) -> Any:
    found = math.gcd(a, b)
    if found < 0:
        raise OverflowError(LEFT)
    return found


@user_jit
def _ldexp(x: Any, exponent: Any) -> Any:
    result = math.ldexp(x, min(max(exponent, -_MOST), _MOST))
    if math.isinf(result) and math.isfinite(x):
        raise OverflowError("math range error")
    return result


def ranged(*args: Any) -> Any:
    """`range`."""
    raise NotImplementedError


@overload(ranged, **OVERLOADED)
def _ranged(*args: Any) -> Any:
    if not 1 <= len(args) <= 3 or not is_whole(*args):
        return None
    if len(args) == 1:
        return lambda *args: range(np.int64(args[0]))

    def by_one(*args: Any) -> Any:  # Numba counts them by a difference that may leave 64 bits
        first, end = np.int64(args[0]), np.int64(args[1])
        if first < end:
            sub(end, first)
        else:
            end = first
        return range(first, end)

    def by_more(*args: Any) -> Any:
        first, end, step = np.int64(args[0]), np.int64(args[1]), np.int64(args[2])
        if (step > 0 and first < end) or (step < 0 and first > end):
            sub(end, first)
        else:
            end = first
        return range(first, end, step)

    return by_one if len(args) == 2 else by_more


def text(value: Any) -> Any:
    """`str`."""
    raise NotImplementedError


@overload(text, **OVERLOADED)
def _text(value: Any) -> Any:
    if isinstance(value, types.Float):
        raise TypingError("a float has another text when compiled")
    return lambda value: str(value)


total.__name__, both.__name__ = "sum", "divmod"  # as errors name them
text.__name__, ranged.__name__ = "str", "range"


# ---------------------------------------------------------------- tables


STANDS_FOR: dict[Any, Any] = {
    **GUARDED,
    sum: total,
    range: ranged,
    min: _chosen(min),
    max: _chosen(max),
    pow: OPERATORS["Pow"],
    divmod: both,
    sorted: ordered,
    str: text,
    math.gcd: _gcd,
    math.ldexp: _ldexp,
    operator.add: OPERATORS["Add"],
    operator.sub: OPERATORS["Sub"],
    operator.mul: OPERATORS["Mult"],
    operator.truediv: OPERATORS["Div"],
    operator.floordiv: OPERATORS["FloorDiv"],
    operator.pow: OPERATORS["Pow"],
    operator.lshift: OPERATORS["LShift"],
    operator.rshift: OPERATORS["RShift"],
    operator.neg: OPERATORS["USub"],
    operator.invert: OPERATORS["Invert"],
    operator.abs: GUARDED[abs],
    operator.eq: OPERATORS["Eq"],
    operator.ne: OPERATORS["NotEq"],
    operator.lt: OPERATORS["Lt"],
    operator.le: OPERATORS["LtE"],
    operator.gt: OPERATORS["Gt"],
    operator.ge: OPERATORS["GtE"],
}
"""What compiled code calls instead of a function."""

_AS_IT_IS = (operator.mod, operator.and_, operator.or_, operator.xor, operator.not_, operator.truth)
_OF_MATH = (math.gamma, math.lgamma, math.hypot)


def differs(function: Any, home: str) -> str:
    """Why a function of the module `home` may not be called by compiled code; empty when it may."""
    if function in _OF_MATH:
        return "is rounded otherwise when compiled"
    if home == "numpy":  # `~np.isnan(x)` is -1 or -2 when compiled, which are true both
        return "of NumPy may have another result when compiled: use that of Python"
    known = function in STANDS_FOR or function in _AS_IT_IS
    if home in ("operator", "_operator") and not known:
        return "of operator is not compiled: write the operation"
    return ""
