# mypy: warn-return-any
# pyright: strict
"""Every form in which flows are written: what type a stream has after each step.

mypy --strict and pyright strict are silent on this file, and it runs: `build` makes a flow of all
operators of `operators.py` and `batches.py`. What must be rejected is in `wrong.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import raystream as rs
from tests.typing.batches import (
    LongWords,
    Reference,
    RunningFrom,
    long_words,
    running_batch,
    split_batch,
)
from tests.typing.connectors import Files, Folder, Least, Repeated, Whole, print_counted
from tests.typing.operators import (
    Allowed,
    AskedAt,
    Balance,
    CountAgain,
    Counted,
    CountOften,
    CountToTheEnd,
    CountWords,
    Left,
    Line,
    Query,
    Running,
    RunningBut,
    Sessions,
    Silences,
    SilencesToTheEnd,
    Toll,
    Word,
    accounts,
    asked,
    asked_for_several,
    asked_plainly,
    asked_together,
    distinct,
    either,
    running,
    split,
)


def build() -> rs.Flow:
    flow = rs.Flow("forms", key_groups=16, time_unit="ms")
    lines = flow.source(Files("*.txt"), epochs=rs.by_arrival(seconds=0.05), name="files")
    assert_type(lines, rs.Stream[Line])
    words = lines.through(split)
    assert_type(words, rs.Stream[Word])
    assert_type(lines.through(split_batch), rs.Stream[Word])
    assert_type(words.through(running), rs.Stream[Running])
    assert_type(words.through(running, name="again"), rs.Stream[Running])
    assert_type(words.through(distinct), rs.Stream[Word])
    assert_type(words.through(long_words), rs.Stream[Word])
    assert_type(words.through(running_batch), rs.Stream[Running])
    assert_type(words.through(asked), rs.Stream[Running])
    assert_type(words.through(asked_plainly), rs.Stream[Running])
    assert_type(words.through(asked_together), rs.Stream[Running])
    assert_type(words.through(asked_for_several), rs.Stream[Running])
    assert_type(words.through(AskedAt("here")), rs.Stream[Running])
    assert_type(words.through(rs.controlled(RunningBut(), by=lines)), rs.Stream[Running])
    assert_type(words.through(rs.controlled(Allowed(), by=lines)), rs.Stream[Word])
    assert_type(words.through(LongWords(at_least=4)), rs.Stream[Word])
    assert_type(words.through(RunningFrom(first=1)), rs.Stream[Running])

    counts, late = words.through(CountWords(at_least=2), late=True)
    assert_type(counts, rs.Stream[Counted])
    assert_type(late, rs.Stream[Word])
    assert_type(words.through(CountOften()), rs.Stream[Counted])
    assert_type(words.through(Sessions()), rs.Stream[Counted])
    assert_type(words.through(CountAgain()), rs.Stream[Counted])
    final, too_late = words.through(CountAgain(), late=True)
    assert_type(final, rs.Stream[Counted])
    assert_type(too_late, rs.Stream[Word])
    assert_type(words.through(Silences()), rs.Stream[Counted])
    assert_type(words.through(Silences(), wait=True), rs.Stream[Counted])
    silences, lates = words.through(Silences(), late=True, wait=True)
    assert_type(silences, rs.Stream[Counted])
    assert_type(lates, rs.Stream[Word])
    assert_type(words.through(SilencesToTheEnd()), rs.Stream[Counted])
    assert_type(words.through(CountToTheEnd()), rs.Stream[Counted])

    counts.to(Folder(Path("out")))
    (counts | words.through(running)).to(rs.io.parquet("counts"))
    counts.to(rs.io.csv("counts-csv", header=False), name="csv")
    counts.to(rs.io.json("counts-json"), name="json-parts")
    counts.to(rs.io.callable(print_counted, each=True))
    late.to(rs.io.console(limit=5))
    counts.to(Least())
    counts.to(Whole(Path("whole")))
    again = flow.source(Repeated(Line, "again.txt", times=2), name="again.txt")
    assert_type(again, rs.Stream[Line])
    several(flow)
    return flow


def several(flow: rs.Flow) -> None:
    epochs = rs.by_time("time", seconds=1, speed=20, disorder=2)
    queries = flow.source(rs.io.iterable([Query(1, 2, 3)], Query, splits=2), epochs=epochs)
    assert_type(queries, rs.Stream[Query])
    tolls = flow.source(rs.io.parquet("tolls/*.parquet", Toll), epochs=epochs)
    assert_type(tolls, rs.Stream[Toll])
    left = flow.source(rs.io.csv("left.csv", Left, header=False), epochs=epochs)
    assert_type(left, rs.Stream[Left])
    assert_type(flow.source(rs.io.json("*.jsonl", Toll), name="json"), rs.Stream[Toll])
    assert_type(flow.source(rs.io.text("*.txt"), name="text"), rs.Stream[rs.io.Line])
    parsed = flow.source(rs.io.text("*.txt", Line, lambda s: Line(0, s)), name="parsed")
    assert_type(parsed, rs.Stream[Line])

    united = tolls | left | queries
    assert_type(united, rs.Stream[Toll | Left | Query])
    assert_type(united[Query], rs.Stream[Query])
    assert_type(united.through(accounts), rs.Stream[Balance])
    both = queries.through(either)
    assert_type(both, rs.Stream[Left | Toll])
    assert_type(both[Left] | both[Toll], rs.Stream[Left | Toll])
    assert_type((both | queries).through(accounts, name="accounts again"), rs.Stream[Balance])
    assert_type(queries.through(Reference(price=3)), rs.Stream[Balance])
