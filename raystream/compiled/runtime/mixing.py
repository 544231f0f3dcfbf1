"""Ints that become floats because a name, a choice or a result may be either, in compiled code.

Python keeps the int; Numba has one type for both, and rounds an int beyond 2**53 without a word.
Here every such place checks that the int is a float as it is, or raises.

Importing this module imports Numba.
"""
# Overloads are Python functions that Numba compiles: a bare intrinsic would not do.
# ruff: noqa: PLW0108

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit, types
from numba.core.errors import TypingError
from numba.extending import overload

from raystream.compiled.runtime.checked import EXACT, OVERLOADED, USER_FLAGS, exact, present
from raystream.native.numba_internals import (
    CompilerBase,
    DefaultPassBuilder,
    FunctionPass,
    PreLowerStripPhis,
    ir,
    register_pass,
)
from raystream.native.numba_internals import ir_utils as utils

passes: Any = DefaultPassBuilder
registered: Any = register_pass(mutates_CFG=False, analysis_only=False)  # type: ignore[no-untyped-call]
unliteral: Any = types.unliteral
F = TypeVar("F", bound=Callable[..., Any])


def as_float(value: Any) -> Any:
    """An int, or None, as the float that is equal to it."""
    raise NotImplementedError


@overload(as_float, **OVERLOADED)
def _as_float(value: Any) -> Any:
    if isinstance(value, types.Optional):
        return lambda value: None if value is None else exact(present(value))
    return lambda value: exact(value)


def _bare(kind: Any) -> Any:
    return kind.type if isinstance(kind, types.Optional) else kind


def _rounds(given: Any, wanted: Any) -> bool:
    """Whether a value of one Numba type may be another number in the other."""
    if not isinstance(_bare(wanted), types.Float):
        return False
    if isinstance(given, types.IntegerLiteral):
        return not -EXACT <= given.literal_value <= EXACT
    return isinstance(_bare(given), types.Integer)


def _mixes(given: Any, wanted: Any) -> bool:
    """The same of a value inside a tuple, where it is not checked."""
    if not all(isinstance(kind, types.BaseTuple) for kind in (given, wanted)):
        return False
    return any(_rounds(g, w) or _mixes(g, w) for g, w in zip(given, wanted, strict=True))


@registered
class _Exact(FunctionPass):
    """Puts `as_float` where an int is assigned to what is a float, returned or listed as one."""

    _name = "raystream_exact"

    def __init__(self) -> None:
        FunctionPass.__init__(self)  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        changed = False
        for block in state.func_ir.blocks.values():
            body = []
            for statement in block.body:
                body += _before(state, statement)
                body.append(statement)
            changed = changed or len(body) > len(block.body)
            block.body = body
        return changed


def _before(state: Any, statement: Any) -> list[Any]:
    """What goes before a statement, of which the ints that become floats are replaced."""
    kinds: Any = state.typemap
    value: Any = getattr(statement, "value", None)
    if isinstance(statement, ir.SetItem | ir.StaticSetItem):
        row = kinds[statement.target.name]
        if not isinstance(row, types.List):
            return []
        statement.value, lines = _listed(state, value, row.dtype, statement.loc)
        return lines
    if not isinstance(statement, ir.Assign):
        return []
    wanted = kinds[statement.target.name]
    if isinstance(wanted, types.List) and getattr(wanted.dtype, "bitwidth", 64) < 64:
        raise TypingError("a list of narrow numbers wraps around: int(v)", loc=statement.loc)
    if isinstance(value, ir.Expr) and value.op == "call":
        return _given(state, value, statement.loc)
    if isinstance(value, ir.Expr) and value.op == "build_list":
        found = [_checked(state, item, wanted.dtype, statement.loc) for item in value.items]
        value.items = [item for item, _ in found]
        return [line for _, lines in found for line in lines]
    cast = isinstance(value, ir.Expr) and value.op == "cast"
    source = value.value if cast else value
    if not isinstance(source, ir.Var):
        return []
    if _mixes(kinds[source.name], wanted):
        raise TypingError("a tuple holds an int or a float in one place", loc=statement.loc)
    result, lines = _checked(state, source, wanted, statement.loc)
    if lines:
        statement.value = ir.Expr.cast(result, statement.loc) if cast else result
    return lines


def _given(state: Any, call: Any, loc: Any) -> list[Any]:
    """What goes before the call of a list's method."""
    method = state.typemap[call.func.name]
    if not (isinstance(method, types.BoundFunction) and isinstance(method.this, types.List)):
        return []
    wanted = state.calltypes[call].args
    found = [_listed(state, v, w, loc) for v, w in zip(call.args, wanted, strict=True)]
    call.args = tuple(item for item, _ in found)
    return [line for _, lines in found for line in lines]


def _listed(state: Any, source: Any, wanted: Any, loc: Any) -> tuple[Any, list[Any]]:
    """As `_checked`, of what is put into a list of `wanted`."""
    given = state.typemap[source.name]
    if _loses(given, wanted) or _mixes(given, wanted):
        raise TypingError(f"a list of {wanted} is given {given}", loc=loc)
    return _checked(state, source, wanted, loc)


def _loses(given: Any, wanted: Any) -> bool:
    """Whether a value of one Numba type is cut off in the other."""
    if all(isinstance(kind, types.BaseTuple) for kind in (given, wanted)):
        return any(_loses(g, w) for g, w in zip(given, wanted, strict=True))
    given, wanted = _bare(given), _bare(wanted)
    return (isinstance(given, types.Float) and isinstance(wanted, types.Integer)) or (
        isinstance(given, types.Number) and isinstance(wanted, types.Boolean)
    )


def _checked(state: Any, source: Any, wanted: Any, loc: Any) -> tuple[Any, list[Any]]:
    """A variable as one that may become of the type `wanted`, and the statements that make it."""
    given = state.typemap[source.name]
    if not _rounds(given, wanted):
        return source, []
    function = ir.Var(source.scope, utils.mk_unique_var("$exact"), loc)
    result = ir.Var(source.scope, utils.mk_unique_var("$float"), loc)
    kind = state.typingctx.resolve_value_type(as_float)
    signature = state.typingctx.resolve_function_type(kind, (unliteral(given),), {})
    call = ir.Expr.call(function, [source], (), loc)
    state.typemap[function.name] = kind
    state.typemap[result.name] = signature.return_type
    state.calltypes[call] = signature
    lines = [
        ir.Assign(ir.Global("as_float", as_float, loc), function, loc),
        ir.Assign(call, result, loc),
    ]
    return result, lines


class _Compiler(CompilerBase):
    """Numba's compiler, with this pass as soon as types are known."""

    def define_pipelines(self) -> list[Any]:
        manager = passes.define_nopython_pipeline(self.state)
        manager.add_pass_after(_Exact, PreLowerStripPhis)
        manager.finalize()
        return [manager]


def written_jit(function: F) -> F:
    """Compile a function of the user's, by the rules for users' code (`USER_FLAGS`)."""
    compiled: F = njit(pipeline_class=_Compiler, **USER_FLAGS)(function)
    return compiled
