"""Rewriting a user's function into one that Numba compiles, keeping its lines.

- `yield x` emits x into the output columns; it may be of any type that the operator declares.
- `match` and `if` on the type of the record are resolved: there is one copy of the function per
  input type (see `patterns`).
- What is assigned to a state field or an item of an array is checked to fit.
- Everything inside is rewritten too (see `expressions`).
"""

from __future__ import annotations

import ast
from typing import Any

from raystream.compiled.rewriting.expressions import (
    ALONE,
    EMIT,
    FIT,
    FIT_ITEM,
    MISSING,
    OUT,
    WIDEN,
    Expressions,
    call,
    true,
)


class Rewriter(Expressions):
    """Rewrites one function; see `Expressions` for the arguments."""

    temporaries = 0

    def function(self, name: str) -> ast.FunctionDef:
        """The whole function, under another name."""
        self._check_names()
        tree = self.source.tree
        arguments = tree.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            raise self.refuse("a function with *args, **kwargs or keyword-only arguments", tree)
        names = [ast.arg(a.arg) for a in (*arguments.posonlyargs, *arguments.args)]
        if self.emits:
            names.append(ast.arg(OUT))
        new = ast.FunctionDef(
            name=name,
            decorator_list=[],
            returns=None,
            type_comment=None,
            args=ast.arguments(
                posonlyargs=[],
                args=names,
                vararg=None,
                kwonlyargs=[],
                kw_defaults=[],
                kwarg=None,
                defaults=[] if self.emits else self._defaults(arguments.defaults),
            ),
            body=self.body(tree.body),
        )
        ast.copy_location(new, tree)
        return ast.fix_missing_locations(new)

    def _defaults(self, written: list[ast.expr]) -> list[ast.expr]:
        """The defaults of arguments, as values: their names may stand for something else later."""
        values = zip(self.source.defaults, written, strict=True)
        return [self.unit.value(value, at, self.source) for value, at in values]

    def _check_names(self) -> None:
        """The record keeps its type: it was resolved."""
        for node in ast.walk(self.source.tree):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Store)
                and node.id == self.record
                and len(self.unit.spec.inputs) > 1
            ):
                raise self.refuse(f"it assigns to {node.id!r}, its record", node)

    # ------------------------------------------------------------ statements

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Statements, rewritten; never empty."""
        out: list[ast.stmt] = []
        for statement in statements:
            new = self.visit(statement)
            new = [] if new is None else new if isinstance(new, list) else [new]
            out += [ast.fix_missing_locations(ast.copy_location(n, statement)) for n in new]
        return out or [ast.Pass()]

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self.body(value))
            elif isinstance(value, list):
                setattr(node, name, [self.visit(v) if isinstance(v, ast.AST) else v for v in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node

    def visit_Expr(self, node: ast.Expr) -> Any:
        value = node.value
        if isinstance(value, ast.Constant):  # a docstring
            return None
        if isinstance(value, ast.Yield):
            return self._emit(value)
        if isinstance(value, ast.YieldFrom):
            return ast.Expr(self._delegate(value))
        return self.generic_visit(node)

    def _emit(self, node: ast.Yield) -> Any:
        value = node.value
        if value is None:
            raise self.refuse("it yields nothing", node)
        if isinstance(value, ast.IfExp):  # the branches may be records of different types
            body, orelse = (
                ast.fix_missing_locations(ast.copy_location(ast.Expr(ast.Yield(v)), node))
                for v in (value.body, value.orelse)
            )
            chosen = ast.If(value.test, [body], [orelse])
            return self.visit(ast.copy_location(chosen, node))
        return ast.Expr(call(EMIT, ast.Name(OUT, ast.Load()), self.visit(value)))

    def _delegate(self, node: ast.YieldFrom) -> ast.expr:
        inner = node.value
        function = self.static(inner.func) if isinstance(inner, ast.Call) else MISSING
        if not isinstance(inner, ast.Call) or not hasattr(function, "__code__"):
            raise self.refuse("it yields from something that is not a function of yours", node)
        bound = [self._self()] if self._own_method(inner.func) else []
        if inner.keywords:
            raise self.refuse("it yields from a call with keyword arguments", node)
        arguments = [self.visit(a) for a in inner.args]
        return call(
            self.unit.helper(function, emits=True), *bound, *arguments, ast.Name(OUT, ast.Load())
        )

    def visit_Yield(self, node: ast.Yield) -> Any:
        raise self.refuse("it uses the value of a yield", node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> Any:
        raise self.refuse("it uses the value of a yield from", node)

    def visit_Return(self, node: ast.Return) -> Any:
        if (
            self.emits
            and node.value is not None
            and not (isinstance(node.value, ast.Constant) and node.value.value is None)
        ):
            raise self.refuse("it returns records: compiled operators yield them", node)
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> Any:
        # What is raised does not matter: the call is done again interpreted, and raises it there.
        return ast.Raise(call("ValueError", ast.Constant("raised")), None)

    def visit_Assert(self, node: ast.Assert) -> Any:
        return ast.Assert(true(self.visit(node.test)), None)

    def visit_While(self, node: ast.While) -> Any:
        return ast.While(true(self.visit(node.test)), self.body(node.body), self._else(node))

    def _else(self, node: ast.While) -> list[ast.stmt]:
        return self.body(node.orelse) if node.orelse else []

    def visit_If(self, node: ast.If) -> Any:
        before, known = self.resolver.condition(self.visit(node.test))
        if known is None:
            assert before is not None
            return ast.If(
                true(before), self.body(node.body), self.body(node.orelse) if node.orelse else []
            )
        taken = self.body(node.body if known else node.orelse)
        return taken if before is None else [ast.Expr(before), *taken]

    def visit_Match(self, node: ast.Match) -> Any:
        if not self.resolver.is_record(node.subject):
            for inner in ast.walk(node):
                if isinstance(inner, ast.MatchSingleton) and inner.value is not None:
                    raise self.refuse(f"a pattern {inner.value}: use if", inner)
            return self.generic_visit(node)
        return self.body(self.resolver.match(node))

    def visit_For(self, node: ast.For) -> Any:
        if any(isinstance(n, ast.Attribute | ast.Subscript) for n in ast.walk(node.target)):
            raise self.refuse(f"it loops over values of {ast.unparse(node.target)}", node)
        return self.generic_visit(node)

    # ------------------------------------------------------------ assignments

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return None
        return self._assign([node.target], self.visit(node.value))

    def visit_Assign(self, node: ast.Assign) -> Any:
        return self._assign(node.targets, self.visit(node.value))

    def _assign(self, targets: list[ast.expr], value: ast.expr) -> list[ast.stmt]:
        if len(targets) == 1 and not isinstance(targets[0], ast.Subscript):
            return self._store(targets[0], value)
        # The value first, and then where an item goes: to compute the one may change the other.
        name, first = self._keep(value)
        return [first, *(s for t in targets for s in self._store(t, ast.Name(name, ast.Load())))]

    def _keep(self, value: ast.expr) -> tuple[str, ast.stmt]:
        self.temporaries += 1
        name = f"_rs_t{self.temporaries}"
        return name, ast.Assign([ast.Name(name, ast.Store())], value)

    def _store(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        if isinstance(target, ast.Tuple | ast.List):
            return self._unpack(target.elts, value)
        if isinstance(target, ast.Attribute):
            return [ast.Assign([self._attribute(target)], call(FIT + target.attr, value))]
        if isinstance(target, ast.Subscript):
            base, index, before = self._item(target)
            new = ast.Subscript(base, index, ast.Store())
            return [*before, ast.Assign([new], call(FIT_ITEM, base, value))]
        if isinstance(target, ast.Name):
            return [ast.Assign([target], value)]
        raise self.refuse("it assigns to something that cannot be compiled", target)

    def _unpack(self, targets: list[ast.expr], value: ast.expr) -> list[ast.stmt]:
        """From left to right: an index may be a name that is assigned after the item, or before."""
        if all(isinstance(t, ast.Name) for t in targets):
            return [ast.Assign([ast.Tuple(targets, ast.Store())], value)]
        names, after = [], []
        for target in targets:
            name, _ = self._keep(value)
            names.append(ast.Name(name, ast.Store()))
            after += self._store(target, ast.Name(name, ast.Load()))
        return [ast.Assign([ast.Tuple(list(names), ast.Store())], value), *after]

    def _attribute(self, target: ast.Attribute) -> ast.Attribute:
        field = self.fields.get(target.attr)
        if not isinstance(target.value, ast.Name) or field is None:
            raise self.refuse(
                f"it assigns to {ast.unparse(target)}, which is not a field of its state", target
            )
        if field.kind == "array":
            raise self.refuse(f"it replaces the array {target.attr!r}: assign its items", target)
        return ast.Attribute(target.value, target.attr, ast.Store())

    def _item(self, target: ast.Subscript) -> tuple[ast.expr, ast.expr, list[ast.stmt]]:
        """The base and index of an item, each of which may be evaluated twice."""
        base = target.value
        if not (
            isinstance(base, ast.Name)
            or (isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name))
        ):
            raise self.refuse(f"it assigns to {ast.unparse(target)}", target)
        name, before = self._keep(self.visit(target.slice))
        return self.visit(base), ast.Name(name, ast.Load()), [before]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        target = node.target
        if isinstance(target, ast.Subscript):
            base, index, before = self._item(target)
            item = call(WIDEN, ast.Subscript(base, index, ast.Load()))
            new = self._operate(item, node.op, self.visit(node.value))
            return [
                *before,
                ast.Assign([ast.Subscript(base, index, ast.Store())], call(FIT_ITEM, base, new)),
            ]
        old: ast.expr
        if isinstance(target, ast.Name):
            old = call(ALONE, ast.Name(target.id, ast.Load()))
        else:
            old = call(WIDEN, ast.Attribute(target.value, target.attr, ast.Load()))
        return self._store(target, self._operate(old, node.op, self.visit(node.value)))
