"""What arithmetic of compiled code is made of: sums and products that stay in 64 bits, or raise.

Importing this module imports Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from raystream.native.numba_internals import cgutils as utils

FLAGS: dict[str, Any] = {"nogil": True, "error_model": "python"}
USER_FLAGS: dict[str, Any] = {**FLAGS, "boundscheck": True, "_nrt": True}
OVERLOADED: dict[str, Any] = {"jit_options": USER_FLAGS, "strict": False}

LEAST = -(1 << 63)
EXACT = 1 << 53
"""Up to here, either way, all ints are floats."""
LEFT = "an int left 64 bits"

F = TypeVar("F", bound=Callable[..., Any])


def user_jit(function: F) -> F:
    """Compile as the user's functions are."""
    return njit(**USER_FLAGS)(function)


@user_jit
def exact(value: Any) -> Any:
    """An int as the float that is equal to it."""
    if not -EXACT <= value <= EXACT:
        raise ValueError("an int beyond 2**53 would become a float")
    return np.float64(value)


def is_whole(*kinds: Any) -> bool:
    """Whether all of these Numba types are ints or bools."""
    return all(isinstance(k, types.Integer | types.Boolean) for k in kinds)


def may_be_none(*kinds: Any) -> bool:
    """Whether one of these Numba types is optional. An overload that has nothing for it is asked
    again for the value inside; None raises, as in Python."""
    return any(isinstance(k, types.Optional) for k in kinds)


def _checked(method: str) -> Any:
    """An intrinsic (int64, int64) that raises OverflowError; `method` of llvmlite's builder."""

    @intrinsic
    def operate(typing: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pair = getattr(builder, method)(*args)
            with builder.if_then(builder.extract_value(pair, 1), likely=False):
                context.call_conv.return_user_exc(builder, OverflowError, (LEFT,))
            return builder.extract_value(pair, 0)

        return types.int64(types.int64, types.int64), generate

    return operate


add = _checked("sadd_with_overflow")
sub = _checked("ssub_with_overflow")
mul = _checked("smul_with_overflow")


@intrinsic
def _c_power(typing: Any, x: Any, y: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        double = ir.DoubleType()
        kind = ir.FunctionType(double, [double, double])
        function = utils.get_or_insert_function(builder.module, kind, "pow")
        function.attributes.add("nobuiltin")
        return builder.call(function, args)

    return types.float64(types.float64, types.float64), generate


c_power: Any = _c_power
"""C's `pow`, as Python calls it. What LLVM knows by that name it replaces by products, a root or a
quotient, which are rounded otherwise."""


@intrinsic
def _inside(typing: Any, value: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_helper(builder, value, args[0]).data

    return value.type(value), generate


present: Any = _inside
"""The value inside an optional that is known not to be None."""
