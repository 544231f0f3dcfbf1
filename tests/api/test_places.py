"""Which line an error names: the nearest one of the user's code, not one of a library."""

from __future__ import annotations

import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import singledispatch
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream import errors
from raystream.errors import ConfigError, Where

LIBRARY = """
import raystream as rs
from raystream.errors import caller


def connected(url, record):
    return rs.io.websocket(url, record)


def place():
    mine = 1
    return caller()
"""


class Reading(NamedTuple):
    time: int


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that lies where installed packages do."""
    file = str(tmp_path / "connections.py")
    made = ModuleType("connections")
    exec(compile(LIBRARY, file, "exec"), made.__dict__)
    of_library = errors._of_library
    monkeypatch.setattr(errors, "_of_library", lambda f: f == file or of_library(f))
    return made


def test_the_line_that_called_a_library_is_named(library: ModuleType) -> None:
    with pytest.raises(ConfigError, match="begins with ws") as raised:
        library.connected("http://x", Reading)
    assert _is_here(raised.value.where)


def test_the_line_that_called_the_standard_library_is_named() -> None:
    with pytest.raises(ConfigError) as raised:
        singledispatch(rs.io.websocket)("http://x", Reading)
    assert _is_here(raised.value.where)


def test_the_names_are_those_of_the_caller(library: ModuleType) -> None:
    """A library may declare records in a function of its own."""
    where, names = library.place()
    assert where.file == __file__
    assert names == {"mine": 1}


def test_where_there_is_no_code_of_the_user_the_caller_is_named(library: ModuleType) -> None:
    with ThreadPoolExecutor(1) as pool:
        where, _ = pool.submit(library.place).result()
    assert Path(where.file).name == "connections.py"


def test_a_command_is_no_code_of_the_user() -> None:
    """`raystream run` of a flow that is in an installed package."""
    assert errors._of_library(str(Path(sysconfig.get_path("scripts"), "raystream")))


def _is_here(where: Any) -> bool:
    assert isinstance(where, Where)
    return where.file == __file__ and '"http://x"' in where.text
