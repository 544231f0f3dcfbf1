"""The oracle against the micro examples, the official slices, and a second reading of the rules."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from lrb.oracle.accepted import accepted_balances
from lrb.oracle.answers import ALERT, BALANCE, KINDS, TOLL, Answers, Kind
from lrb.oracle.expected import expected
from lrb.oracle.sql import VIEWS
from raystream.errors import InputError
from spark_ingest import layout
from tests.lrb import plain_rules
from tests.lrb.edges import EDGES
from tests.lrb.micro import OFFICIAL, Outcome, t7_empty_window
from tests.lrb.random_traffic import random_traffic
from tests.lrb.rows import Row, report, shifted, write_prepared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WORLDS = {name: make() for name, make in {**OFFICIAL, **EDGES, "T7b": t7_empty_window}.items()}
SLICES = {"t0-419": "official-t0-419.csv", "t5179-5299": "official-t5179-5299.csv.gz"}
#: Cars and questions of different worlds are this far apart in their numbers.
APART = 10_000_000


def counted(answers: Answers, kind: Kind) -> Counter[tuple[int, ...]]:
    """The answers of a kind as a multiset of rows."""
    return Counter(zip(*(answers[kind][name].to_pylist() for name in kind.columns), strict=True))


# ---- micro examples ---------------------------------------------------------------------------


def outcomes(spark: SparkSession, folder: Path, worlds: dict[str, list[Row]]) -> dict[str, Outcome]:
    """Answer many small worlds at once: each has its own expressway, cars and questions."""
    rows = [
        row
        for number, world in enumerate(worlds.values())
        for row in shifted(world, xway=number, vid=number * APART, qid=number * APART)
    ]
    answers = expected(spark, write_prepared(folder, rows)).answers
    found = [Outcome({}, set(), {}) for _ in worlds]
    for vid, time, lav, toll in counted(answers, TOLL):
        found[vid // APART].tolls[vid % APART, time] = (lav, toll)
    for time, vid, seg in counted(answers, ALERT):
        found[vid // APART].alerts.add((time, vid % APART, seg))
    for time, qid, result, bal in sorted(counted(answers, BALANCE)):
        found[qid // APART].balances[time, qid % APART] = (result, bal)
    return dict(zip(worlds, found, strict=True))


@pytest.fixture(scope="module")
def micro(
    spark: SparkSession, slices_found: Path | None, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    """All worlds, and those of the original files where these are."""
    worlds = {name: world.rows for name, world in WORLDS.items()}
    if slices_found:
        micro = slices_found / "micro"
        worlds |= {f"original {name}": read_csv(micro / f"{name}.dat") for name in OFFICIAL}
    return outcomes(spark, tmp_path_factory.mktemp("micro"), worlds)


@pytest.mark.parametrize("name", WORLDS)
def test_micro_examples_are_answered_as_the_rules_say(name: str, micro: dict[str, Outcome]) -> None:
    WORLDS[name].check(micro[name])


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("name", OFFICIAL)
def test_the_original_micro_examples_are_answered_alike(
    name: str, micro: dict[str, Outcome]
) -> None:
    WORLDS[name].check(micro[f"original {name}"])


# ---- official slices --------------------------------------------------------------------------


def read_csv(path: Path) -> list[Row]:
    """The integers of a published file."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [tuple(map(int, row)) for row in csv.reader(file) if row]


@pytest.mark.parametrize("name", SLICES)
def test_slices_are_answered_as_by_the_original_validator(
    name: str, spark: SparkSession, slices: Path, tmp_path: Path
) -> None:
    rows = read_csv(slices / SLICES[name])
    answers = expected(spark, write_prepared(tmp_path, rows)).answers
    tolls = read_csv(slices / f"expected-{name}.tollalerts.csv")
    alerts = read_csv(slices / f"expected-{name}.accidentalerts.csv")
    assert counted(answers, TOLL) == Counter(
        (vid, t, lav, toll) for _, vid, t, _, lav, toll in tolls
    )
    assert counted(answers, ALERT) == Counter((t, vid, seg) for _, t, _, vid, seg in alerts)

    accepted: defaultdict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    for _, time, _, qid, result, bal in read_csv(
        slices / f"expected-{name}.accountbalance-accepted.csv"
    ):
        accepted[time, qid].add((result, bal))
    asked = [(row[2], row[1], row[9]) for row in rows if row[0] == 2]
    mine = accepted_balances(((vid, t, toll) for vid, t, _, toll in counted(answers, TOLL)), asked)
    assert {question: found for question, found in mine.items() if found} == accepted
    balances = counted(answers, BALANCE)
    assert len(balances) == len(asked)
    for time, qid, result, bal in balances:
        # Who was never notified has no accepted answer; R says: nothing, as of now.
        assert (result, bal) in accepted.get((time, qid), {(time, 0)})


# ---- a second reading of the rules ------------------------------------------------------------


def test_random_traffic_is_answered_as_by_the_plain_rules(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows, history = random_traffic(seed=4, roads=3, cars=450)
    found = expected(spark, write_prepared(tmp_path, rows, history))
    plain = plain_rules.answers(rows, history)
    for kind in KINDS:
        assert counted(found.answers, kind) == plain[kind.name], kind.name
    assert found.re_entries == plain_rules.re_entries(rows)
    # The traffic is worth the comparison only if all of it happens, and often.
    assert found.re_entries > 100
    assert sum(toll > 0 for _, _, _, toll in plain["toll"]) > 100
    assert sum(plain["alert"].values()) > 100
    assert sum(bal > 0 for _, _, _, bal in plain["balance"]) > 100
    assert sum(bal > 0 for _, _, bal in plain["expenditure"]) > 100


# ---- the shared session, and bad input --------------------------------------------------------


def test_the_session_is_left_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert not _views_of(spark), "an earlier test, or computation, has left views behind"
    data = write_prepared(tmp_path / "any name, a b%20[1]{x,y}*?\\ü", [report(0, 1, 2)])
    assert counted(expected(spark, data).answers, TOLL) == {(1, 0, -1, 0): 1}
    assert not _views_of(spark)
    rows = [report(second, 17, 2) for second in range(11)]  # more than it can judge exactly
    with pytest.raises(InputError, match="car 17 sent 11 reports in minute 1"):
        expected(spark, write_prepared(tmp_path / "bad", rows))
    assert not _views_of(spark)
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def _views_of(spark: SparkSession) -> set[str]:
    return {table.name for table in spark.catalog.listTables()} & _NAMES


_NAMES = {"input", "history"} | {view.name for view in VIEWS}


def test_missing_rows_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    data = write_prepared(tmp_path, [report(second, 17, 2) for second in range(5)])
    layout.row_files(data, layout.split(17))[0].unlink()
    with pytest.raises(InputError, match=r"files have 0 rows in all, and its meta.json says 5"):
        expected(spark, data)


def test_other_columns_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    data = write_prepared(tmp_path, [report(0, 17, 2)])
    file = layout.row_files(data, 0)[0]
    pq.write_table(pq.read_table(file).drop_columns("pos"), file)
    with pytest.raises(InputError, match="column pos is missing, not int32"):
        expected(spark, data)


def test_an_unfinished_folder_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    data = write_prepared(tmp_path, [report(0, 17, 2)])
    meta = data / "meta.json"
    assert json.loads(meta.read_text())["rows"]["0"] == 1
    meta.unlink()
    with pytest.raises(InputError, match="not finished"):
        expected(spark, data)
