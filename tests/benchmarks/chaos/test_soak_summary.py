"""The recorded runs: every row is whole, and the summary counts them."""

from __future__ import annotations

import re
from datetime import date

from benchmarks.chaos.soak_summary import COLUMNS, RESULTS, read, summary, wrong

NUMBERS = ("seconds", "schedules", "faults", "moves", "answers", "wrong", "lost")


def test_every_row_is_whole() -> None:
    assert RESULTS.read_text(encoding="utf-8").splitlines()[0] == ",".join(COLUMNS)
    for row in read():
        assert {*row} == {*COLUMNS}
        assert date.fromisoformat(row["date"])
        assert re.fullmatch(r"[0-9a-f]{7,40}", row["commit"])
        assert row["command"].startswith("python -m benchmarks")
        assert all(row[n].isdecimal() or (not row[n] and n != "wrong") for n in NUMBERS)


def test_rows_are_in_order_of_their_dates() -> None:
    dates = [row["date"] for row in read()]
    assert dates == sorted(dates)


def test_what_is_wrong_is_told_with_its_note() -> None:
    row = dict.fromkeys(COLUMNS, "") | {
        "date": "2026-11-30",
        "commit": "abc1234",
        "work": "word count",
        "seconds": "1800",
        "faults": "1200",
        "wrong": "2",
        "note": "why",
    }
    rows = [row, row | {"wrong": "0", "seconds": ""}]
    assert summary(rows)[-1] == "| word count | 2 | 0.5 |  | 2,400 |  |  | 2 |  |"
    assert wrong(rows) == ["wrong: 2 on 2026-11-30, commit abc1234: why"]
