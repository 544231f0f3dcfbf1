"""`raystream check`: each source and sink of a flow is tried, and left as it was."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import raystream as rs
from raystream.cli.app import app
from raystream.cli.check import Tried, check, show
from tests.processes import free_port


class Word(NamedTuple):
    text: str
    n: int


WORDS = [Word("a", 1), Word("b", 2)]


def asked(source: Any, sink: Any, seconds: float = 30.0) -> list[Tried]:
    flow = rs.Flow("asked")
    flow.source(source, epochs=rs.by_arrival()).to(sink)
    return check(flow, seconds)


def of_source(source: Any, seconds: float = 30.0) -> Tried:
    return asked(source, rs.io.console(), seconds)[0]


def of_sink(sink: Any) -> Tried:
    return asked(rs.io.iterable(WORDS, Word), sink)[1]


def test_files_are_opened_and_folders_tried(tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("text,n\nsecret,1\n")
    source, sink = asked(rs.io.csv(tmp_path / "*.csv", Word), rs.io.parquet(tmp_path / "new/out"))
    assert source.ok and source.said == f"1 split; read a record (Word) of {tmp_path}/words.csv"
    assert sink.ok and sink.said == f"{tmp_path}/new/out can be made"
    assert [p.name for p in tmp_path.iterdir()] == ["words.csv"]


def test_what_is_wrong_with_files_is_said(tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("text,n\na,secret\n")
    wrong = of_source(rs.io.csv(tmp_path / "words.csv", Word))
    assert not wrong.ok and "words.csv" in wrong.said
    assert not of_source(rs.io.csv(tmp_path / "none.csv", Word)).ok
    folder = of_sink(rs.io.parquet(tmp_path / "words.csv" / "out"))
    assert not folder.ok and "cannot be written: Not a directory" in folder.said


def test_output_of_a_run_is_recognised(tmp_path: Path) -> None:
    flow = rs.Flow("written")
    flow.source(rs.io.iterable(WORDS, Word), epochs=rs.by_arrival()).to(rs.io.csv(tmp_path))
    flow.run()
    assert (
        of_sink(rs.io.csv(tmp_path)).said == f"{tmp_path} can be written; it holds output of 1 run"
    )


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("CREATE TABLE words (text TEXT PRIMARY KEY, n INTEGER)", "can be written"),
        ("CREATE TABLE words (text TEXT PRIMARY KEY)", "has no column 'n'"),
        ("CREATE TABLE words (text TEXT, n INTEGER)", "ON CONFLICT"),
        ("CREATE TABLE others (n INTEGER)", "does not exist"),
    ],
)
def test_the_shape_of_a_table_is_tried_and_nothing_stays(
    table: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "words.db"
    with sqlite3.connect(path) as database:
        database.execute(table)
    answer = of_sink(rs.io.sqlite(path, table="words", key="text"))
    assert answer.ok == (said == "can be written") and said in answer.said
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT sql FROM sqlite_master WHERE sql > ''").fetchall() == [
            (table,)
        ]


@pytest.mark.parametrize("make", [rs.io.sqlite, rs.io.duckdb])
def test_a_database_that_is_not_there_is_not_made(make: Any, tmp_path: Path) -> None:
    if make is rs.io.duckdb:
        pytest.importorskip("duckdb", reason="duckdb is not installed")
    path = tmp_path / "words.db"
    assert of_sink(make(path, table="words", create=True)).said.endswith("can be made")
    assert "does not exist" in of_sink(make(path, table="words")).said
    assert "does not exist" in of_sink(make(tmp_path / "no/x.db", table="t", create=True)).said
    assert not [*tmp_path.iterdir()]


def test_a_table_of_duckdb_is_tried(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    path = str(tmp_path / "words.duckdb")
    duckdb.connect(path).close()
    made = rs.io.duckdb(path, table="words", key="text", create=True)
    assert of_sink(made).said == f"The table words in {path} can be made"
    with duckdb.connect(path) as database:
        assert database.execute("SHOW TABLES").fetchall() == []
        database.execute("CREATE TABLE words (text VARCHAR, n BIGINT)")
    assert not of_sink(made).ok  # no key


def test_a_port_that_is_taken() -> None:
    port = free_port()
    assert of_source(rs.io.push(Word, port=port)).said.startswith(f"port {port}")
    with socket.socket() as taken:
        taken.bind(("", port))
        taken.listen()
        answer = of_source(rs.io.push(Word, port=port))
    assert not answer.ok and "Address already in use" in answer.said


class Mine:
    """A source by its methods."""

    record = Word

    def __init__(self, what: Any) -> None:
        self.what = what

    def splits(self) -> list[rs.Split]:
        return [rs.Split("all")]

    def read(self, split: rs.Split, position: int) -> Iterator[Any]:
        if isinstance(self.what, Exception):
            raise self.what
        if isinstance(self.what, threading.Event):
            self.what.wait()
        while True:
            yield 0, rs.Batch(Word, {"text": [], "n": []})


class WithCheck(Mine):
    def check(self) -> str:
        return "mine"


def test_sources_of_ones_own() -> None:
    assert of_source(WithCheck(None)).said == "mine"
    assert of_source(Mine(None)).said == "1 split; nothing to read in all now"
    raised = of_source(Mine(KeyError("x")))
    assert not raised.ok and raised.said == "check() raised KeyError: 'x'"
    assert "not read" in of_source(rs.io.recorded(lambda: iter(WORDS), Word)).said
    release = threading.Event()
    assert of_source(Mine(release), 0.2).said == "no answer within 0.2 s"
    release.set()


class Out:
    def write(self, epoch: int, keys: Any, batch: Any) -> None: ...
    def commit(self, epoch: int) -> None: ...


def test_a_sink_without_a_check_is_not_tried() -> None:
    assert of_sink(Out()).said.startswith("not tried")
    assert of_sink(rs.io.callable(print)).said == "a function; it is not called"


FLOW = """
import raystream as rs
from typing import NamedTuple
class Word(NamedTuple):
    text: str
flow = rs.Flow("words")
flow.source(rs.io.csv("*.csv", Word), epochs=rs.by_arrival(), name="words").to(rs.io.console())
"""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checked_words.py").write_text(FLOW)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = CliRunner().invoke(app, ["check", "checked_words:flow"])
    assert run.exit_code == 1 and run.stdout.startswith("failed source words (CsvFiles): ")
    (tmp_path / "a.csv").write_text("text\nx\n")
    run = CliRunner().invoke(app, ["check", "checked_words:flow", "--json"])
    found = json.loads(run.stdout)
    assert run.exit_code == 0 and found["ok"] and found["flow"] == "words"
    assert [a["kind"] for a in found["checked"]] == ["source", "sink"]


def test_what_is_said_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show("f", [Tried("a[b]", "sink", "X", False, "[red]no", "[do]")], as_json=False)
    assert capsys.readouterr().out == "failed sink   a[b] (X): [red]no [do]\n"
