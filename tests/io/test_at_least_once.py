"""Sinks that act at once."""

from __future__ import annotations

import copy
import io
import os
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import OutputError
from tests.io.kinds import Counted, batch


class Named(NamedTuple):
    name: str


KEYS = rs.KeyRange(0, 256)
ROWS = [Counted(i, i * i) for i in range(5)]


def test_a_function_gets_batches_or_records() -> None:
    seen: list[Any] = []
    rs.io.callable(seen.append).write(1, KEYS, batch(Counted, ROWS))
    assert [list(b.records()) for b in seen] == [ROWS]
    seen.clear()
    rs.io.callable(seen.append, each=True).write(1, KEYS, batch(Counted, ROWS))
    assert seen == ROWS


def test_the_console_says_what_it_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    sink = rs.io.console(limit=3)
    for instance in (copy.copy(sink), copy.copy(sink)):  # each counts for itself
        instance.open(rs.SinkContext("run", "console", KEYS, None, 0.0, None))
        instance.write(1, KEYS, batch(Counted, ROWS[:2]))
        instance.write(2, KEYS, batch(Counted, ROWS))
        instance.commit(2)
        instance.write(3, KEYS, batch(Counted, ROWS[4:]))
        instance.commit(3)
        assert capsys.readouterr().out.splitlines() == [
            "Counted(key=0, n=0)",
            "Counted(key=1, n=1)",
            "Counted(key=0, n=0)",
            "... and 4 more Counted up to epoch 2",
            "Counted(key=4, n=16)",
        ]


def test_the_console_may_be_a_file() -> None:
    sink = rs.io.console()
    sink.file = io.StringIO()
    sink.write(1, KEYS, batch(Counted, ROWS[:1]))
    assert sink.file.getvalue() == "Counted(key=0, n=0)\n"


def test_the_console_prints_what_a_terminal_can_show() -> None:
    shown = io.BytesIO()
    sink = rs.io.console()
    sink.file = io.TextIOWrapper(shown, encoding="ascii", write_through=True)
    sink.write(1, KEYS, batch(Named, [Named("größe")]))
    assert shown.getvalue() == b"Named(name='gr??e')\n"


def test_the_console_prints_nothing_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)  # as Python has it where a shell has closed it
    rs.io.console().write(1, KEYS, batch(Counted, ROWS[:1]))


def test_nobody_reads_what_the_console_prints() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as pipe:
        sink = rs.io.console()
        sink.file = io.TextIOWrapper(pipe, write_through=True)
        with pytest.raises(OutputError, match="the console cannot be written"):
            sink.write(1, KEYS, batch(Counted, ROWS[:1]))
