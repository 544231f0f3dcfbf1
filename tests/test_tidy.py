"""House rules that no other tool checks: sizes, imports of pure code, names of one machine."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent

import grimp
import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES_MAX = 450
CLASS_LINES_MAX = 300
FUNCTION_LINES_MAX = 60
MODULES_FLAT_MAX = 15
CIRCLE_MAX = 5

USERS_NAMES: set[str] = set()
"""Names that two classes of `raystream` may share, because users see them in two places."""

SHELLS = ("actors", "run", "page", "cli", "push")
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

SKIPPED = {".git", ".venv", ".peers", ".mutants", "data", "answers", "report", "node_modules"}
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
OURS = [p for p in CODE if p.is_relative_to(ROOT / "raystream")]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _tree(path: Path) -> ast.Module:
    return _tree_of(path, path.stat().st_mtime_ns)


@cache
def _tree_of(path: Path, _: int) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _reason(tree: ast.Module) -> str:
    """The paragraph of a module's docstring that begins with `Why long:`. It excuses the module,
    and the classes and functions that it names in backticks."""
    found = re.search(r"^Why long: (.+?)(?:\n\n|\Z)", ast.get_docstring(tree) or "", re.M | re.S)
    return found.group(1) if found else ""


def _long_modules() -> Iterator[str]:
    for path in CODE:
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > MODULE_LINES_MAX and not _reason(_tree(path)):
            yield f"module {_name(path)}"


def _long_classes() -> Iterator[str]:
    for path, node in _definitions():
        if isinstance(node, ast.ClassDef) and _lines(node) > CLASS_LINES_MAX:
            yield f"class {_name(path)} {node.name}"


def _long_functions() -> Iterator[str]:
    for path, node in _definitions():
        if not isinstance(node, ast.ClassDef) and _body_lines(node) > FUNCTION_LINES_MAX:
            yield f"function {_name(path)} {node.name}"


def _definitions() -> Iterator[tuple[Path, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Of all modules, without what a module says why it is long."""
    for path in CODE:
        reason = _reason(_tree(path))
        for node in ast.walk(_tree(path)):
            known = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if known and f"`{node.name}`" not in reason:
                yield path, node


def _lines(node: ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _full_folders() -> Iterator[str]:
    modules = Counter(p.parent for p in CODE if p.name != "__init__.py")
    for folder, count in modules.items():
        if count > MODULES_FLAT_MAX:
            yield f"folder {_name(folder)}"


PACKAGES = [p for p in CODE if p.name == "__init__.py"]


def _modules_of(package: Path) -> set[str]:
    """What a package's map has to name: its modules, and the packages inside it."""
    modules = {p.stem for p in package.parent.glob("*.py")}
    inside = {p.parent.name for p in package.parent.glob("*/__init__.py")}
    return {name for name in modules | inside if not name.startswith("__")}


def _mapped(docstring: str) -> set[str]:
    """The names at the beginning of lines of a map: a paragraph that is indented, or in which a
    name is followed by several spaces."""
    names: set[str] = set()
    for paragraph in docstring.split("\n\n"):
        lines = dedent(paragraph)
        if lines != paragraph or re.search(r"^\w+(?:, \w+)* {2,}\S", lines, re.M):
            heads = re.findall(r"^(\w+(?:, \w+)*),?(?: +[^=\s].*)?$", lines, re.M)
            names.update(name for head in heads for name in head.split(", "))
    return names


def _packages_without_map() -> Iterator[str]:
    for package in PACKAGES:
        if _mapped(ast.get_docstring(_tree(package)) or "") != _modules_of(package):
            yield f"map {_name(package.parent)}"


def _classes_of_one_name() -> Iterator[str]:
    places: dict[str, list[str]] = defaultdict(list)
    for path in OURS:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(_name(path))
    for name, where in sorted(places.items()):
        if len(where) > 1 and name not in USERS_NAMES:
            yield f"name {name} {' '.join(where)}"


def _import_circles() -> Iterator[str]:
    """As the import linter sees imports: those inside functions count, those for type checkers
    do not."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    roots = packages["tool"]["importlinter"]["root_packages"]
    graph = grimp.build_graph(*roots, exclude_type_checking_imports=True, cache_dir=None)
    arrows = {m: sorted(graph.find_modules_directly_imported_by(m)) for m in sorted(graph.modules)}
    for circle in _circles(arrows):
        if len(circle) > CIRCLE_MAX:
            yield f"circle {' '.join(circle)}"


def _circles(arrows: dict[str, list[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node, each sorted."""
    reached = {node: _reachable(node, arrows) for node in arrows}
    together = {frozenset({n, *(m for m in to if n in reached[m])}) for n, to in reached.items()}
    return sorted(sorted(each) for each in together if len(each) > 1)


def _reachable(node: str, arrows: dict[str, list[str]]) -> set[str]:
    found: set[str] = set()
    todo = [node]
    while todo:
        new = set(arrows[todo.pop()]) - found
        found |= new
        todo += new
    return found


RULES = {
    "module": (_long_modules, f"more than {MODULE_LINES_MAX} lines: split it by idea"),
    "class": (_long_classes, f"more than {CLASS_LINES_MAX} lines: split it by concern"),
    "function": (_long_functions, f"more than {FUNCTION_LINES_MAX} lines"),
    "folder": (_full_folders, f"more than {MODULES_FLAT_MAX} modules: group them"),
    "map": (_packages_without_map, "the docstring of `__init__` is to name exactly its modules"),
    "name": (_classes_of_one_name, "two classes of one name"),
    "circle": (_import_circles, f"more than {CIRCLE_MAX} modules import each other in a circle"),
}
"""What finds the offenders of a rule, one line each that begins with the rule's name."""


@pytest.mark.parametrize("rule", RULES)
def test_the_house_is_tidy(rule: str) -> None:
    find, why = RULES[rule]
    found = sorted(find())
    assert not found, "\n".join([f"{why}:", *found])


def test_circles_are_found() -> None:
    arrows = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": ["d"], "f": ["a"]}
    assert _circles(arrows) == [["a", "b", "c"], ["d", "e"]]


def test_a_map_is_read() -> None:
    text = "What.\n\n    one      does this,\n             and that\n    two, three\n    four is it"
    assert _mapped(text) == {"one", "two", "three", "four"}
    assert _mapped(dedent("\n".join(text.splitlines()[2:]))) == {"one", "two", "three", "four"}
    assert _mapped("Text.\n\n    flow = made\n") == set()


def test_a_reason_is_read() -> None:
    text = '"""What.\n\nWhy long: `Big` is one\nloop.\n\nMore."""'
    assert _reason(ast.parse(text)) == "`Big` is one\nloop."
    assert _reason(ast.parse('"""What."""')) == ""


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
    seeded = _part(path) in {"local", "simulation", "testing"}  # they draw interleavings
    allowed = {"random"} if seeded else set()
    if _name(path) == "raystream/native/thread_priority.py":
        allowed = {"time"}  # to sleep; it does not ask what time it is
    if _name(path) == "raystream/local/run.py":
        allowed = {"time", "uuid"}  # a shell: the clock and the name of a run in this process
    if _name(path) == "raystream/local/asking.py":
        allowed = {"asyncio", "random", "threading", "time"}  # it asks the world
    if _name(path) == "raystream/io/databases/waiting.py":
        allowed = {"time"}  # how long a database that is gone is waited for
    if _name(path) == "raystream/io/following/source.py":
        allowed = {"time"}  # how long a file has stayed as it is
    if _name(path) == "raystream/io/feeds.py":
        allowed = {"asyncio", "queue", "threading"}  # it calls what users wrote for the world
    if _name(path).startswith("raystream/io/subscriptions/"):  # connections, again and again
        allowed = {"asyncio", "queue", "random", "socket", "threading", "time"}
    if _name(path).startswith("raystream/io/push/"):
        allowed = {"asyncio", "random", "secrets", "socket", "threading"}  # it is a server
    if _part(path) == "schema":
        allowed = {"uuid.UUID"}  # the type of values; it makes none up
    found = [
        f"{_name(path)}:{line} imports {name}"
        for line, name in _imports(path)
        if name not in allowed
        and any(name == bad or name.startswith(f"{bad}.") for bad in IMPURE - allowed)
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
