"""What generated code calls to read and write columns and rows.

Python's integers are wide and its floats are doubles; columns and state fields may be narrower.
What is read from them is widened, what is written to them is checked: a value that does not fit
raises OverflowError, a value of another kind (a float into an int) is refused when the operator is
compiled.

Importing this module imports Numba.
"""
# Overloads are Python functions that Numba compiles: a bare intrinsic would not do.
# ruff: noqa: PLW0108

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload

from raystream.compiled.runtime.checked import OVERLOADED, exact, present, user_jit
from raystream.schema.fields import SHOWN
from raystream.schema.state import FORGOTTEN
from raystream.state.tables.row_kernels import FORGET

assert FORGET != FORGOTTEN  # the first marks a structured row, the second a Python row


# ---------------------------------------------------------------- memory


def _put(stored: Any) -> Any:
    """A function (address, position, value) that stores into a column; nothing is checked."""

    @intrinsic
    def put(typing: Any, address: Any, at: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], context.get_data_type(stored).as_pointer())
            cast = context.cast(builder, args[2], signature.args[2], stored)
            data = context.data_model_manager[stored].as_data(builder, cast)
            builder.store(data, builder.gep(pointer, [args[1]]))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, value), generate

    return put


PUT = {
    "i1": _put(types.int8),
    "i2": _put(types.int16),
    "i4": _put(types.int32),
    "i8": _put(types.int64),
    "f4": _put(types.float32),
    "f8": _put(types.float64),
    "?": _put(types.boolean),
}


# ---------------------------------------------------------------- values that may be None


@user_jit
def maybe(there: Any, value: Any) -> Any:
    """The value of an optional field."""
    return value if there else None


def is_there(value: Any) -> Any:
    """Whether an optional value is not None."""
    raise NotImplementedError


@overload(is_there, **OVERLOADED)
def _is_there(value: Any) -> Any:
    if isinstance(value, types.NoneType):
        return lambda value: False
    if isinstance(value, types.Optional):
        return lambda value: value is not None
    return lambda value: True


def or_zero(value: Any) -> Any:
    """An optional value, zero for None."""
    raise NotImplementedError


@overload(or_zero, **OVERLOADED)
def _or_zero(value: Any) -> Any:
    if isinstance(value, types.NoneType):
        return lambda value: False
    if isinstance(value, types.Optional):
        zero = value.type(0)
        return lambda value: zero if value is None else present(value)
    return lambda value: value


def true(value: Any) -> Any:
    """Whether a condition holds; None does not."""
    raise NotImplementedError


@overload(true, **OVERLOADED)
def _true(value: Any) -> Any:
    if isinstance(value, types.Optional):
        return lambda value: False if value is None else bool(present(value))
    if isinstance(value, types.NoneType):
        return lambda value: False
    if isinstance(value, types.Number | types.Boolean):
        return lambda value: bool(value)
    return lambda value: len(value) > 0


# ---------------------------------------------------------------- widths


def widen(value: Any) -> Any:
    """A number as Python has it: int64 or float64."""
    raise NotImplementedError


@overload(widen, **OVERLOADED)
def _widen(value: Any) -> Any:
    if isinstance(value, types.Integer):
        return lambda value: np.int64(value)
    if isinstance(value, types.Float):
        return lambda value: np.float64(value)
    return lambda value: value


def alone(value: Any) -> Any:
    """What a name stands for before `name += ...`. Lists are refused: compiled code would make a
    new one, and others that hold the list would not see that it grew."""
    raise NotImplementedError


@overload(alone, **OVERLOADED)
def _alone(value: Any) -> Any:
    if isinstance(value, types.List):
        raise TypingError("it changes a list by an operator and =: use append")
    return lambda value: value


def misfit(value: Any, dtype: str) -> str:
    """Why a value of a Numba type can never be stored in a dtype; empty when it can."""
    if isinstance(value, types.Optional):
        value = value.type
    kind = np.dtype(dtype).kind
    if isinstance(value, types.NoneType):
        return "it is None, but is not declared optional"
    if (
        isinstance(value, types.Boolean)
        or (kind in "if" and isinstance(value, types.Integer))
        or (kind == "f" and isinstance(value, types.Float))
    ):
        return ""
    return f"a value of type {value} does not fit {SHOWN[dtype]}"


def fitter(
    label: str, dtype: str, problems: list[str], *, state: bool = False
) -> Callable[..., Any]:
    """A function, for compiled code, that returns its argument as a number that fits `dtype`.

    `label` names the field. `state`: it is read again, and there Python still has the int that was
    put into a float, so it must be the same number. When the type of the argument cannot fit, the
    reason goes to `problems` and compilation fails.
    """
    kind, size = np.dtype(dtype).kind, np.dtype(dtype).itemsize
    low, high = -(1 << (8 * size - 1)), (1 << (8 * size - 1)) - 1
    too_big = f"{label}: the value does not fit {SHOWN[dtype]}"
    is_none = f"{label} is None, but is not declared optional"

    def fit(value: Any) -> Any:
        raise NotImplementedError

    @overload(fit, **OVERLOADED)
    def choose(value: Any) -> Any:
        if reason := misfit(value, dtype):
            problems.append(f"{label}: {reason}")
            raise TypingError(problems[-1])
        if isinstance(value, types.Optional):

            def required(value: Any) -> Any:
                if value is None:
                    raise TypeError(is_none)
                return fit(present(value))

            return required
        if kind == "b":
            return lambda value: value
        if kind == "f" and state and isinstance(value, types.Integer):
            return lambda value: exact(value)
        if kind == "f" and size == 4 and not isinstance(value, types.Boolean):

            def short(value: Any) -> Any:
                if math.isfinite(value) and math.isinf(np.float32(value)):
                    raise OverflowError(too_big)
                return np.float64(value)

            return short
        if kind == "f":
            return lambda value: np.float64(value)
        if size == 8 or isinstance(value, types.Boolean):
            return lambda value: np.int64(value)

        def checked(value: Any) -> Any:
            wide = np.int64(value)
            if wide < low or wide > high:
                raise OverflowError(too_big)
            return wide

        return checked

    return fit


def fit_item(array: Any, value: Any) -> Any:
    """A value that fits the items of an array, for `array[i] = value`."""
    raise NotImplementedError


_ITEM_PROBLEMS: list[str] = []
_ITEM = {kind: fitter("an item of an array", kind, _ITEM_PROBLEMS, state=True) for kind in SHOWN}


@overload(fit_item, **OVERLOADED)
def _fit_item(array: Any, value: Any) -> Any:
    if isinstance(array, types.Array) and isinstance(array.dtype, types.Number | types.Boolean):
        name = "?" if isinstance(array.dtype, types.Boolean) else str(array.dtype)
        fit = _ITEM[{v: k for k, v in SHOWN.items()}.get(name, name)]
        return lambda array, value: fit(value)
    return lambda array, value: value


def forgetter() -> Any:
    """`rs.forget` of one operator's rows: the driver removes the row after the call.

    One for each operator: Numba would take a row of more fields for one of fewer, and warn.
    """

    @user_jit
    def forget(row: Any) -> None:
        row._epoch = FORGET

    return forget


# ---------------------------------------------------------------- emission


def emitter(classes: list[type], names: dict[str, Any], problems: list[str]) -> Callable[..., None]:
    """A function (out, record), for compiled code, that emits a record of one of these classes with
    `names["emit_<t>"]`."""

    def emit(out: Any, record: Any) -> None:
        raise NotImplementedError

    @overload(emit, **OVERLOADED)
    def choose(out: Any, record: Any) -> Any:
        cls = getattr(record, "instance_class", None)
        if cls not in classes:
            problems.append(
                f"it yields {getattr(cls, '__name__', record)}, which its annotation does not name"
            )
            raise TypingError(problems[-1])
        each = names[f"emit_{classes.index(cls)}"]

        def chosen(out: Any, record: Any) -> None:
            each(out, record)

        return chosen

    return emit
