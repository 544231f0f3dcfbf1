"""Runs Linear Road over rows written by hand, the whole way from prepared files to answers."""

from __future__ import annotations

import csv
import gzip
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from lrb.oracle import answers as answer_files
from lrb.oracle.answers import KINDS
from lrb.query.run import run
from lrb.query.source import look_through
from tests.lrb.micro import Outcome
from tests.lrb.rows import Charge, Row, shifted, write_prepared

Multiset = Counter[tuple[int, ...]]
#: Cars and questions of different worlds are this far apart in their numbers.
APART = 10_000_000

ONE: dict[str, int] = {}
TWO = dict.fromkeys(("rows", "vehicles", "places", "segments", "accounts", "expenditure"), 2)
THREE = {"rows": 3, "vehicles": 3, "segments": 3, "accounts": 3, "answers": 3}
PARALLEL = {"one": ONE, "two": TWO, "three": THREE}

SLICES = {"t0-419": "official-t0-419.csv", "t5179-5299": "official-t5179-5299.csv.gz"}


class Ran(NamedTuple):
    """What a run has answered, by kind in the columns of `lrb.oracle.answers`, and its record."""

    answers: dict[str, Multiset]
    record: dict[str, Any]


_numbers = count()


def prepare(folder: Path, rows: Sequence[Row], history: Sequence[Charge] = ()) -> Path:
    """Rows as a prepared folder of their own below `folder`."""
    return write_prepared(folder / f"data-{next(_numbers)}", rows, history)


def answer(
    data: Path,
    *,
    instances: Mapping[str, int] | None = None,
    epoch: float | None = None,
    speed: float | None = None,
    cluster: str | None = None,
) -> Ran:
    """Run over a prepared folder and read the answers from their files."""
    out = data.parent / f"answers-{next(_numbers)}"
    record = run(
        look_through(data), out, instances=instances, epoch=epoch, speed=speed, cluster=cluster
    )
    return Ran(read_answers(out), record)


def read_answers(out: Path) -> dict[str, Multiset]:
    """The answers that a run has written, by kind."""
    tables = answer_files.read(out)
    return {
        kind.name: Counter(
            zip(*(tables[kind][name].to_pylist() for name in kind.columns), strict=True)
        )
        for kind in KINDS
    }


def outcomes(folder: Path, worlds: Mapping[str, list[Row]], **options: Any) -> dict[str, Outcome]:
    """Answer many small worlds in one run: each has its own expressway, cars and questions."""
    rows = [
        row
        for number, world in enumerate(worlds.values())
        for row in shifted(world, xway=number, vid=number * APART, qid=number * APART)
    ]
    answers = answer(prepare(folder, rows), **options).answers
    found = [Outcome({}, set(), {}) for _ in worlds]
    for vid, time, lav, toll in answers["toll"]:
        found[vid // APART].tolls[vid % APART, time] = (lav, toll)
    for time, vid, seg in answers["alert"]:
        found[vid // APART].alerts.add((time, vid % APART, seg))
    for time, qid, result, bal in sorted(answers["balance"]):
        found[qid // APART].balances[time, qid % APART] = (result, bal)
    return dict(zip(worlds, found, strict=True))


class Expected(NamedTuple):
    """What the original validator answers to an official slice; of balances, what it accepts."""

    tolls: Multiset
    alerts: Multiset
    balances: dict[tuple[int, int], set[tuple[int, int]]]


def read_csv(path: Path) -> list[Row]:
    """The integers of a published file."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [tuple(map(int, row)) for row in csv.reader(file) if row]


def expected_of(slices: Path, name: str) -> Expected:
    """The files beside an official slice."""
    tolls = read_csv(slices / f"expected-{name}.tollalerts.csv")
    alerts = read_csv(slices / f"expected-{name}.accidentalerts.csv")
    accepted: defaultdict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    for _, time, _, qid, result, bal in read_csv(
        slices / f"expected-{name}.accountbalance-accepted.csv"
    ):
        accepted[time, qid].add((result, bal))
    return Expected(
        Counter((vid, time, lav, toll) for _, vid, time, _, lav, toll in tolls),
        Counter((time, vid, seg) for _, time, _, vid, seg in alerts),
        accepted,
    )


def assert_as_expected(ran: Ran, expected: Expected, rows: Sequence[Row]) -> None:
    """Every answer to an official slice is right, and none is missing."""
    assert ran.answers["toll"] == expected.tolls
    assert ran.answers["alert"] == expected.alerts
    asked = Counter((row[1], row[9]) for row in rows if row[0] == 2)
    assert Counter((time, qid) for time, qid, _, _ in ran.answers["balance"]) == asked
    for time, qid, result, bal in ran.answers["balance"]:
        # Who was never notified has no accepted answer; rule R says: nothing, as of now.
        assert (result, bal) in expected.balances.get((time, qid), {(time, 0)})
    requests = Counter((row[1], row[9], 0) for row in rows if row[0] == 3)
    assert ran.answers["expenditure"] == requests  # there is no history beside a slice
