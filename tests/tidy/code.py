"""The files of the project, and what its rules ask about a module: each is parsed once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SKIPPED = {".git", ".venv", ".peers", ".mutants", "data", "answers", "report", "node_modules"}
Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def files(suffixes: set[str]) -> list[Path]:
    """All files of the project with one of these suffixes, sorted."""
    return sorted(
        p
        for p in ROOT.rglob("*")
        if p.suffix in suffixes
        and p.is_file()
        and not any(
            part in SKIPPED or part.endswith("cache") or part.startswith(".h")
            for part in p.relative_to(ROOT).parts
        )
    )


CODE = files({".py"})
OURS = [p for p in CODE if p.is_relative_to(ROOT / "raystream")]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A class or function.

    name: its name.
    is_class: whether it is a class.
    lines: its lines; of a function without its docstring and the functions defined inside it.
    """

    name: str
    is_class: bool
    lines: int


@dataclass(frozen=True, kw_only=True)
class Module:
    """What the rules ask about a module.

    lines: their number.
    docstring: its docstring, or nothing.
    definitions: its classes and functions, those inside others included.
    imports: for the module, then for each function: what the statements of its own import, as
        (line, module, full dotted name of what is taken from it).
    """

    lines: int
    docstring: str
    definitions: list[Definition]
    imports: list[list[tuple[int, str, str]]]

    def reason(self) -> str:
        """The paragraph of the docstring that begins with `Why long:`. It excuses the module, and
        the classes and functions that it names in backticks."""
        found = re.search(r"^Why long: (.+?)(?:\n\n|\Z)", self.docstring, re.M | re.S)
        return found.group(1) if found else ""


@cache
def module(path: Path) -> Module:
    """Of a file that does not change. The tree is not kept: a thousand of them are slow to
    collect."""
    return module_of(path.read_text(encoding="utf-8"))


def module_of(text: str) -> Module:
    tree = ast.parse(text)
    inside = [n for n in _statements(tree) if isinstance(n, Defined)]
    scopes = [tree, *(n for n in inside if not isinstance(n, ast.ClassDef))]
    return Module(
        lines=text.count("\n"),
        docstring=ast.get_docstring(tree) or "",
        definitions=[_definition(node) for node in inside],
        imports=[_imports(scope) for scope in scopes],
    )


def _definition(node: Defined) -> Definition:
    lines = _span(node)
    if not isinstance(node, ast.ClassDef):
        skipped = [n for n in _statements(node) if isinstance(n, Defined)]
        lines -= {line for n in skipped if not isinstance(n, ast.ClassDef) for line in _span(n)}
        if ast.get_docstring(node) is not None:
            lines -= _span(node.body[0])
    return Definition(name=node.name, is_class=isinstance(node, ast.ClassDef), lines=len(lines))


def _span(node: ast.stmt) -> set[int]:
    return {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _statements(node: ast.AST, *, functions: bool = True) -> Iterator[ast.stmt]:
    """All statements below a node; without `functions` not those inside functions."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for below in getattr(node, part, ()):
            if isinstance(below, ast.stmt):
                yield below
            if functions or not isinstance(below, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _statements(below, functions=functions)


def _imports(scope: ast.AST) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = []
    for node in _statements(scope, functions=False):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            found += [(node.lineno, source, f"{source}.{alias.name}") for alias in node.names]
    return found
