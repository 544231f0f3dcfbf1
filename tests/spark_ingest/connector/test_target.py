"""The options of a writer, and the lanes of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from raystream.errors import ConfigError, InputError
from spark_ingest.connector.target import Target, query_of, target

BASE = {"address": "http://a:1, http://b:2", "token": "secret"}


def of(**options: str) -> Target:
    return target(BASE | options, "q")


def lanes(asked: Target, batch: pa.RecordBatch, count: int = 4) -> dict[int, list[Any]]:
    return {lane: rows.to_pylist() for lane, rows in asked.by_lane(batch, count)}


ROWS = pa.record_batch({"n": [1, 2, 3, 4], "lane": [3, 0, 3, 0], "text": ["a", "b", "a", None]})


def test_options_say_where_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of(give_up="5m").give_up == 300.0
    found = of(order="time, vid", Key="n", give_up="5")
    assert (found.addresses, found.path, found.order, found.key, found.give_up) == (
        ("http://a:1", "http://b:2"), "/push", ("time", "vid"), ("n",), 5.0,
    )  # fmt: skip
    monkeypatch.setenv("RAYSTREAM_PUSH_TOKEN", "of the environment")
    assert target({"address": "a"}, "q").token == "of the environment"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"address": ""}, "address is missing"),
        ({"token": ""}, "token is missing"),
        ({"adress": "x"}, "no option 'adress'"),
        ({"lane": "a", "key": "b"}, "exclude each other"),
        ({"give_up": "soon"}, "no length of time"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        target(BASE | options, "q")


def test_a_column_says_the_lane_and_is_not_sent() -> None:
    assert lanes(of(lane="lane"), ROWS) == {
        0: [{"n": 2, "text": "b"}, {"n": 4, "text": None}],
        3: [{"n": 1, "text": "a"}, {"n": 3, "text": "a"}],
    }
    with pytest.raises(InputError, match="lanes 0 to 2"):
        lanes(of(lane="lane"), ROWS, 3)
    for wrong, why in (("text", "whole numbers"), ("x", "no column")):
        with pytest.raises(InputError, match=why):
            lanes(of(lane=wrong), ROWS)


def test_equal_keys_are_in_one_lane_however_rows_are_cut() -> None:
    whole = lanes(of(key="text"), ROWS)
    assert sum(map(len, whole.values())) == 4
    for i in range(4):
        ((lane, (row,)),) = lanes(of(key="text"), ROWS.slice(i, 1)).items()
        assert row in whole[lane]


def test_without_a_rule_all_rows_of_a_query_are_in_one_lane() -> None:
    assert [*lanes(of(), ROWS)] == [*lanes(of(), ROWS.slice(2))]


def test_the_name_of_a_query_is_in_its_checkpoint_folder(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "1-2"}')
    for location in (str(tmp_path), f"{tmp_path.as_uri()}/"):
        assert query_of({"checkpointLocation": location}) == "spark:1-2"
    assert query_of({"query": "mine"}) == "query:mine"
    with pytest.raises(ConfigError, match="no checkpoint folder"):
        query_of({})
    with pytest.raises(ConfigError, match="cannot be read"):
        query_of({"checkpointLocation": str(tmp_path / "none")})
