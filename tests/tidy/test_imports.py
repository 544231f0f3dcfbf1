"""Imports that the import linter does not judge: of pure code, and of parts of Numba."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.tidy.code import CODE, OURS, ROOT, module, module_of, name_of

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


def _part(path: Path) -> str | None:
    """Which part of `raystream` a module belongs to; None if to none."""
    parts = path.relative_to(ROOT).parts
    return parts[1].removesuffix(".py") if parts[0] == "raystream" else None


@pytest.mark.parametrize("path", [p for p in OURS if _part(p) not in SHELLS], ids=name_of)
def test_pure_code_knows_no_clock_thread_or_network(path: Path) -> None:
    allowed = _allowed(path)
    found = [
        f"{name_of(path)}:{line} imports {name}"
        for scope in module(path).imports
        for line, _, name in scope
        if name not in allowed
        and any(name == bad or name.startswith(f"{bad}.") for bad in IMPURE - allowed)
    ]
    assert not found, "\n".join(found)


def _allowed(path: Path) -> set[str]:
    name = name_of(path)
    if name == "raystream/native/thread_priority.py":
        return {"time"}  # to sleep; it does not ask what time it is
    if name == "raystream/local/run.py":
        return {"time", "uuid"}  # a shell: the clock and the name of a run in this process
    if name == "raystream/local/asking.py":
        return {"asyncio", "random", "threading", "time"}  # it asks the world
    if name.startswith("raystream/io/kinesis/"):
        return {"threading"}  # splits share a client and a list of shards
    if name == "raystream/io/databases/waiting.py":
        return {"time"}  # how long a database that is gone is waited for
    if name == "raystream/io/following/source.py":
        return {"time"}  # how long a file has stayed as it is
    if name == "raystream/io/feeds.py":
        return {"asyncio", "queue", "threading"}  # it calls what users wrote for the world
    if name.startswith("raystream/io/subscriptions/"):  # connections, again and again
        return {"asyncio", "queue", "random", "socket", "threading", "time"}
    if name.startswith("raystream/io/push/"):
        servers = {"asyncio", "random", "secrets", "socket", "threading", "pyarrow.flight"}
        return servers | {"time"}  # whether a token has expired
    if _part(path) == "schema":
        return {"uuid.UUID"}  # the type of values; it makes none up
    if _part(path) in {"local", "simulation", "testing"}:
        return {"random"}  # seeded: they draw interleavings
    return set()


def test_imports_are_seen_wherever_they_hide() -> None:
    text = (
        "import os, pyarrow.flight as fl\ndef f():\n    if 1:\n        from time import monotonic\n"
    )
    found = module_of(text).imports
    assert found == [
        [(1, "os", "os"), (1, "pyarrow.flight", "pyarrow.flight")],
        [(4, "time", "time.monotonic")],
    ]


def test_the_import_linter_knows_every_package() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    there = {p.parent.name for p in ROOT.glob("*/__init__.py")} - {"tests"}
    assert there <= set(tool["importlinter"]["root_packages"])
    assert {p.relative_to(ROOT).parts[0] for p in CODE} >= there


@pytest.mark.parametrize("path", OURS, ids=name_of)
def test_numba_is_imported_before_a_part_of_it(path: Path) -> None:
    """Whoever imports a part first waits for the package with the lock of the part in hand, while
    another thread that imports the package waits for the part: Python fails in both."""
    for scope in module(path).imports:
        first = next((name for _, name, _ in scope if name.split(".")[0] == "numba"), "numba")
        assert first == "numba", f"{name_of(path)}: import numba before {first}"
