"""`round` of compiled code, with Python's result: the float that is nearest to the exact decimal.

Numba multiplies by a power of ten, rounds and divides, which differs for one number of twenty:
2.675 is a little less than 2.675, so Python has 2.67. Here the product is known exactly, as a float
and the error that it was made with. The power and the rounded product are whole numbers below
2**53, or floats as they are, so that the quotient is rounded once, and rightly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from raystream.compiled.runtime.checked import EXACT, LEFT, OVERLOADED, add, is_whole, sub, user_jit

BEYOND = 2.0**63
"""The least float that is beyond all ints."""
_POWERS = tuple(10.0**n for n in range(23))
"""The powers of ten that are floats."""
_WHOLE_POWERS = tuple(10**n for n in range(19))


@intrinsic
def _fused(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), generate


_fma: Any = _fused  # its type has lost an argument


@user_jit
def _nearest(x: Any, rest: Any, unit: Any) -> Any:
    """The whole number that is nearest to x + rest / unit, for 0 <= x < 2**53: the even one of two.

    rest: no more of `unit` than x is inexact by, so that it decides only where x is half way.
    """
    least = math.floor(x)
    odd = least % 2 == 1
    if x - least > 0.5:
        return least + 1
    if x - least == 0.5:
        return least + (rest > 0 or (rest == 0 and odd))
    if abs(rest) * 2 == unit and odd:  # from x = 2**52 on, where floats have no halves
        return least + (1 if rest > 0 else -1)
    return least


@user_jit
def _decimals(x: Any, n: Any) -> Any:
    """`round(x, n)` of floats."""
    if not math.isfinite(x):
        return x
    if not -22 <= n <= 22:
        raise ValueError("a float rounded to more than 22 digits")
    size, power = abs(x), _POWERS[abs(n)]
    scaled = size * power if n >= 0 else size / power
    if scaled >= EXACT:  # x is nearer to its decimal than any other float
        return x
    if n >= 0:
        return math.copysign(_nearest(scaled, _fma(size, power, -scaled), 1.0) / power, x)
    return math.copysign(_nearest(scaled, _fma(-scaled, power, size), power) * power, x)


@user_jit
def _to_int(x: Any) -> Any:
    """`round(x)` of a float."""
    if not -BEYOND <= x < BEYOND:
        raise OverflowError(LEFT)
    return np.int64(_decimals(x, 0))


@user_jit
def _tens(a: Any, n: Any) -> Any:
    """`round(a, n)` of ints."""
    if n >= 0:
        return a
    if n < -18:
        raise ValueError("an int rounded to more than 18 digits")
    power = _WHOLE_POWERS[-n]
    over = a % power
    if 2 * over > power or (2 * over == power and (a // power) % 2 == 1):
        return add(a, power - over)
    return sub(a, over)


def rounded(x: Any, n: Any = None) -> Any:
    """`round`."""
    raise NotImplementedError


@overload(rounded, **OVERLOADED)
def _rounded(x: Any, n: Any = None) -> Any:
    if n is None or isinstance(n, types.NoneType | types.Omitted):
        if is_whole(x):
            return lambda x, n=None: np.int64(x)
        return (lambda x, n=None: _to_int(x)) if isinstance(x, types.Float) else None
    if not is_whole(n):
        return None
    if is_whole(x):
        return lambda x, n=None: _tens(np.int64(x), np.int64(n))
    if isinstance(x, types.Float):
        return lambda x, n=None: _decimals(np.float64(x), np.int64(n))
    return None
