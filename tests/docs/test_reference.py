"""The pages of docs/reference have everything that the code has, and nothing else."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, get_overloads

import pytest
from typer.main import get_command

import raystream as rs
from raystream import errors
from raystream.cli.app import app
from raystream.plugins import CONNECTORS, STORES
from raystream.run import run

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs/reference"
PACKAGES = ("raystream", "lrb", "spark_ingest", "benchmarks")

CALLED: dict[str, Any] = {
    "flow.run": run,
    "rs.Flow": rs.Flow,
    "rs.by_time": rs.by_time,
    "rs.by_arrival": rs.by_arrival,
    "rs.operator": rs.operator,
    "rs.PoolOptions": rs.PoolOptions,
    "rs.CpuThreshold": rs.CpuThreshold,
    "rs.RateBased": rs.RateBased,
    "rs.query": rs.query,
    "rs.io.csv": get_overloads(rs.io.csv)[0],  # of a source, which has them all
    "rs.io.json": get_overloads(rs.io.json)[0],
    "rs.io.parquet": get_overloads(rs.io.parquet)[0],
    "rs.io.text": get_overloads(rs.io.text)[1],
    "rs.io.Follow": rs.io.Follow,
    "rs.io.iterable": rs.io.iterable,
    "rs.io.push": rs.io.push,
    "rs.io.kafka": rs.io.kafka,
    "rs.io.kinesis": rs.io.kinesis,
    "rs.io.postgres_changes": rs.io.postgres_changes,
    "rs.io.postgres_rows": rs.io.postgres_rows,
}


def section(page: str, heading: str) -> str:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of the tables of a text, without those of their heads."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads = [i for i, line in enumerate(text.splitlines()) if line.startswith("|---")]
    named = {text.splitlines()[i - 1] for i in heads}
    return [cells for line, cells in zip(lines, found, strict=True) if line not in named]


def shown(default: object) -> str:
    """A default as one writes it, text in double quotes."""
    return json.dumps(default) if isinstance(default, str) else repr(default)


@pytest.mark.parametrize("name", CALLED)
def test_parameters_are_those_of_the_code(name: str) -> None:
    parameters = inspect.signature(CALLED[name]).parameters.values()
    in_code = {
        f"`{p.name}`": "" if p.default is p.empty else f"`{shown(p.default)}`"
        for p in parameters
        if p.name != "flow"
    }
    told = {cells[0]: cells[1] for cells in rows(section("settings.md", f"`{name}`"))}
    assert told == in_code


def test_flags_are_those_of_the_command() -> None:
    command: Any = get_command(app)
    in_code = {
        (f"`{name}`", f"`{flag}`")
        for name, each in command.commands.items()
        for p in each.params
        if p.param_type_name == "option" and not getattr(p, "hidden", False)
        for flag in [*p.opts, *p.secondary_opts]
    }
    told = rows(section("settings.md", "The command `raystream`"))
    assert {(cells[0], cells[1]) for cells in told} == in_code


def test_defaults_of_flags_are_those_of_the_command() -> None:
    command: Any = get_command(app)
    told = {(c[0], c[1]): c[2] for c in rows(section("settings.md", "The command `raystream`"))}
    for name, each in command.commands.items():
        for p in each.params:
            if p.param_type_name == "option" and p.default not in (None, "", False):
                assert told[f"`{name}`", f"`{p.opts[0]}`"] == f"`{p.default}`"


def test_our_variables_are_those_of_the_code() -> None:
    code = [*ROOT.glob("raystream/**/*.py"), *ROOT.glob("tests/**/*.py")]
    read = r'"(RAYSTREAM_\w+)"'
    found = {name for path in code for name in re.findall(read, path.read_text(encoding="utf-8"))}
    told = {cells[0].strip("`") for cells in rows(section("settings.md", "Environment variables"))}
    assert {name for name in told if name.startswith("RAYSTREAM_")} == found


def test_every_error_is_told() -> None:
    in_code = {
        f"`{name}`": f"`{each.__mro__[1].__name__}`"
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, errors.RaystreamError)
    }
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8").partition("\n## ")[0]
    told = rows(text)
    assert {cells[0]: cells[1] for cells in told} == in_code
    assert all(cells[2] and cells[3] for cells in told)


def test_every_error_has_its_exit_code() -> None:
    codes = section("errors.md", "Exit codes")
    for name, each in vars(errors).items():
        if isinstance(each, type) and issubclass(each, errors.RaystreamError):
            assert name == "RaystreamError" or f"`{name}`" in codes


def test_a_word_has_one_meaning() -> None:
    text = (REFERENCE / "glossary.md").read_text(encoding="utf-8")
    words = [w for cells in rows(text.partition("\n## Words that")[0]) for w in [cells[0]]]
    again = {w for w in words if words.count(w) > 1}
    assert not again
    gone = {cells[0] for cells in rows(section("glossary.md", "Words that are gone"))}
    assert not gone & {*words}


# ------------------------------------------------------------------- names that documents use


@cache
def defined(module: Path) -> dict[str, ast.AST]:
    """What a module defines at its top, or imports there, by name."""
    found: dict[str, ast.AST] = {}
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name: node for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {t.id: node for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


def exists(name: str) -> bool:
    """Whether `package.module.thing` is there, without importing it: some start Ray, some Spark."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:n])
        module = path.with_suffix(".py") if path.with_suffix(".py").exists() else path
        if module.is_dir():
            module = module / "__init__.py"
        if module.exists():
            rest = parts[n:]
            return not rest or rest[0] in defined(module) or public(name)
    return False


def public(name: str) -> bool:
    """Whether a name of a package is found when it is asked for: `raystream` loads its own so."""
    package, _, rest = name.partition(".")
    thing: Any = importlib.import_module(package)
    for part in rest.split("."):
        thing = getattr(thing, part, None)
    return thing is not None


PAGES = sorted(
    str(p.relative_to(ROOT))
    for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if "docs/lab" not in str(p) and p.name != "CHANGELOG.md"  # they are of their day
)


@pytest.mark.parametrize("page", PAGES)
def test_modules_that_are_named_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    dotted = re.findall(r"`((?:raystream|lrb|spark_ingest|benchmarks)\.[\w.]+)`", text)
    groups = {STORES, CONNECTORS}  # of entry points
    dotted = [name for name in dotted if name not in groups and not name.endswith(".py")]
    assert not [name for name in dotted if not exists(name)]


@cache
def names_in_code() -> set[str]:
    """Names of classes and functions of raystream, and `Class.member` of all classes."""
    found: set[str] = set()
    for module in ROOT.glob("raystream/**/*.py"):
        for name, node in defined(module).items():
            found.add(name)
            if isinstance(node, ast.ClassDef):
                for member in ast.walk(node):
                    if isinstance(member, ast.FunctionDef):
                        found.add(f"{name}.{member.name}")
                    elif isinstance(member, ast.Attribute) and isinstance(member.ctx, ast.Store):
                        found.add(f"{name}.{member.attr}")
                    elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                        found.add(f"{name}.{member.target.id}")
    return found


def test_where_the_glossary_points_there_is_something() -> None:
    missing = []
    for cells in rows((REFERENCE / "glossary.md").read_text(encoding="utf-8")):
        for name in re.findall(r"`([\w.]+)`", cells[-1]) if len(cells) == 4 else []:
            if name.startswith("rs."):
                known = hasattr(rs, name[3:])
            elif name.partition(".")[0] in PACKAGES:
                known = exists(name)
            else:
                known = name in names_in_code()
            if not known and name not in ("load", "commit"):  # methods that a user writes
                missing.append(name)
    assert not missing


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", *(p for p in PAGES if "internals" in p)])
def test_classes_that_are_named_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`([A-Z][a-z]\w*(?:\.\w+)?)`", text)
    assert not [name for name in named if name not in names_in_code()]
