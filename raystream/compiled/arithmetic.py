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
from typing import Any, TypeVar

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

FLAGS: dict[str, Any] = {"nogil": True, "error_model": "python"}
USER_FLAGS: dict[str, Any] = {**FLAGS, "boundscheck": True}
OVERLOADED: dict[str, Any] = {"jit_options": USER_FLAGS, "strict": False}

F = TypeVar("F", bound=Callable[..., Any])


def user_jit(function: F) -> F:
    """Compile as the user's functions are."""
    return njit(**USER_FLAGS)(function)


_LEAST = -(1 << 63)
_EXACT = 1 << 53
_LEFT = "an int left 64 bits"


def _whole(*kinds: Any) -> bool:
    return all(isinstance(k, types.Integer | types.Boolean) for k in kinds)


def _checked(method: str) -> Any:
    """An intrinsic (int64, int64) that raises OverflowError; `method` of llvmlite's builder."""

    @intrinsic
    def operate(typing: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pair = getattr(builder, method)(*args)
            with builder.if_then(builder.extract_value(pair, 1), likely=False):
                context.call_conv.return_user_exc(builder, OverflowError, (_LEFT,))
            return builder.extract_value(pair, 0)

        return types.int64(types.int64, types.int64), generate

    return operate


_add = _checked("sadd_with_overflow")
_sub = _checked("ssub_with_overflow")
_mul = _checked("smul_with_overflow")


def _operator(plain: Callable[[Any, Any], Any], whole: Callable[[Any, Any], Any]) -> Any:
    """A binary operator: `whole` for two integers, Numba's own otherwise."""

    def operate(a: Any, b: Any) -> Any:
        raise NotImplementedError

    @overload(operate, **OVERLOADED)
    def choose(a: Any, b: Any) -> Any:
        if _whole(a, b):
            return lambda a, b: whole(np.int64(a), np.int64(b))
        return lambda a, b: plain(a, b)

    operate.__name__ = plain.__name__
    return operate


@user_jit
def _floor_divide(a: Any, b: Any) -> Any:
    if a == _LEAST and b == -1:
        raise OverflowError(_LEFT)
    return a // b


@user_jit
def _divide(a: Any, b: Any) -> Any:
    if not (-_EXACT <= a <= _EXACT and -_EXACT <= b <= _EXACT):
        raise ValueError("a quotient of ints beyond 2**53 is rounded otherwise: divide float(a)")
    return a / b


@user_jit
def _power(base: Any, exponent: Any) -> Any:
    if exponent < 0:
        raise ValueError("an int to a negative power is a float")
    result = np.int64(1)
    while exponent > 0:
        if exponent & 1:
            result = _mul(result, base)
        exponent >>= 1
        if exponent > 0:
            base = _mul(base, base)
    return result


@user_jit
def _left_shift(a: Any, b: Any) -> Any:
    if b < 0 or (b > 62 and a != 0):
        raise ValueError(_LEFT)
    shifted = a << min(b, 62)
    if shifted >> min(b, 62) != a:
        raise OverflowError(_LEFT)
    return shifted


@user_jit
def _right_shift(a: Any, b: Any) -> Any:
    if b < 0:
        raise ValueError("negative shift count")
    return a >> min(b, 63)


@user_jit
def _float_power(x: Any, y: Any) -> Any:
    result = math.pow(x, y)
    if math.isfinite(x) and math.isfinite(y) and not math.isfinite(result):
        raise ValueError("math domain or range error")
    return result


@user_jit
def _negative(a: Any) -> Any:
    return _sub(np.int64(0), a)


@user_jit
def _absolute(a: Any) -> Any:
    return _negative(a) if a < 0 else a


def _unary(plain: Callable[[Any], Any], whole: Callable[[Any], Any]) -> Any:
    def operate(a: Any) -> Any:
        raise NotImplementedError

    @overload(operate, **OVERLOADED)
    def choose(a: Any) -> Any:
        if _whole(a):
            return lambda a: whole(np.int64(a))
        return lambda a: plain(a)

    operate.__name__ = plain.__name__
    return operate


OPERATORS: dict[str, Any] = {
    "Add": _operator(operator.add, _add),
    "Sub": _operator(operator.sub, _sub),
    "Mult": _operator(operator.mul, _mul),
    "Div": _operator(operator.truediv, _divide),
    "FloorDiv": _operator(operator.floordiv, _floor_divide),
    "Pow": _operator(_float_power, _power),
    "LShift": _operator(operator.lshift, _left_shift),
    "RShift": _operator(operator.rshift, _right_shift),
    "USub": _unary(operator.neg, _negative),
}
"""By the name of the syntax node. The others (%, &, |, ^, ~) never leave 64 bits."""


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
        if _whole(x):
            return lambda x: np.int64(x)
        if not isinstance(x, types.Float):
            return lambda x: function(x)

        def whole(x: Any) -> Any:
            if not -9.2e18 < x < 9.2e18:
                raise OverflowError(_LEFT)
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
            math.gamma,
            math.lgamma,
        )
    },
    math.pow: _float_power,
    **{f: _to_whole(f) for f in (int, math.floor, math.ceil, math.trunc)},
    abs: _unary(abs, _absolute),
}
"""What stands for functions whose Numba form is silent where Python's raises."""
