"""A terminal without a letter, a closed one, and an exception that cannot be shown: the report is
there all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOW = """
from collections.abc import Iterator
from typing import NamedTuple
import raystream as rs
from raystream.testing import Collect

class Word(NamedTuple):
    time: int
    text: str

class Silent(Exception):
    def __str__(self):
        raise RuntimeError("not to be shown")

@rs.operator()
def silent(word: Word) -> Iterator[Word]:
    raise Silent

@rs.operator()
def snows(word: Word) -> Iterator[Word]:
    raise ValueError("für → ☃")

def make(op=None):
    flow = rs.Flow("wörter ☃")
    words = flow.source(rs.io.iterable([Word(1, "a")], Word))
    (words if op is None else words.through(op)).to(Collect(), name="aus")
    return flow

good, bad, snow = make(), make(silent), make(snows)
"""


def ran(folder: Path, flow: str, *, closed: bool = False) -> subprocess.CompletedProcess[bytes]:
    (folder / "letters.py").write_text(FLOW, encoding="utf-8")
    command = [sys.executable, "-m", "raystream", "run", "--local", f"letters:{flow}"]
    shell = ["sh", "-c", '"$@" >&-', "sh"] if closed else []
    plain = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    environment = {**os.environ, **plain, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*shell, *command], cwd=folder, env=environment, capture_output=True, check=False
    )


@pytest.mark.parametrize(
    ("flow", "code", "told"),
    [
        ("good", 0, b"w?rter ?: ended after"),
        ("bad", 1, b"silent raised Silent (its message cannot be shown: __str__ raised Runtime"),
        ("snow", 1, b"snows raised ValueError: f"),
    ],
)
def test_a_terminal_without_a_letter_shows_the_report(
    tmp_path: Path, flow: str, code: int, told: bytes
) -> None:
    done = ran(tmp_path, flow)
    assert done.returncode == code, done.stderr
    assert told in done.stdout + done.stderr
    assert b"UnicodeEncodeError" not in done.stderr


def test_a_closed_output_does_not_replace_the_report(tmp_path: Path) -> None:
    assert ran(tmp_path, "good", closed=True).returncode == 0
    done = ran(tmp_path, "snow", closed=True)
    assert done.returncode == 1 and b"snows raised ValueError" in done.stderr
