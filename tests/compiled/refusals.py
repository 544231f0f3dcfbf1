"""Operators that are refused when they are compiled: cases, and what each of them must say."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import pytest

import raystream as rs
from raystream.api.declarations import spec_of
from raystream.compiled.operator import compile_operator
from raystream.errors import GraphError

GROUPS = 4


class In(NamedTuple):
    time: int
    key: rs.Int32
    value: int = 0


class Real(NamedTuple):
    time: int
    key: rs.Int32
    value: float = 0.0


class Out(NamedTuple):
    key: rs.Int32
    small: rs.Int8 = 0
    yes: bool = False
    maybe: rs.Int16 | None = None


class Row(rs.State):
    n: int = 0
    small: rs.Int8 = 0
    cars: Annotated[list[int], rs.Array("i1", 4)] = rs.zeros(4)


class Cases(list[Any]):
    """Parameters (operator, message, function) of one module's test."""

    def refused(
        self, message: str, inside: Callable[..., Any] | None = None
    ) -> Callable[[Any], Any]:
        """The operator is refused with this message at the line of the function `inside`, by
        default the operator itself, that ends in `# here`."""

        def add(op: Any) -> Any:
            self.append(pytest.param(op, message, inside or op, id=op.__name__))
            return op

        return add


def check(op: Any, message: str, inside: Callable[..., Any]) -> None:
    """The compiler refuses the operator: it says so in one line of text, gives a hint, and names
    the line that ends in `# here`."""
    with pytest.raises(GraphError) as refusal:
        compile_operator(spec_of(op), groups=GROUPS)
    error = refusal.value
    assert message in error.message and "\n" not in error.message
    assert error.where is not None
    assert (error.where.file, error.where.line) == place_of(inside)
    assert error.hint


def place_of(function: Callable[..., Any]) -> tuple[str, int]:
    """The file of a function, and its only line that ends in `# here`."""
    lines, first = inspect.getsourcelines(function)
    (line,) = [n for n, text in enumerate(lines, first) if text.rstrip().endswith("# here")]
    return inspect.getfile(function), line
