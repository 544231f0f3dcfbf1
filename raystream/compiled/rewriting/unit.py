"""All functions of one operator, rewritten, in one namespace.

A name in a user's function stands for a number (it becomes a constant), a record class, a function
of the user's (it is rewritten and compiled too), or something that Numba knows. Everything else is
refused, with the line.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.compiled.rewriting.rewrite import Rewriter
from raystream.compiled.rewriting.source import LEAVE_OUT, FunctionSource, source_of
from raystream.errors import GraphError
from raystream.schema.fields import is_record
from raystream.schema.records import RecordSchema

_IMPURE = {"time", "random", "datetime", "secrets", "uuid", "os", "calendar"}
_KNOWN = {"math", "numpy", "builtins", "operator", "_operator"}


class CodeUnit:
    """The functions of an operator.

    Attributes:
        functions: the rewritten functions by name, in the order in which they were met, with the
            file that they come from.
        values: what other names of generated code stand for, by name.
        parameters: the fields of the operator's dataclass, numbers by name.
        forgets: whether `rs.forget` is called.
    """

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec
        self.functions: dict[str, tuple[ast.FunctionDef, str]] = {}
        self.values: dict[str, Any] = {}
        self.parameters = self._parameters()
        self.forgets = False
        self._helpers: dict[tuple[Any, bool], str] = {}
        for f in spec.state.fields if spec.state is not None else ():
            if f.dtype == "f4" and spec.state is not None:
                raise spec.fail(
                    f"its state cannot be compiled with {spec.state.name}.{f}: what is"
                    " stored would be rounded, which Python does not do",
                    hint="Declare it as float.",
                )
            if f.kind == "array" and f.dtype == "?" and spec.state is not None:
                raise spec.fail(
                    f"its state cannot be compiled with {spec.state.name}.{f}: Numba has no rows"
                    " with arrays of bools",
                    hint='Declare numbers: rs.Array("i1", ...).',
                )

    def _parameters(self) -> dict[str, Any]:
        target = self.spec.target
        if not dataclasses.is_dataclass(target):
            return {}
        out: dict[str, Any] = {}
        for f in dataclasses.fields(target):
            value = getattr(target, f.name)
            if f.name.startswith("_"):
                raise self.spec.fail(
                    f"the parameter {f.name} cannot be compiled: its name begins with _",
                    hint=LEAVE_OUT,
                )
            if not (_is_number(value) and _fits(value)):
                raise self.spec.fail(
                    f"the parameter {f.name}={value!r} is not a number of Python's, so it cannot be"
                    " compiled",
                    hint=LEAVE_OUT,
                )
            out[f.name] = _plain_number(value)
        return out

    # ------------------------------------------------------------ functions

    def method(self, function: Callable[..., Any], name: str, record: RecordSchema | None) -> str:
        """Add `process` for one input type, or `close` or `timer`; the name of what was added."""
        source = source_of(function, self.spec.name)
        self._add(
            source,
            name,
            emits=True,
            method=inspect.ismethod(function),
            record=record,
            row=0 if self.spec.state is None else 1 if record else 1 + len(self.spec.told),
        )
        return name

    def helper(self, function: Any, emits: bool) -> str:
        """Add a function that compiled code calls, once; its name. `emits`: it is a generator."""
        known = self._helpers.get((function, emits))
        if known is None:
            known = f"_rs_{len(self._helpers)}_{function.__name__}"
            self._helpers[function, emits] = known
            source = source_of(function, self.spec.name)
            method = getattr(type(self.spec.target), function.__name__, None) is function
            self._add(source, known, emits=emits, method=method, record=None, row=0)
        return known

    def _add(
        self,
        source: FunctionSource,
        name: str,
        *,
        emits: bool,
        method: bool,
        record: RecordSchema | None,
        row: int,
    ) -> None:
        rewriter = Rewriter(self, source, emits=emits, method=method, record=record, row=row)
        self.functions[name] = rewriter.function(name), source.file

    # ------------------------------------------------------------ values

    def value(self, value: Any, at: ast.AST, source: FunctionSource) -> ast.expr:
        """The expression that stands for a value which a user's name or attribute resolved to."""
        if value is None or isinstance(value, bool | str):
            return ast.Constant(value)
        if _is_number(value):
            plain = _plain_number(value)
            if not _fits(plain):
                raise self.refuse(f"{value!r} does not fit int64", at, source)
            return ast.Constant(plain)
        if isinstance(value, types.FunctionType):
            return ast.Name(self.helper(value, emits=False), ast.Load())
        if hasattr(value, "py_func"):  # jitted by the user
            return ast.Name(self.helper(value.py_func, emits=False), ast.Load())
        return ast.Name(self._named(value, at, source), ast.Load())

    def _named(self, value: Any, at: ast.AST, source: FunctionSource) -> str:
        if isinstance(value, np.ndarray | np.generic):
            raise self.refuse(
                f"it uses a {type(value).__name__} of NumPy, whose numbers reckon otherwise",
                at,
                source,
                hint="Make it a number of Python's, or a tuple of them. Of an array read"
                " int(table[i]) or float(table[i]).",
            )
        if isinstance(value, tuple) and _plain(value):
            return self._keep(value)
        if is_record(value):
            return self._keep(value, value.__name__)
        if callable(value) and _home(value) in _KNOWN:
            return self._keep(self._known(value, at, source), value.__name__)
        name = getattr(value, "__name__", type(value).__name__)
        if _home(value) in _IMPURE:
            raise self.refuse(
                f"it uses {name!r} of {_home(value)!r}: a replay would give another result",
                at,
                source,
                hint="Take time from records, randomness from a hash of their fields.",
            )
        if isinstance(value, list | dict | set):
            raise self.refuse(
                f"it reads a global {type(value).__name__}, which may change",
                at,
                source,
                hint="Use a tuple. " + LEAVE_OUT,
            )
        raise self.refuse(
            f"it uses {name!r}, which is not a number, a record or a function that can be compiled",
            at,
            source,
        )

    def table(self, array: np.ndarray, at: ast.AST, source: FunctionSource) -> ast.expr:
        """The expression for a global array, of which an item is made a number at once."""
        if array.dtype not in (np.int64, np.float64):
            raise self.refuse(
                f"it reads an array of {array.dtype}", at, source, hint="Make it int64 or float64."
            )
        return ast.Name(self._keep(array.copy()), ast.Load())

    def _known(self, function: Any, at: ast.AST, source: FunctionSource) -> Any:
        """What compiled code calls for a function of Python's or NumPy's."""
        from raystream.compiled.runtime.functions import STANDS_FOR, differs

        if reason := differs(function, _home(function)):
            raise self.refuse(f"{function.__name__!r} {reason}", at, source)
        return STANDS_FOR.get(function, function)

    def _keep(self, value: Any, label: str = "value") -> str:
        for name, known in self.values.items():
            if known is value:
                return name
        name = f"_rs_{label}_{len(self.values)}"
        self.values[name] = value
        return name

    def refuse(
        self, message: str, at: ast.AST, source: FunctionSource, hint: str = LEAVE_OUT
    ) -> GraphError:
        return GraphError(
            f"{self.spec.name} cannot be compiled: {message}", where=source.where(at), hint=hint
        )


def _home(value: Any) -> str:
    """The top module that a function, class or module belongs to."""
    if isinstance(value, types.ModuleType):
        module = value.__name__
    elif isinstance(value, np.ufunc):
        module = "numpy"
    else:
        owner = getattr(value, "__self__", None)
        module = (
            getattr(value, "__module__", None)
            or getattr(owner, "__module__", None)
            or type(owner).__module__
        )
    return "random" if module.startswith("numpy.random") else module.partition(".")[0]


def _is_number(value: Any) -> bool:
    """Whether a value is a number, but none of NumPy's, of which + and ~ of conditions, // by zero
    and round are others than Python's."""
    return isinstance(value, int | float) and not isinstance(value, np.generic)


def _plain_number(value: int | float) -> int | float:
    """A number for one that may be of an enumeration."""
    if isinstance(value, enum.Enum):
        return int(value) if isinstance(value, int) else float(value)
    return value


def _fits(value: int | float) -> bool:
    return isinstance(value, float) or -(1 << 63) <= value < 1 << 63


def _plain(value: tuple[Any, ...]) -> bool:
    return all(
        _plain(v)
        if isinstance(v, tuple)
        else _is_number(v) and not isinstance(v, enum.Enum) and _fits(v)
        for v in value
    )
