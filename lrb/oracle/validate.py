"""Holds the answers of a run against the oracle: each answer counts, and counts once.

Answers are compared as multisets, kind by kind, in all columns but Emit:

    missing      expected, and not answered
    wrong        answered, and not expected
    duplicate    answered more often than expected
    late         sunk after its deadline (5 s, expenditures 10 s), in real seconds

An answer with a false value therefore shows twice: it is wrong, and the right one is missing.
Lateness is measured only in paced runs; at full speed there is no moment from which to count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from lrb.oracle import answers as answer_files
from lrb.oracle.answers import KINDS, RUN_FILE, Answers, Kind
from spark_ingest.layout import read_meta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lrb.oracle.expected import Expected

#: Values of the columns of one answer, by column name.
Columns = dict[str, int]
Progress = Callable[[str], None]

#: A heap that holds the answers to about 100 million rows on their way to this process.
SPARK_OPTIONS = {"spark.driver.memory": "2g", "spark.driver.maxResultSize": "0"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One question whose answers are not as expected."""

    kind: Kind
    key: Columns
    expected: tuple[Columns, ...]
    answered: tuple[Columns, ...]

    def __str__(self) -> str:
        return (
            f"{self.kind.name} of {_named(self.key)}: expected {_listed(self.expected)}; "
            f"answered {_listed(self.answered)}"
        )


@dataclass(frozen=True, slots=True)
class KindVerdict:
    """How the answers of one kind compare."""

    kind: Kind
    expected: int
    answered: int
    wrong: int
    missing: int
    duplicates: int
    late: int | None  #: None at full speed
    unmeasured: int  #: answers of a paced run that have no latency
    examples: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the answers of a run compare, and what only the oracle knows of its input."""

    kinds: tuple[KindVerdict, ...]
    checksum: str  #: of the answers given
    expected_checksum: str
    positive_tolls: int  #: as expected
    re_entries: int  #: cars that made more than one journey

    @property
    def checked(self) -> int:
        """Answers that were looked at."""
        return sum(kind.answered for kind in self.kinds)

    @property
    def wrong(self) -> int:
        """Answers that were not expected."""
        return sum(kind.wrong for kind in self.kinds)

    @property
    def missing(self) -> int:
        """Answers that were expected and not given."""
        return sum(kind.missing for kind in self.kinds)

    @property
    def duplicates(self) -> int:
        """Right answers that were given once too often."""
        return sum(kind.duplicates for kind in self.kinds)

    @property
    def late(self) -> int | None:
        """Answers after their deadline; None at full speed, where there is none."""
        found = [kind.late for kind in self.kinds if kind.late is not None]
        return sum(found) if found else None

    @property
    def right(self) -> bool:
        """Whether the answers are exactly the expected ones, in time or not."""
        return not (self.wrong or self.missing or self.duplicates)

    @property
    def in_time(self) -> bool:
        """Whether no answer is known to be late and none of a paced run went unmeasured."""
        return not self.late and not any(kind.unmeasured for kind in self.kinds)

    @property
    def ok(self) -> bool:
        """Whether there is nothing to object to."""
        return self.right and self.in_time

    @property
    def objection(self) -> str:
        """Why it is not `ok`, in a sentence; empty if it is."""
        if not self.right:
            return (
                f"Not all answers are right: {self.wrong:,} are wrong, {self.missing:,} are"
                f" missing, {self.duplicates:,} were given twice."
            )
        if self.late:
            return (
                f"All answers are right, but {self.late:,} came late: this machine did not keep up"
                " with the pace. A lower --speed (make run SPEED=...) gives it more time."
            )
        return "" if self.in_time else "All answers are right, but some have no latency."


def validate(
    data: Path,
    answers: Path,
    *,
    spark: SparkSession | None = None,
    examples: int = 5,
    progress: Progress = lambda stage: None,
) -> Verdict:
    """Compare an answers folder with what the oracle says of the data that it answers.

    Starts a Spark of its own unless given one. Keeps up to `examples` differences of each kind.
    Raises InputError where data or answers cannot be read.
    """
    from lrb.oracle.expected import expected

    progress("reading the answers")
    read_meta(data)  # a wrong path shows before Spark has started
    given = answer_files.read(answers)
    latency = _latency(answers)
    with _spark(spark, progress) as session:
        oracle = expected(session, data, progress=progress)
    progress("comparing")
    return compare(oracle, given, latency, examples=examples)


def compare(
    oracle: Expected, given: Answers, latency: pa.Table | None, *, examples: int = 5
) -> Verdict:
    """Compare answers in memory; `latency` is as in latency.parquet, None at full speed."""
    return Verdict(
        kinds=tuple(
            compare_kind(kind, oracle.answers[kind], given[kind], latency, examples=examples)
            for kind in KINDS
        ),
        checksum=answer_files.checksum(given),
        expected_checksum=answer_files.checksum(oracle.answers),
        positive_tolls=answer_files.positive_tolls(oracle.answers),
        re_entries=oracle.re_entries,
    )


def compare_kind(
    kind: Kind, expected: pa.Table, given: pa.Table, latency: pa.Table | None, *, examples: int
) -> KindVerdict:
    """Compare the answers of one kind as multisets."""
    differing = _differing(kind, expected, given)
    want = differing["expected"].to_numpy()
    have = differing["given"].to_numpy()
    surplus = np.maximum(have - want, 0)
    late, measured = _lateness(kind, latency)
    return KindVerdict(
        kind=kind,
        expected=expected.num_rows,
        answered=given.num_rows,
        wrong=int(surplus[want == 0].sum()),
        missing=int(np.maximum(want - have, 0).sum()),
        duplicates=int(surplus[want > 0].sum()),
        late=late,
        unmeasured=0 if latency is None else max(0, given.num_rows - measured),
        examples=_examples(kind, differing, expected, given, examples),
    )


def _differing(kind: Kind, expected: pa.Table, given: pa.Table) -> pa.Table:
    """The answers that are not given as often as expected, with both numbers."""
    columns = list(kind.columns)
    sides = [
        side.select(columns)
        .append_column("expected", pa.array(np.full(side.num_rows, wanted, np.int64)))
        .append_column("given", pa.array(np.full(side.num_rows, 1 - wanted, np.int64)))
        for side, wanted in ((expected, 1), (given, 0))
    ]
    sums = pa.concat_tables(sides).group_by(columns)
    counted = sums.aggregate([("expected", "sum"), ("given", "sum")])
    counted = counted.rename_columns([*columns, "expected", "given"])
    return counted.filter(pc.not_equal(counted["expected"], counted["given"]))


def _examples(
    kind: Kind, differing: pa.Table, expected: pa.Table, given: pa.Table, examples: int
) -> tuple[Difference, ...]:
    """The earliest questions that are not answered as expected, with all that was answered."""
    order = [("time", "ascending"), *((name, "ascending") for name in kind.keys if name != "time")]
    keys = differing.select(list(kind.keys)).group_by(list(kind.keys)).aggregate([])
    earliest = keys.sort_by(order).slice(0, examples).to_pylist()
    return tuple(
        Difference(kind, key, _at(kind, key, expected), _at(kind, key, given)) for key in earliest
    )


def _at(kind: Kind, key: Columns, rows: pa.Table) -> tuple[Columns, ...]:
    """The values of the answers with a key."""
    matches = reduce(pc.and_, (pc.equal(rows[name], value) for name, value in key.items()))
    return tuple(rows.filter(matches).select(list(kind.values)).to_pylist())


def _latency(answers: Path) -> pa.Table | None:
    """The latencies of a run; none at all if the run was paced and has not written them."""
    latency = answer_files.read_latency(answers)
    if latency is not None or not (answers / RUN_FILE).exists():
        return latency
    paced = answer_files.read_run(answers).get("speed") is not None
    return answer_files.LATENCY_SCHEMA.empty_table() if paced else None


def _lateness(kind: Kind, latency: pa.Table | None) -> tuple[int | None, int]:
    """How many answers of a kind were late, and of how many a latency is known."""
    if latency is None:
        return None, 0
    seconds = latency.filter(pc.equal(latency["kind"], kind.code))["latency"].to_numpy()
    return kind.missed(seconds), len(seconds)


@contextmanager
def _spark(given: SparkSession | None, progress: Progress) -> Iterator[SparkSession]:
    if given is not None:
        yield given
        return
    progress("starting Spark")
    from spark_ingest.spark.session import spark_session

    with spark_session("lrb validate", options=SPARK_OPTIONS) as session:
        yield session


# ---- on the screen ----------------------------------------------------------------------------


def show(verdict: Verdict, console: Console | None = None) -> None:
    """Print the verdict: a table by kind, the first differences, and a last line that decides."""
    console = console or Console()
    console.print(_table(verdict))
    for kind in verdict.kinds:
        for difference in kind.examples:
            console.print(f"  {difference}", style="red", highlight=False, soft_wrap=True)
    console.print(_conclusion(verdict), highlight=False, soft_wrap=True)


def _table(verdict: Verdict) -> Table:
    table = Table(title="Answers against the oracle", title_justify="left")
    table.add_column("kind")
    for heading in ("expected", "answered", "wrong", "missing", "duplicate", "late"):
        table.add_column(heading, justify="right")
    for kind in verdict.kinds:
        late = "not measured" if kind.unmeasured else _count(kind.late)
        faults = (kind.wrong, kind.missing, kind.duplicates)
        table.add_row(
            kind.kind.name,
            _count(kind.expected),
            _count(kind.answered),
            *(_alarm(_count(fault), fault > 0) for fault in faults),
            _alarm(late, bool(kind.late) or kind.unmeasured > 0),
        )
    return table


def _conclusion(verdict: Verdict) -> str:
    """One line on whether the answers are right, and one on time where that can be said."""
    checksum = f"checksum {verdict.checksum}"
    if verdict.right:
        lines = [f"[green]All {verdict.checked:,} answers are right[/], {checksum}."]
    else:
        lines = [
            f"[red]The answers are not right[/]: {verdict.wrong:,} wrong, {verdict.missing:,} "
            f"missing, {verdict.duplicates:,} duplicate; {checksum}, expected "
            f"{verdict.expected_checksum}."
        ]
    unmeasured = sum(kind.unmeasured for kind in verdict.kinds)
    if unmeasured:
        lines.append(f"[red]{unmeasured:,} answers of a paced run have no latency[/].")
    if verdict.late:
        lines.append(f"[red]{verdict.late:,} answers came after their deadline[/].")
    elif verdict.late is None:
        lines.append("Deadlines are not defined at full speed.")
    elif not unmeasured:
        lines.append("[green]All of them came in time[/].")
    return "\n".join(lines)


def _alarm(text: str, alarming: bool) -> str:
    return f"[red]{text}[/]" if alarming else text


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _named(columns: Columns) -> str:
    return " ".join(f"{name}={value}" for name, value in columns.items())


def _listed(answers: tuple[Columns, ...]) -> str:
    return " and ".join(_named(answer) for answer in answers) or "nothing"
