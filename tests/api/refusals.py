"""What is refused when a flow is built: cases, and what each of them must say."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import GraphError

Build = Callable[[], object]


class Word(NamedTuple):
    time: int
    word: str


class Number(NamedTuple):
    time: int
    word: int


class Tally(rs.State):
    n: int = 0


class Counted(NamedTuple):
    word: str
    n: int


class Line(NamedTuple):
    text: str
    ratio: float
    maybe: int | None


class Words(rs.State):
    words: list[str] = rs.field(factory=list)


class Alarm(rs.State):
    due: rs.Timer = rs.NEVER


class Cases(list[Any]):
    """Parameters (build, message) of one module's test."""

    def refused(self, message: str) -> Callable[[Build], Build]:
        """The function builds something that must be refused with this message."""

        def add(build: Build) -> Build:
            self.append(pytest.param(build, message, id=build.__name__))
            return build

        return add


def check(build: Any, message: str) -> None:
    """Building is refused at the line of the case that ends in `# here`."""
    with pytest.raises(GraphError, match=message) as caught:
        build()
    where = caught.value.where
    assert where is not None, f"no place: {caught.value}"
    assert where.file == build.__code__.co_filename
    assert linecache.getline(where.file, where.line).rstrip().endswith("# here"), where
    assert f"{where.file}:{where.line}" in str(caught.value)


def stream(*records: type) -> rs.Stream[Any]:
    """A stream of these records, each from a source of its own."""
    flow = rs.Flow("test")
    made = [flow.source(rs.io.iterable([], r), name=r.__name__) for r in records]
    united: rs.Stream[Any] = made[0]
    for other in made[1:]:
        united = united | other
    return united
