"""Errors with and without keys and values of records."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raystream.cli.app import app
from raystream.errors import (
    SHOWN_BYTES,
    InternalError,
    JobError,
    OperatorError,
    StateError,
    shown,
    without_values,
)
from raystream.submitted import SUBMITTED

SECRET = "s3cr3t-7781"
FLOW = """
import logging
from collections.abc import Iterator
from typing import NamedTuple
import raystream as rs

class Row(NamedTuple):
    time: int
    name: str

class Tally(rs.State):
    n: int = 0

@rs.operator(key="name")
def fails(row: Row, tally: Tally) -> Iterator[Row]:
    logging.warning("one was seen")
    raise ValueError(f"no {row.name}")  # the line
    yield row

class Refuses(rs.Sink[Row]):
    def write(self, epoch, keys, batch):
        raise RuntimeError(f"cannot take {next(batch.records())}")  # the line

    def commit(self, epoch):
        pass

def parsed(line):
    raise ValueError(line)  # the line

def made(which):
    flow = rs.Flow("told")
    clock = rs.by_time(seconds=1)
    rows = rs.io.iterable([Row(1, "-".join(PARTS))], Row)
    if which == "operator":
        flow.source(rows, epochs=clock).through(fails).to(rs.io.console())
    elif which == "sink":
        flow.source(rows, epochs=clock).to(Refuses(), name="out")
    elif which == "csv":
        flow.source(rs.io.csv("rows.csv", Row), epochs=clock).to(rs.io.console())
    else:
        flow.source(rs.io.text("rows.txt", Row, parsed), epochs=clock).to(rs.io.console())
    return flow

operator, sink, csv, text = map(made, ("operator", "sink", "csv", "text"))
"""


def write_flows(folder: Path) -> None:
    """Write the module `told_flows`. The secret is not in its text, so what shows the secret shows
    a value."""
    text = textwrap.dedent(FLOW).replace("PARTS", repr(SECRET.split("-")))
    (folder / "told_flows.py").write_text(text)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the flows, and a file whose second line is damaged."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(SUBMITTED, raising=False)
    write_flows(tmp_path)
    (tmp_path / "rows.csv").write_text(f"time,name\n{SECRET},x\n")
    (tmp_path / "rows.txt").write_text(f"{SECRET}\n")


def said(flow: str, *options: str) -> str:
    done = CliRunner().invoke(app, ["run", f"told_flows:{flow}", "--local", *options])
    assert done.exit_code in (1, 2), done.output
    return done.output


WITHOUT = {
    "operator": ["fails raised ValueError, at epoch", "# the line"],
    "sink": ["sink out could not write: RuntimeError", "# the line"],
    "csv": ["rows.csv, line 2"],
    "text": ["rows.txt, line 1: ValueError"],
}


@pytest.mark.parametrize("flow", WITHOUT)
def test_no_values_leaves_kind_and_place(flow: str) -> None:
    assert SECRET in said(flow)
    told = said(flow, "--no-values")
    assert SECRET not in told
    assert all(each in told for each in [*WITHOUT[flow], "--values"]), told


@pytest.mark.parametrize("flow", WITHOUT)
def test_a_submitted_job_shows_none_unless_told(flow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBMITTED, "{}")
    assert SECRET not in said(flow)
    assert SECRET in said(flow, "--values")


def test_a_key_is_cut() -> None:
    assert shown("ab") == "'ab'"
    long = shown("ä" * 1000)
    assert len(long.encode()) < SHOWN_BYTES + 20 and long.endswith("... (2002 bytes)")


def test_errors_without_values_stay_as_they_are() -> None:
    lost = JobError("a node died", hint="Begin again.")
    known = StateError("count has no memory left", bare="count has no memory left", hint="More.")
    assert without_values(lost) is lost and without_values(known) is known
    told = without_values(OperatorError(f"it returned {SECRET}", hint=SECRET))
    assert SECRET not in str(told) and type(told) is OperatorError
    assert str(without_values(told)) == str(told)


def test_a_bug_is_told_by_its_kind_and_line() -> None:
    try:
        {}[SECRET]
    except KeyError as error:
        told = without_values(error)
    assert isinstance(told, InternalError)
    assert told.message == "KeyError was raised" and told.where is not None
    assert told.where.file == __file__ and SECRET not in str(told)
