"""Reading a user's function: its tree, with the lines of its file, and what its names stand for."""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import linecache
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from raystream.errors import GraphError, Where

LEAVE_OUT = "Leave out compiled=True, or use the batch form (rs.Batch)."
SOURCE = "__raystream_source__"
"""The attribute of a function that holds the text of its file, where other processes have no such
file: it was defined in `__main__`, as in a cell of a notebook."""


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function as written. `bound`: the names that are its own (arguments and assigned names);
    `defaults`: of its last arguments, as they were when it was defined."""

    name: str
    tree: ast.FunctionDef
    file: str
    names: Mapping[str, Any]
    bound: frozenset[str]
    defaults: tuple[Any, ...] = ()

    @property
    def arguments(self) -> list[str]:
        return [a.arg for a in self.tree.args.args]

    @property
    def emits(self) -> bool:
        """Whether the function is a generator."""
        return any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(self.tree))

    def where(self, node: ast.AST) -> Where:
        return where_at(self.file, getattr(node, "lineno", self.tree.lineno))


def where_at(file: str, line: int) -> Where:
    """A place in a file, with its text."""
    return Where(file, line, linecache.getline(file, line).strip())


def source_of(function: Callable[..., Any], operator: str) -> FunctionSource:
    """Read a plain Python function (or the function of a bound method).

    Raises:
        GraphError: its source cannot be read, or it is not a `def`.
    """
    function = getattr(function, "__func__", function)
    code = function.__code__
    try:
        text = getattr(function, SOURCE, None)
        if text is None:
            file = inspect.getsourcefile(function) or code.co_filename
            text = "".join(inspect.findsource(function)[0])
        else:
            file = code.co_filename
        tree = _parsed(text)
    except (OSError, TypeError, SyntaxError):
        raise GraphError(
            f"{operator}: the source of {function.__qualname__} cannot be read, so it"
            " cannot be compiled",
            hint="Define it in a file.",
        ) from None
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef)
            and node.name == function.__name__
            and code.co_firstlineno in (node.lineno, *(d.lineno for d in node.decorator_list))
        ):
            bound = frozenset((*code.co_varnames, *code.co_cellvars, *_of_comprehensions(node)))
            return FunctionSource(
                function.__name__,
                copy.deepcopy(node),
                file,
                _names(function),
                bound,
                function.__defaults__ or (),
            )
    raise GraphError(
        f"{operator}: {function.__qualname__} is not a plain `def`, so it cannot be compiled",
        where=where_at(file, code.co_firstlineno),
        hint=LEAVE_OUT,
    )


def _of_comprehensions(tree: ast.AST) -> list[str]:
    targets = [n.target for n in ast.walk(tree) if isinstance(n, ast.comprehension)]
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]


@lru_cache(maxsize=8)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _names(function: Any) -> Mapping[str, Any]:
    """What the names that are not a function's own stand for, now."""
    names = {**vars(builtins), **function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            names.pop(name, None)
    return names
