"""Arithmetic of compiled code with Python's meaning, or an error.

Numba marks additions and products of integers as never overflowing, so LLVM may draw any
conclusion from one that does: checks vanish, and a division by the zero that was "impossible"
kills the process. Here an integer that leaves 64 bits raises. So do the cases where C's results are
silent and Python raises, or rounds otherwise. Which error it is matters not: the call is done again
interpreted (see `rerun`), and if that succeeds, the difference is reported.

Importing this module imports Numba.
"""
# Overloads are Python functions that Numba compiles: a bare intrinsic would not do.
# ruff: noqa: PLW0108

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

from raystream.compiled.runtime.checked import (
    EXACT,
    LEAST,
    LEFT,
    OVERLOADED,
    add,
    c_power,
    is_whole,
    may_be_none,
    mul,
    present,
    sub,
    user_jit,
)
from raystream.compiled.runtime.rounding import BEYOND, rounded
from raystream.compiled.runtime.sequences import certain, holds, inside, unlike


def _operator(plain: Callable[[Any, Any], Any], whole: Callable[[Any, Any], Any]) -> Any:
    """A binary operator: `whole` for two integers, Numba's own otherwise."""

    def operate(a: Any, b: Any) -> Any:
        raise NotImplementedError

    @overload(operate, **OVERLOADED)
    def choose(a: Any, b: Any) -> Any:
        if isinstance(a, types.NestedArray) or isinstance(b, types.NestedArray):
            raise TypingError("it computes with a whole array: use its items")
        if may_be_none(a, b):
            return None
        if is_whole(a, b):
            return lambda a, b: whole(np.int64(a), np.int64(b))
        return lambda a, b: plain(a, b)

    operate.__name__ = plain.__name__
    return operate


@user_jit
def _floor_divide(a: Any, b: Any) -> Any:
    if a == LEAST and b == -1:
        raise OverflowError(LEFT)
    return a // b


@user_jit
def _divide(a: Any, b: Any) -> Any:
    if not (-EXACT <= a <= EXACT and -EXACT <= b <= EXACT):
        raise ValueError("a quotient of ints beyond 2**53 is rounded otherwise: divide float(a)")
    return a / b


@user_jit
def _power(base: Any, exponent: Any) -> Any:
    if exponent < 0:
        raise ValueError("an int to a negative power is a float")
    result = np.int64(1)
    while exponent > 0:
        if exponent & 1:
            result = mul(result, base)
        exponent >>= 1
        if exponent > 0:
            base = mul(base, base)
    return result


@user_jit
def _left_shift(a: Any, b: Any) -> Any:
    if b < 0 or (b > 62 and a != 0):
        raise ValueError(LEFT)
    shifted = a << min(b, 62)
    if shifted >> min(b, 62) != a:
        raise OverflowError(LEFT)
    return shifted


@user_jit
def _right_shift(a: Any, b: Any) -> Any:
    if b < 0:
        raise ValueError("negative shift count")
    return a >> min(b, 63)


@user_jit
def _float_power(x: Any, y: Any) -> Any:
    result = c_power(np.float64(x), np.float64(y))
    if math.isfinite(x) and math.isfinite(y) and not math.isfinite(result):
        raise ValueError("math domain or range error")
    return result


@user_jit
def _negative(a: Any) -> Any:
    return sub(np.int64(0), a)


@user_jit
def _inverse(a: Any) -> Any:
    return ~a


@user_jit
def _absolute(a: Any) -> Any:
    return _negative(a) if a < 0 else a


def _unary(plain: Callable[[Any], Any], whole: Callable[[Any], Any]) -> Any:
    def operate(a: Any) -> Any:
        raise NotImplementedError

    @overload(operate, **OVERLOADED)
    def choose(a: Any) -> Any:
        if may_be_none(a):
            return None
        if is_whole(a):
            return lambda a: whole(np.int64(a))
        return lambda a: plain(a)

    operate.__name__ = plain.__name__
    return operate


def _mixed(plain: Callable[[Any, Any], Any]) -> Any:
    """A comparison of an int with a float: exact, as Python's is. Numba's rounds the int."""

    @user_jit
    def compare(whole: Any, x: Any) -> Any:
        if -EXACT < x < EXACT:
            return plain(np.float64(whole), x)
        if -BEYOND <= x < BEYOND:  # it is whole, and fits
            return plain(whole, np.int64(x))
        return plain(0.0, x)  # all ints are on the same side of it

    return compare


def _comparison(plain: Callable[[Any, Any], Any], turned: Callable[[Any, Any], Any]) -> Any:
    """A comparison; `turned`: that of the operands in the other order."""
    int_first, float_first = _mixed(plain), _mixed(turned)
    same = {operator.eq: True, operator.ne: False}.get(plain)  # what None and None are

    def compare(a: Any, b: Any) -> Any:
        raise NotImplementedError

    @overload(compare, **OVERLOADED)
    def choose(a: Any, b: Any) -> Any:
        if may_be_none(a) and same is not None:
            return lambda a, b: (b is None) == same if a is None else compare(present(a), b)
        if may_be_none(b) and same is not None:
            return lambda a, b: compare(b, a)
        if may_be_none(a, b):
            return None
        if unlike(a, b):
            raise TypingError("it compares tuples of ints with floats or None: compare their items")
        if inside(a) and inside(b):
            return lambda a, b: certain(a, b) and plain(a, b)
        if isinstance(a, types.Integer) and isinstance(b, types.Float):
            return lambda a, b: int_first(np.int64(a), np.float64(b))
        if isinstance(a, types.Float) and isinstance(b, types.Integer):
            return lambda a, b: float_first(np.int64(b), np.float64(a))
        return lambda a, b: plain(a, b)

    compare.__name__ = plain.__name__
    return compare


def _contained(a: Any, b: Any) -> Any:
    """`a in b`."""
    raise NotImplementedError


@overload(_contained, **OVERLOADED)
def _choose(a: Any, b: Any) -> Any:
    return holds(b, a, OPERATORS["Eq"])


@user_jit
def _missing(a: Any, b: Any) -> Any:
    return not _contained(a, b)


OPERATORS: dict[str, Any] = {
    "Add": _operator(operator.add, add),
    "Sub": _operator(operator.sub, sub),
    "Mult": _operator(operator.mul, mul),
    "Div": _operator(operator.truediv, _divide),
    "FloorDiv": _operator(operator.floordiv, _floor_divide),
    "Pow": _operator(_float_power, _power),
    "LShift": _operator(operator.lshift, _left_shift),
    "RShift": _operator(operator.rshift, _right_shift),
    "USub": _unary(operator.neg, _negative),
    "Invert": _unary(operator.invert, _inverse),
    "Eq": _comparison(operator.eq, operator.eq),
    "NotEq": _comparison(operator.ne, operator.ne),
    "Lt": _comparison(operator.lt, operator.gt),
    "LtE": _comparison(operator.le, operator.ge),
    "Gt": _comparison(operator.gt, operator.lt),
    "GtE": _comparison(operator.ge, operator.le),
    "In": _contained,
    "NotIn": _missing,
}
"""By the name of the syntax node. The others (%, &, |, ^) never leave 64 bits."""


# ---------------------------------------------------------------- functions


def _of_one(function: Any) -> Any:
    """A function of `math` by the rule of CPython's mathmodule.c: nan from a number, or infinity
    from a finite one, is an error."""

    @user_jit
    def call(x: Any) -> Any:
        result = function(x)
        if (math.isnan(result) and not math.isnan(x)) or (math.isinf(result) and math.isfinite(x)):
            raise ValueError("math domain or range error")
        return result

    return call


def _to_whole(function: Any) -> Any:
    """`int`, `math.floor`, ...: an error where the float does not fit int64."""

    def call(x: Any) -> Any:
        raise NotImplementedError

    @overload(call, **OVERLOADED)
    def choose(x: Any) -> Any:
        if may_be_none(x):
            return None
        if is_whole(x):
            return lambda x: np.int64(x)
        if not isinstance(x, types.Float):
            return lambda x: function(x)

        def whole(x: Any) -> Any:
            if not -BEYOND <= x < BEYOND:
                raise OverflowError(LEFT)
            return np.int64(function(x))

        return whole

    call.__name__ = function.__name__
    return call


GUARDED: dict[Any, Any] = {
    **{
        f: _of_one(f)
        for f in (
            math.sqrt,
            math.exp,
            math.exp2,
            math.expm1,
            math.log,
            math.log2,
            math.log10,
            math.log1p,
            math.sin,
            math.cos,
            math.tan,
            math.asin,
            math.acos,
            math.sinh,
            math.cosh,
            math.acosh,
            math.atanh,
        )
    },
    math.pow: _float_power,
    **{f: _to_whole(f) for f in (int, math.floor, math.ceil, math.trunc)},
    abs: _unary(abs, _absolute),
    round: rounded,
}
"""What stands for functions whose Numba form is silent where Python's raises."""
