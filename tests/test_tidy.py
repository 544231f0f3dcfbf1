"""House rules that no other tool checks: sizes, imports of pure code, names of one machine."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

SHELLS = ("actors", "run", "cli")
"""The parts of `raystream` that may know of Ray, sockets, threads and clocks."""

IMPURE = {
    "ray",
    "asyncio",
    "threading",
    "multiprocessing",
    "socket",
    "time",
    "random",
    "secrets",
    "uuid",
    "pyarrow.flight",
}
"""`pyarrow.flight` is why this is not left to the import linter alone: it sees packages only."""

SKIPPED = {".git", ".venv", ".peers", "data", "answers", "report", "node_modules"}
TEXT = {".py", ".md", ".toml", ".txt", ".html", ".j2", ".sh", ".cfg", ".yaml", ".yml", ".json", ""}


def _files(suffixes: set[str]) -> list[Path]:
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


CODE = _files({".py"})


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", CODE, ids=_name)
def test_a_module_is_one_idea(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= MODULE_LINES_MAX, f"{_name(path)} has {lines} lines: split it by idea"


@pytest.mark.parametrize("path", CODE, ids=_name)
def test_functions_are_short(path: Path) -> None:
    long = [
        f"{_name(path)}:{node.lineno} {node.name} has {length} lines"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := _body_lines(node)) > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring and without functions defined inside it."""
    inside = [
        n
        for n in ast.walk(node)
        if n is not node and isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    skipped = {line for n in inside for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}
    first = node.body[0]
    if ast.get_docstring(node) is not None:
        skipped.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(set(range(node.lineno, (node.end_lineno or node.lineno) + 1)) - skipped)


def _part(path: Path) -> str | None:
    """Which part of `raystream` a module belongs to; None if to none."""
    parts = path.relative_to(ROOT).parts
    return parts[1].removesuffix(".py") if parts[0] == "raystream" else None


@pytest.mark.parametrize("path", [p for p in CODE if _part(p) not in (None, *SHELLS)], ids=_name)
def test_pure_code_knows_no_clock_thread_or_network(path: Path) -> None:
    allowed = {"random"} if _part(path) == "testing" else set()  # seeded, for interleavings
    if _name(path) == "raystream/state/priority.py":
        allowed = {"time"}  # to sleep; it does not ask what time it is
    found = [
        f"{_name(path)}:{line} imports {name}"
        for line, name in _imports(path)
        if any(name == bad or name.startswith(f"{bad}.") for bad in IMPURE - allowed)
    ]
    assert not found, "\n".join(found)


def _imports(path: Path) -> list[tuple[int, str]]:
    """(line, full dotted name) of all imports of a module, those inside functions included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def test_imports_are_seen_wherever_they_hide(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    module.write_text("import os, pyarrow.flight as fl\ndef f():\n    from time import monotonic\n")
    assert _imports(module) == [(1, "os"), (1, "pyarrow.flight"), (3, "time.monotonic")]


# What belongs to one machine and not to the project. Written in pieces, so as not to find itself.
PRIVATE = re.compile(
    "|".join(
        [
            r"(?<![\w.])/" + r"(work|farm)/",
            r"(?<!\w)/tmp/" + r"(rs-venv|brief)",
            "pypi" + r"\.org",
            "pythonhosted" + r"\.org",
            "registry" + r"\.npmjs",
        ]
    )
)
SLICES = re.compile(r"\bshared/|\"shared\"|'shared'")


@pytest.mark.parametrize("path", _files(TEXT), ids=_name)
def test_nothing_names_one_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    found = [m.group() for m in PRIVATE.finditer(text)]
    if "RAYSTREAM_LRB_SLICES" not in text:  # the locator of the slices may say where they are
        found += [m.group() for m in SLICES.finditer(text)]
    assert not found, f"{_name(path)} names {found}"


def test_the_import_linter_knows_every_package() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    there = {p.parent.name for p in ROOT.glob("*/__init__.py")} - {"tests"}
    assert there <= set(tool["importlinter"]["root_packages"])


OURS = [p for p in CODE if p.is_relative_to(ROOT / "raystream")]


@pytest.mark.parametrize("path", OURS, ids=_name)
def test_numba_is_imported_before_a_part_of_it(path: Path) -> None:
    """Whoever imports a part first waits for the package with the lock of the part in hand, while
    another thread that imports the package waits for the part: Python fails in both."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    for scope in (tree, *functions):
        first = next((name for name in _imported(scope) if name.split(".")[0] == "numba"), "numba")
        assert first == "numba", f"{_name(path)}: import numba before {first}"


def _imported(scope: ast.Module | ast.FunctionDef) -> list[str]:
    """The modules that statements of a scope import, in order."""
    names: list[str] = []
    for node in scope.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return names
