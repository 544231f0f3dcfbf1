"""Nothing is lost without a word: many late records are said at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.testing import Collect


class Event(NamedTuple):
    time: int
    key: str


class Count(NamedTuple):
    start: int
    n: int


class Tally(rs.State):
    n: int = 0


@rs.operator(key="key", window=rs.tumbling(seconds=10))
class Counts:
    def process(self, event: Event, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Count]:
        yield Count(window.start, tally.n)


NEWEST_FIRST = [Event(t, "a") for t in range(999, -1, -1)]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process an epoch is a batch."""
    monkeypatch.setattr("raystream.io.memory.BATCH_ROWS", 10)


def run(events: list[Event], *, late: bool = False, **options: Any) -> Any:
    flow = rs.Flow("late")
    stream = flow.source(rs.io.iterable(events, Event))
    if late:
        counts, rest = stream.through(Counts(), late=True)
        rest.to(Collect())
    else:
        counts = stream.through(Counts())
    counts.to(Collect())
    return flow.run(**options)


def test_a_file_newest_first(capsys: pytest.CaptureFixture[str]) -> None:
    report = run(NEWEST_FIRST)
    (note,) = report.notes
    assert note.startswith("990 of 1,000 records were late for Counts and left out")
    assert capsys.readouterr().err == f"{note}\n"


def test_whoever_asks_for_notes_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    notes: list[str] = []
    assert run(NEWEST_FIRST, on_note=notes.append).notes == tuple(notes)
    assert len(notes) == 1 and not capsys.readouterr().err


@pytest.mark.parametrize(
    ("events", "late"),
    [
        (NEWEST_FIRST[::-1], False),
        (NEWEST_FIRST, True),
        (NEWEST_FIRST[::-1] + NEWEST_FIRST[-5:], False),
    ],
    ids=["in order", "as a stream", "few"],
)
def test_nothing_is_said(
    events: list[Event], late: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(events, late=late).notes == ()
    assert not capsys.readouterr().err
