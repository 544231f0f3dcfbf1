"""Mistakes of beginners: the message says what happened, where in their code, and what to do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raystream.cli.app import app

HEAD = """\
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple
import raystream as rs

class Word(NamedTuple):
    time: int
    text: str

class Bag(NamedTuple):
    time: int
    text: list[str]

class Other(NamedTuple):
    time: int
    text: int

class Timed(NamedTuple):
    time: datetime
    text: str

class Plain:
    time: int
    text: str

class Tally(rs.State):
    n: int = 0

WORDS = [Word(t, "a") for t in range(3)]
SECOND = rs.by_time(seconds=1)
flow = rs.Flow("lesson")
micros = rs.Flow("lesson", time_unit="us")
words = flow.source(rs.io.iterable(WORDS, Word), epochs=SECOND)
"""
END = "words.through(count).to(rs.io.console())\n"
COUNT = """\
@rs.operator(key="text")
def count(word: Word, tally: Tally) -> Iterator[Word]:
    {body}
"""


def of_key(key: str, *, takes: str = "Word", gives: str = "Iterator[Word]") -> str:
    """A flow with a count that has this key."""
    return f"""\
@rs.operator(key={key})
def count(word: {takes}, tally: Tally) -> {gives}:
    yield word
{END}"""


LESSONS = {
    "wrong annotation": (
        of_key('"text"', takes="str"), "it takes 'str', which is not a record",
        "@rs.operator", "Records are typing.NamedTuple classes",
    ),
    "no named tuple": (
        of_key('"text"', takes="Plain"), "'Plain', which is not a record",
        "@rs.operator", "typing.NamedTuple",
    ),
    "no yield": (
        COUNT.format(body="Word(word.time, word.text)") + END, "has no `yield`",
        "@rs.operator", "Yield records",
    ),
    "return and yield": (
        COUNT.format(body="return word\n    yield word") + END,
        "returns a value, which would be lost",
        "@rs.operator", "a bare `return`",
    ),
    "return for yield": (
        COUNT.format(body="return word") + END, "returned a Word itself",
        "@rs.operator", "`yield` records, or return a list",
    ),
    "unhashable key": (
        of_key('"text"', takes="Bag"), "key 'text': Bag.text: list[str] cannot serve",
        "@rs.operator", "An int, bool, str",
    ),
    "lambda key": (
        of_key("lambda w: w.text"), "a key is the name of a field",
        "key=lambda", "an operator before this one",
    ),
    "misspelt key": (
        of_key('"txet"'), "key 'txet' is not a field of Word",
        "@rs.operator", "Word has time, text",
    ),
    "keys of two types": (
        of_key('"text"', takes="Word | Other"), "of different types in its inputs",
        "@rs.operator", "Declare it alike",
    ),
    "timer without state": (
        '@rs.operator(key="text")\nclass Count:\n'
        "    def process(self, word: Word, tally: Tally) -> None: ...\n"
        "    def timer(self, key: str, time: int, tally: Tally) -> Iterator[Word]:\n"
        "        yield Word(time, key)\nwords.through(Count()).to(rs.io.console())\n",
        "one rs.Timer field", "@rs.operator", "due: rs.Timer = rs.NEVER",
    ),
    "missing file": (
        'flow.source(rs.io.csv("nowhere.csv", Word), epochs=SECOND).to(rs.io.console())\n',
        "There is no file", "flow.source(rs.io.csv(", "Check the path",
    ),
    "missing folder": (
        'words.to(rs.io.sqlite("no/folder/out.db", table="t", create=True))\n',
        "no/folder does not exist", "words.to(", "mkdir -p",
    ),
    "time as text": (
        'import pathlib\npathlib.Path("t.csv").write_text("time,text\\n01.03.2026 10:00,a\\n")\n'
        'micros.source(rs.io.csv("t.csv", Timed), epochs=SECOND).to(rs.io.console())\n'
        "flow = micros\n",
        "'time' is '01.03.2026 10:00'", "micros.source(", "rs.timestamp('%d.%m.%Y %H:%M'",
    ),
    "naive datetime": (
        'rows = [Timed(datetime(2026, 3, 1), "a")]\n'
        "micros.source(rs.io.iterable(rows, Timed), epochs=SECOND).to(rs.io.console())\n"
        "flow = micros\n",
        "has no time zone", "micros.source(", "tzinfo=timezone.utc",
    ),
    "no return": (
        "words.to(rs.io.console())\nmade = flow\ndef flow():\n    made\n",
        "returned nothing", "lesson.py:", "`return flow`",
    ),
    "wrong unit of the record's time": (
        'micros.source(rs.io.iterable(WORDS, Word), epochs=SECOND).to(rs.io.console())\n'
        'flow = rs.Flow("lesson")\n'
        "flow.source(rs.io.iterable([], Timed), epochs=SECOND).to(rs.io.console())\n",
        "datetime counts microseconds", "flow.source(", 'rs.Flow(..., time_unit="us")',
    ),
}  # fmt: skip
"""By the mistake: the program, what is said, the line that is shown, and what to do."""


@pytest.mark.parametrize("mistake", LESSONS)
def test_a_mistake_is_told(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, said, line, hint = LESSONS[mistake]
    (tmp_path / "lesson.py").write_text(HEAD + program, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "lesson", raising=False)
    result = CliRunner().invoke(app, ["run", "lesson:flow", "--local"])
    sys.modules.pop("lesson", None)
    assert result.exit_code in (1, 2), result.output
    message, where, what = (result.output[result.output.index("error: ") :].splitlines() + [""])[:3]
    assert said in message
    assert re.match(r"  \S*lesson\.py:\d+", where), where
    assert line in where
    assert hint in what


def test_a_flow_can_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run writes the same again."""
    monkeypatch.chdir(tmp_path)
    program = f'{HEAD}words.to(rs.io.csv("out"))\nflow.run()\nflow.run()\n'
    (tmp_path / "twice.py").write_text(program, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("twice")
    (file,) = (tmp_path / "out" / "Word").glob("*.csv")
    assert len(file.read_text(encoding="utf-8").splitlines()) == 4
