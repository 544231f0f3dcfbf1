"""House rules that no other tool checks: sizes, folders, maps, names and circles."""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import grimp
import pytest

from tests.tidy.code import CODE, OURS, ROOT, Definition, module, module_of, name_of

MODULE_LINES_MAX = 450
CLASS_LINES_MAX = 300
FUNCTION_LINES_MAX = 60
MODULES_FLAT_MAX = 15
CIRCLE_MAX = 5


def _long_modules() -> Iterator[str]:
    for path in CODE:
        found = module(path)
        if found.lines > MODULE_LINES_MAX and not found.reason():
            yield f"module {name_of(path)}"


def _long_classes() -> Iterator[str]:
    for path, it in _definitions():
        if it.is_class and it.lines > CLASS_LINES_MAX:
            yield f"class {name_of(path)} {it.name}"


def _long_functions() -> Iterator[str]:
    for path, it in _definitions():
        if not it.is_class and it.lines > FUNCTION_LINES_MAX:
            yield f"function {name_of(path)} {it.name}"


def _definitions() -> Iterator[tuple[Path, Definition]]:
    """Of all modules, without what a module says why it is long."""
    for path in CODE:
        found = module(path)
        reason = found.reason()
        yield from ((path, it) for it in found.definitions if f"`{it.name}`" not in reason)


def _full_folders() -> Iterator[str]:
    modules = Counter(p.parent for p in CODE if p.name != "__init__.py")
    for folder, count in modules.items():
        if count > MODULES_FLAT_MAX:
            yield f"folder {name_of(folder)}"


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
        if _mapped(module(package).docstring) != _modules_of(package):
            yield f"map {name_of(package.parent)}"


def _classes_of_one_name() -> Iterator[str]:
    places: dict[str, list[str]] = defaultdict(list)
    for path in OURS:
        for it in module(path).definitions:
            if it.is_class:
                places[it.name].append(name_of(path))
    for name, where in sorted(places.items()):
        if len(where) > 1:
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
    assert module_of(text).reason() == "`Big` is one\nloop."
    assert module_of('"""What."""').reason() == ""


def test_lines_are_counted_where_they_are() -> None:
    text = """
class A:
    def f(self):
        '''What.'''
        if self:
            def inside():
                return 1
        else:
            class B:
                x = 1
        return inside
"""
    found = {it.name: (it.is_class, it.lines) for it in module_of(text).definitions}
    assert found == {"A": (True, 10), "f": (False, 6), "inside": (False, 2), "B": (True, 2)}
