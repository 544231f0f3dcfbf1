"""What cannot be pickled is named, with its place and without values. No Ray is started."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import raystream as rs
from raystream.actors.cluster.pickling import refuse_unpicklable
from raystream.controller.planning.plans import make_plan
from raystream.errors import GraphError
from tests.flows import Line, Tally, Word

SECRET = [Line(0, "a secret")]


@rs.operator()
@dataclass(frozen=True)
class Split:
    locks: Any = ()

    def process(self, line: Line) -> Iterator[Word]:
        yield Word(line.time, line.text)


@rs.operator(key="word")
@dataclass(frozen=True)
class Keep:
    lock: Any = None

    def process(self, word: Word, tally: Tally) -> Iterator[Word]:
        yield word


def refused(split: Any, keep: Any, records: Any = SECRET, sink: Any = print) -> str:
    flow = rs.Flow("carried")
    words = flow.source(rs.io.iterable(records, Line)).through(split)
    words.through(keep).to(rs.io.callable(sink))
    with pytest.raises(GraphError) as told:
        refuse_unpicklable(make_plan(flow).vertices)
    assert told.value.where is not None
    assert told.value.where.file == __file__
    assert "secret" not in str(told.value)
    return told.value.message


def test_the_field_is_named() -> None:
    lock = threading.Lock()
    assert "Keep cannot be carried to other processes: its lock is a _thread.lock" in refused(
        Split(), Keep(lock)
    )
    assert "Split cannot be carried to other processes: its locks[1] is a _thread.lock" in refused(
        Split([1, lock]), Keep()
    )


def test_what_a_function_sees_is_named() -> None:
    lock = threading.Lock()

    def records() -> list[Line]:
        with lock:
            return SECRET

    assert "records cannot be carried to other processes: its records.lock is a" in refused(
        Split(), Keep(), records
    )
    assert "calls cannot be carried to other processes: its function.lock is a" in refused(
        Split(), Keep(), sink=lambda batch: lock
    )


def test_what_can_be_pickled_is_let_pass() -> None:
    flow = rs.Flow("carried")
    words = flow.source(rs.io.iterable(SECRET, Line)).through(Split())
    words.through(Keep()).to(rs.io.callable(lambda batch: None))
    refuse_unpicklable(make_plan(flow).vertices)
