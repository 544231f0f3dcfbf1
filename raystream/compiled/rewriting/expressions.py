"""Rewriting expressions: what names stand for, arithmetic, narrow fields, types of the record.

- Names and attributes that do not change become constants or compiled functions (see `unit`).
- Arithmetic is that of `arithmetic`; narrow state fields are widened when they are read.
- Questions about the type of the record are answered (see `patterns`).
- What would mean something else when compiled is refused.
"""

from __future__ import annotations

import ast
from copy import deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from raystream.compiled.rewriting.patterns import Resolver, truth
from raystream.compiled.rewriting.source import FunctionSource
from raystream.errors import GraphError
from raystream.schema.fields import is_record
from raystream.schema.records import RecordSchema
from raystream.schema.state import forget

if TYPE_CHECKING:
    from raystream.compiled.rewriting.unit import CodeUnit

OUT, ALONE = "_rs_out", "_rs_alone"
EMIT, FIT, FIT_ITEM, WIDEN, FORGET, TRUE, OPERATE = (
    "_rs_emit",
    "_rs_fit_",
    "_rs_fit_item",
    "_rs_widen",
    "_rs_forget",
    "_rs_true",
    "_rs_",
)
OPERATORS = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Pow,
    ast.LShift,
    ast.RShift,
    ast.USub,
    ast.Invert,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.In,
    ast.NotIn,
)
"""Those that `arithmetic` stands in for."""

_METHODS = {"append", "insert", "pop", "clear", "reverse"}
"""Methods of lists that can be compiled."""

MISSING: Any = object()
_REFUSED: dict[type, str] = {
    ast.FunctionDef: "a function inside a function",
    ast.Lambda: "a lambda",
    ast.AsyncFunctionDef: "an async function",
    ast.ClassDef: "a class",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
    ast.Import: "an import",
    ast.ImportFrom: "an import",
    ast.With: "with",
    ast.Try: "try",
    ast.Delete: "del",
    ast.Await: "await",
    ast.Set: "a set",
    ast.SetComp: "a set",
    ast.Slice: "a slice",
    ast.Dict: "a dict",
    ast.DictComp: "a dict",
    ast.JoinedStr: "an f-string",
}


def call(function: str, *arguments: ast.expr) -> ast.Call:
    """A call of generated code's own function."""
    return ast.Call(ast.Name(function, ast.Load()), list(arguments), [])


def true(test: ast.expr) -> ast.expr:
    """A condition in which None is false: Numba has no truth of what may be None."""
    if isinstance(test, ast.BoolOp):
        return ast.copy_location(ast.BoolOp(test.op, [true(v) for v in test.values]), test)
    if isinstance(test, ast.Name | ast.Attribute | ast.Subscript):
        return ast.copy_location(call(TRUE, test), test)
    return test


class Expressions(ast.NodeTransformer):
    """Rewrites the expressions of one function.

    Args:
        emits: it is a generator, or one of the operator's own methods.
        method: its first argument is the operator.
        record: the type of its (next) argument, where questions about that are to be answered.
        row: which of its arguments is the state row, counted from the last; 0 if none is.
    """

    def __init__(
        self,
        unit: CodeUnit,
        source: FunctionSource,
        *,
        emits: bool,
        method: bool,
        record: RecordSchema | None,
        row: int,
    ) -> None:
        self.unit = unit
        self.source = source
        self.emits = emits
        arguments = source.arguments
        self.self_name = arguments[0] if method else None
        self.record = arguments[method] if record is not None else None
        self.row = arguments[-row] if row else None
        self.resolver = Resolver(self.record, record, self.static, self.refuse)
        state = unit.spec.state
        self.fields = {f.name: f for f in state.fields} if state is not None else {}

    def refuse(self, message: str, at: ast.AST) -> GraphError:
        return self.unit.refuse(message, at, self.source)

    def visit(self, node: ast.AST) -> Any:
        if (shown := _REFUSED.get(type(node))) is not None:
            raise self.refuse(f"it has {shown}", node)
        return super().visit(node)

    def _operate(self, left: ast.expr, op: ast.operator | ast.cmpop, right: ast.expr) -> ast.expr:
        if isinstance(op, OPERATORS):
            return call(OPERATE + type(op).__name__, left, right)
        if isinstance(op, ast.cmpop):
            return ast.Compare(left, [op], [right])
        return ast.BinOp(left, op, right)

    def static(self, node: ast.expr) -> Any:
        """What a name or a chain of attributes stands for; `MISSING` when only running tells."""
        if isinstance(node, ast.Name):
            if node.id in self.source.bound:
                return MISSING
            if node.id not in self.source.names:
                raise self.refuse(f"the name {node.id!r} is not known", node)
            return self.source.names[node.id]
        if isinstance(node, ast.Attribute):
            if self._own_method(node):
                return getattr(type(self.unit.spec.target), node.attr)
            owner = self.static(node.value)
            if owner is MISSING:
                return MISSING
            try:
                return getattr(owner, node.attr)
            except AttributeError as error:
                raise self.refuse(str(error), node) from None
        return MISSING

    def _own_method(self, node: ast.expr) -> bool:
        """Whether an expression is an attribute of the operator's class, not one of its fields."""
        return (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and self.self_name is not None
            and node.value.id == self.self_name
            and node.attr not in self.unit.parameters
            and hasattr(type(self.unit.spec.target), node.attr)
        )

    def _self(self) -> ast.expr:
        return ast.Name(self.self_name or "", ast.Load())

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load) or node.id in self.source.bound:
            return node
        return ast.copy_location(self.unit.value(self.static(node), node, self.source), node)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        value = self.static(node)
        if value is not MISSING:
            return ast.copy_location(self.unit.value(value, node, self.source), node)
        if (
            isinstance(node.value, ast.Name)
            and node.value.id == self.row
            and node.attr not in self.fields
        ):
            raise self.refuse(f"{ast.unparse(node)} is not a field of its state", node)
        new = ast.Attribute(self.visit(node.value), node.attr, node.ctx)
        field = self.fields.get(node.attr)
        narrow = field is not None and field.kind == "fixed" and field.dtype in ("i1", "i2", "i4")
        return ast.copy_location(call(WIDEN, new) if narrow else new, node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        return ast.copy_location(call(WIDEN, node), node)

    def visit_Constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, int) and not -(1 << 63) <= node.value < 1 << 63:
            raise self.refuse(f"{node.value} does not fit int64", node)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        known = self.resolver.isinstance(node)
        if known is not None:
            return ast.Constant(known)
        function = self.static(node.func)
        if function is forget:
            self.unit.forgets = True
            return ast.copy_location(call(FORGET, *map(self.visit, node.args)), node)
        if function in (set, frozenset):
            raise self.refuse("it has a set, whose order is not Python's", node)
        if (item := self._table_item(node, function)) is not None:
            return item
        bound = self._own_method(node.func)
        if function is MISSING and isinstance(node.func, ast.Attribute):
            self._of_lists(node.func)
        if function is isinstance:
            self._of_types(node)
        if is_record(function):
            self._by_position(node, function)
        self.generic_visit(node)
        if bound:
            node.args.insert(0, self._self())
        return node

    def _table_item(self, node: ast.Call, function: Any) -> ast.expr | None:
        """`int(table[i])` or `float(table[i])`, of a global array; None for other calls."""
        item = node.args[0] if len(node.args) == 1 and function in (int, float) else None
        table = self.static(item.value) if isinstance(item, ast.Subscript) else None
        if not isinstance(item, ast.Subscript) or not isinstance(table, np.ndarray):
            return None
        item.value, item.slice = self.unit.table(table, item, self.source), self.visit(item.slice)
        node.func = self.visit(node.func)
        return node

    def _of_lists(self, method: ast.Attribute) -> None:
        """Others differ: NumPy adds up in another order, a copy of an array is no list, equal items
        are sorted otherwise, and an int is looked for among floats as a float."""
        if method.attr not in _METHODS:
            shown = ast.unparse(method)
            raise self.refuse(
                f"it calls {shown}, which may have another result: use a loop", method
            )

    def _of_types(self, node: ast.Call) -> None:
        """An int that may be a float elsewhere is one, and a bool is no int, when compiled."""
        for cls in self.resolver.classes(node.args[1]) if len(node.args) == 2 else [object]:
            if not is_record(cls):
                raise self.refuse(f"it asks for the type of {ast.unparse(node.args[0])}", node)

    def _by_position(self, node: ast.Call, cls: Any) -> None:
        """Give a record all its fields: Numba mishandles defaults beside keywords."""
        given = {k.arg: k.value for k in node.keywords}
        if None in given or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.refuse(f"{cls.__name__}(...) with * or **", node)
        for name in cls._fields[len(node.args) :]:
            if name in given:
                node.args.append(given.pop(name))
            elif name in cls._field_defaults:
                node.args.append(self.unit.value(cls._field_defaults[name], node, self.source))
            else:
                raise self.refuse(f"{cls.__name__}(...) without {name!r}", node)
        if given or len(node.args) > len(cls._fields):
            raise self.refuse(
                f"{cls.__name__}(...) with fields that it does not have, or twice", node
            )
        node.keywords = []

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self._no_array(node, node.left, node.right)
        return ast.copy_location(
            self._operate(self.visit(node.left), node.op, self.visit(node.right)), node
        )

    def visit_Compare(self, node: ast.Compare) -> Any:
        known = self.resolver.type_is(node)
        if known is not None:
            return ast.Constant(known)
        self._no_array(node, node.left, *node.comparators)
        self._no_identity(node)
        return ast.copy_location(self._compared(node), node)

    def _no_identity(self, node: ast.Compare) -> None:
        """Refuse `is` between values, except with None: compiled numbers have no identity."""
        sides = [node.left, *node.comparators]
        for op, pair in zip(node.ops, pairwise(sides), strict=True):
            nothing = any(isinstance(s, ast.Constant) and s.value is None for s in pair)
            if isinstance(op, ast.Is | ast.IsNot) and not nothing:
                raise self.refuse("`is` between values: compare them with ==", node)

    def _compared(self, node: ast.Compare) -> ast.expr:
        """`a < b < c` as `a < b and b < c`."""
        for middle in node.comparators[:-1]:
            self._may_repeat(middle)
        left: ast.expr = self.visit(node.left)
        steps = []
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.visit(comparator)
            steps.append(self._operate(left, op, right))
            left = deepcopy(right)  # a name for it (:=) is more than Numba takes here
        return steps[0] if len(steps) == 1 else ast.BoolOp(ast.And(), steps)

    def _may_repeat(self, middle: ast.expr) -> None:
        """Refuse what is not the same, or changes something, when it is evaluated twice."""
        for inner in ast.walk(middle):
            if isinstance(inner, ast.Call):
                function = self.static(inner.func)
                method = function is MISSING or function is next
                if method or hasattr(getattr(function, "py_func", function), "__code__"):
                    shown = ast.unparse(inner)
                    raise self.refuse(f"it compares {shown} twice: give it a name first", inner)

    def _no_array(self, node: ast.AST, *operands: ast.expr) -> None:
        """Lists and arrays differ in what + and == mean."""
        for operand in operands:
            if isinstance(operand, ast.Attribute):
                field = self.fields.get(operand.attr)
                if (
                    field is not None
                    and field.kind == "array"
                    and not isinstance(getattr(node, "ops", [None])[0], ast.In | ast.NotIn)
                ):
                    raise self.refuse(
                        f"it computes with the whole array {operand.attr!r}: use its items", node
                    )

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        return truth(
            ast.copy_location(ast.BoolOp(node.op, [self.visit(v) for v in node.values]), node)
        )

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            if isinstance(operand, ast.Constant):
                return ast.Constant(not operand.value)
            operand = true(operand)
        if isinstance(node.op, ast.USub | ast.Invert) and not isinstance(operand, ast.Constant):
            return ast.copy_location(call(OPERATE + type(node.op).__name__, operand), node)
        return ast.copy_location(ast.UnaryOp(node.op, operand), node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        test = self.visit(node.test)
        if isinstance(test, ast.Constant):
            return self.visit(node.body if test.value else node.orelse)
        return ast.copy_location(
            ast.IfExp(true(test), self.visit(node.body), self.visit(node.orelse)), node
        )
