"""Generated folders, with Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from raystream.errors import ConfigError, JobError
from spark_ingest import layout, store
from spark_ingest.generate import generate
from spark_ingest.layout import slot_sql, split_sql
from spark_ingest.progress import silent
from spark_ingest.spark import jobs
from spark_ingest.summary import Summary
from spark_ingest.traffic.plan import Plan
from spark_ingest.traffic.rows import road_rows
from tests.spark_ingest.data import SECONDS, SEED, assert_layout, read_history, read_rows

pytestmark = pytest.mark.spark


def test_spark_and_numpy_agree_on_slot_and_split(spark: SparkSession) -> None:
    vids = [0, 1, 99, 100, 65_535, 65_536, 2**31 - 1, *range(123_456, 124_456)]
    frame = spark.createDataFrame([(vid,) for vid in vids], "vid int")
    found = frame.selectExpr("vid", slot_sql(), split_sql(), split_sql(splits=7)).collect()
    assert [tuple(row) for row in found] == [
        (vid, layout.slot(vid), layout.split(vid), layout.split(vid, 7)) for vid in vids
    ]


def test_the_folder_is_as_the_layout_says(generated: Summary) -> None:
    assert_layout(generated.data)
    assert sorted(path.name for path in generated.data.iterdir()) == [
        "history",
        "meta.json",
        "rows",
    ]
    meta = generated.meta
    assert (meta.kind, meta.xways, meta.seconds, meta.seed) == ("generated", 1, SECONDS, SEED)
    assert 150 < generated.rate_peak < 220


def test_the_rows_are_those_of_the_simulation_whatever_spark_does(generated: Summary) -> None:
    plan = Plan.make(SEED, 1, SECONDS)
    simulated = pa.concat_tables([part for road in (0, 1) for part in road_rows(plan, road)])
    simulated = store.sort(simulated)
    split = layout.split(simulated["vid"].to_numpy().astype(np.int64))
    expected = pa.concat_tables(
        [simulated.filter(pa.array(split == number)) for number in range(layout.SPLITS)]
    )
    assert read_rows(generated.data).equals(expected)


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("one", "two", "other")]
    for folder, seed in zip(folders, (1, 1, 2), strict=True):
        generate(folder, xways=2, seconds=90, seed=seed, spark=spark)
    one, two, other = (
        {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        for folder in folders
    )
    assert len(one) == layout.SPLITS + 2
    assert one == two
    assert one.keys() == other.keys()
    assert all(one[name] != other[name] for name in one)


def test_history_holds_every_day_of_every_vehicle_and_all_that_is_asked_for(
    generated: Summary,
) -> None:
    history = read_history(generated.data)
    keys = set(zip(*(history[name].to_pylist() for name in ("vid", "day", "xway")), strict=True))
    assert len(keys) == history.num_rows
    rows = read_rows(generated.data)
    asked = rows.filter(pa.array(rows["type"].to_numpy() == layout.EXPENDITURE))
    wanted = set(zip(*(asked[name].to_pylist() for name in ("vid", "day", "xway")), strict=True))
    assert len(wanted) > 30
    assert wanted <= keys
    vids = set(rows["vid"].to_pylist())
    assert {key[0] for key in keys} >= vids
    assert history.num_rows == 69 * len({key[0] for key in keys})


def test_progress_is_told_step_by_step(spark: SparkSession, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []

    def note(step: str, done: int, total: int) -> None:
        told.append((step, done, total))

    generate(tmp_path / "data", xways=1, seconds=60, spark=spark, progress=note)
    steps = list(dict.fromkeys(step for step, _, _ in told))
    assert steps == ["starting Spark", "simulating traffic", "writing toll history"]
    assert all(0 <= done <= max(total, done) for _, done, total in told)
    assert told[-1] == ("writing toll history", 1, 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"xways": 0}, "--xways 0 is too small"),
        ({"seconds": 59}, "--seconds 59 is too small"),
        ({"seed": -1}, "--seed -1 is too small"),
        ({"xways": 5_000}, "query numbers"),
    ],
)
def test_arguments_without_sense_are_refused(
    tmp_path: Path, arguments: dict[str, int], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        generate(tmp_path / "data", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "data").exists()


def test_a_failing_task_is_told_in_one_line(spark: SparkSession) -> None:
    def fail(numbers: object) -> object:
        raise ValueError("the road ends here")

    frame = spark.range(1).mapInArrow(fail, "id long")  # type: ignore[arg-type]
    with pytest.raises(JobError, match="while trying: ValueError: the road ends here") as told:
        jobs.run(spark, "trying", frame.collect, silent)
    assert "\n" not in str(told.value)
