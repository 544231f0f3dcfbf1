"""What a function may ask about the type of its record, answered when it is compiled.

There is one copy of the function per input type, so `isinstance(event, Toll)`, `type(event) is
Toll` and `match event: case Toll(): ...` have one answer in each. What cannot be reached is
dropped: it would not compile, because another type has other fields.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from typing import Any

from raystream.schema.records import RecordSchema

_Fit = tuple[list[ast.stmt], list[ast.expr]]
"""How a pattern fits: the names that it binds, and what must be true at run time."""


def truth(node: ast.BoolOp) -> ast.expr:
    """`and`/`or` without the operands that are known."""
    decides = isinstance(node.op, ast.Or)
    left: list[ast.expr] = []
    for i, value in enumerate(node.values):
        known = value.value if isinstance(value, ast.Constant) else None
        if known is not (not decides) or i == len(node.values) - 1:
            left.append(value)
        if known is decides:
            break
    return _joined(node.op, left)


class Resolver:
    """Answers questions about the record named `name`, which is of the type `record`.

    Args:
        static: what a name or attribute stands for.
        refuse: makes the error for what has no answer.
    """

    def __init__(
        self,
        name: str | None,
        record: RecordSchema | None,
        static: Callable[[ast.expr], Any],
        refuse: Callable[[str, ast.AST], Exception],
    ) -> None:
        self.name = name
        self.cls: Any = record.cls if record is not None else None
        self.static = static
        self.refuse = refuse

    def is_record(self, node: ast.expr) -> bool:
        return self.name is not None and isinstance(node, ast.Name) and node.id == self.name

    # ------------------------------------------------------------ questions

    def isinstance(self, node: ast.Call) -> bool | None:
        """The answer of `isinstance(record, classes)`; None for other calls."""
        if len(node.args) != 2 or not self.is_record(node.args[0]):
            return None
        if self.static(node.func) is not builtins.isinstance:
            return None
        return any(issubclass(self.cls, c) for c in self.classes(node.args[1]))

    def classes(self, node: ast.expr) -> list[type]:
        """The classes that are named, in a tuple or a union."""
        if isinstance(node, ast.Tuple):
            return [c for e in node.elts for c in self.classes(e)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self.classes(node.left) + self.classes(node.right)
        return [self._class(node)]

    def _class(self, node: ast.expr) -> type:
        cls = self.static(node)
        if not isinstance(cls, type):
            raise self.refuse(f"{ast.unparse(node)} is not a class", node)
        return cls

    def type_is(self, node: ast.Compare) -> bool | None:
        """The answer of `type(record) is Class`; None for other comparisons."""
        left = node.left
        if not (
            isinstance(left, ast.Call)
            and len(left.args) == 1
            and self.is_record(left.args[0])
            and self.static(left.func) is type
            and len(node.ops) == 1
        ):
            return None
        same = self._class(node.comparators[0]) is self.cls
        return same if isinstance(node.ops[0], ast.Is | ast.Eq) else not same

    def condition(self, test: ast.expr) -> tuple[ast.expr | None, bool | None]:
        """What of a condition is still to be evaluated, and its truth where that is known."""
        if isinstance(test, ast.Constant):
            return None, bool(test.value)
        if isinstance(test, ast.BoolOp):
            last = test.values[-1]
            stop = isinstance(test.op, ast.Or)
            if isinstance(last, ast.Constant) and last.value is stop:
                return _joined(test.op, test.values[:-1]), stop
        return test, None

    # ------------------------------------------------------------ match

    def match(self, node: ast.Match) -> list[ast.stmt]:
        """The statements that `match record` comes to; still to be rewritten."""
        out: list[ast.stmt] = []
        rest = out
        for case in node.cases:
            fit = self._fit(case.pattern)
            if fit is None:
                continue
            binds, conditions = fit
            if case.guard is not None and binds and conditions:
                raise self.refuse("a pattern with values, names and a guard", case.pattern)
            if case.guard is not None:
                conditions = [*conditions, case.guard]
                rest += binds
                binds = []
            if not conditions:
                rest += [*binds, *case.body]
                break
            step = ast.If(_joined(ast.And(), conditions), [*binds, *case.body], [])
            rest.append(_at(step, case.pattern))
            rest = step.orelse
        return out

    def _fit(self, pattern: ast.pattern) -> _Fit | None:
        if isinstance(pattern, ast.MatchAs):
            fit: _Fit | None = ([], []) if pattern.pattern is None else self._fit(pattern.pattern)
            if fit is None or pattern.name is None:
                return fit
            return [
                *fit[0],
                _bind(pattern.name, ast.Name(self.name or "", ast.Load()), pattern),
            ], fit[1]
        if isinstance(pattern, ast.MatchOr):
            fits = [f for f in map(self._fit, pattern.patterns) if f is not None]
            if len(fits) < 2 or fits[0] == ([], []):
                return fits[0] if fits else None
        if isinstance(pattern, ast.MatchClass):
            return self._class_fit(pattern)
        raise self.refuse("a pattern for its record that is not a record class", pattern)

    def _class_fit(self, pattern: ast.MatchClass) -> _Fit | None:
        cls = self._class(pattern.cls)
        if not issubclass(self.cls, cls):
            return None
        names = [*self.cls._fields[: len(pattern.patterns)], *pattern.kwd_attrs]
        if cls is not self.cls and pattern.patterns:
            raise self.refuse(f"a pattern of {cls.__name__} with positions", pattern)
        binds: list[ast.stmt] = []
        conditions: list[ast.expr] = []
        for name, inner in zip(names, [*pattern.patterns, *pattern.kwd_patterns], strict=True):
            field = _at(
                ast.Attribute(ast.Name(self.name or "", ast.Load()), name, ast.Load()), inner
            )
            if isinstance(inner, ast.MatchAs) and inner.pattern is None:
                if inner.name is not None:
                    binds.append(_bind(inner.name, field, inner))
            else:
                conditions.append(self._equal(field, inner))
        return binds, conditions

    def _equal(self, field: ast.expr, pattern: ast.pattern) -> ast.expr:
        if isinstance(pattern, ast.MatchOr):
            return _joined(ast.Or(), [self._equal(field, p) for p in pattern.patterns])
        if isinstance(pattern, ast.MatchValue):
            return _at(ast.Compare(field, [ast.Eq()], [pattern.value]), pattern)
        if isinstance(pattern, ast.MatchSingleton):
            op = ast.Is() if pattern.value is None else ast.Eq()
            return _at(ast.Compare(field, [op], [ast.Constant(pattern.value)]), pattern)
        raise self.refuse("a pattern inside a pattern", pattern)


def _joined(op: ast.boolop, values: Sequence[ast.expr]) -> ast.expr:
    if len(values) == 1:
        return values[0]
    return _at(ast.BoolOp(op, list(values)), values[0])


def _bind(name: str, value: ast.expr, at: ast.AST) -> ast.stmt:
    return _at(ast.Assign([ast.Name(name, ast.Store())], value), at)


def _at(node: Any, like: ast.AST) -> Any:
    return ast.fix_missing_locations(ast.copy_location(node, like))
