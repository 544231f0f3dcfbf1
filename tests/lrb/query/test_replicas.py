"""Replicas: answered as their originals, cars renamed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from lrb.oracle.answers import ALERT, BALANCE, EXPENDITURE, TOLL, checksum
from lrb.query.flow import SINK, build
from lrb.query.records import Row, Toll
from lrb.query.replicas import Replicas, ReplicatedRows, replicas
from lrb.query.sink import AnswerParts, handed_over
from lrb.query.source import look_through
from lrb.rating.replica_check import Weighed, weigh
from raystream.errors import ConfigError, JobError
from tests.lrb import plain_rules
from tests.lrb.random_traffic import random_traffic
from tests.lrb.rows import report
from tests.lrb.running import TWO, prepare

NONE = dict.fromkeys((TOLL, ALERT, BALANCE, EXPENDITURE), 0)


def replayed(data: Path, parts: Path, count: int) -> Weighed:
    """The answers to prepared rows, replayed as `count` worlds in one flow."""
    found = look_through(data)
    worlds = replicas(found, count)
    flow = build(found, AnswerParts(parts, worlds.vehicles), speed=None, epoch=7, replicas=worlds)
    report = flow.run(instances=TWO)
    expected = handed_over(report.operator(SINK).by_port)
    return weigh(parts, worlds, groups=flow.key_groups, expected=expected)


def test_replicas_are_answered_as_the_original(tmp_path: Path) -> None:
    rows, history = random_traffic(seed=5, roads=2, cars=100)
    plain = plain_rules.answers(rows, history)
    weighed = replayed(prepare(tmp_path, rows, history), tmp_path / "parts", 3)
    for kind, table in weighed.original.items():
        answers = zip(*(table[name].to_pylist() for name in kind.columns), strict=True)
        assert Counter(answers) == plain[kind.name], kind.name
    assert weighed.differing == []
    assert weighed.numbers.tolist() == [sum(n.total() for n in plain.values())] * 3
    assert f"{int(weighed.sums[2]):016x}" == checksum(weighed.original)
    assert sum(bal for (_, _, bal) in plain["expenditure"]) > 0  # a history was found


def test_an_answer_to_a_replica_that_is_not_the_original_s_shows(tmp_path: Path) -> None:
    worlds = Replicas(3, vehicles=100, xways=1)
    sink = AnswerParts(tmp_path, worlds.vehicles)
    sink.open(rs.SinkContext("run", "answers", rs.KeyRange(0, 256), None, 0.0, None))
    vids = np.array([7, 8, 107, 108, 207, 208])
    toll = np.array([2, 0, 2, 0, 0, 2])
    columns = {"time": vids * 0 + 60, "vid": vids, "lav": vids * 0, "toll": toll}
    sink.write(1, rs.KeyRange(0, 256), rs.Batch(Toll, {**columns, "starts": vids > 0}))
    sink.commit(1)
    sink.close()
    weighed = weigh(tmp_path, worlds, groups=256, expected={**NONE, TOLL: 6})
    assert weighed.differing == [2]
    assert weighed.original[TOLL]["vid"].to_pylist() == [7, 8]
    assert weighed.latencies.late == 6  # nothing was measured
    with pytest.raises(JobError, match="6 of 7 answers of kind toll"):
        weigh(tmp_path, worlds, groups=256, expected={**NONE, TOLL: 7})


@given(count=st.integers(1, 5), cars=st.integers(1, 9), position=st.integers(0, 4))
def test_rows_of_replicas_are_those_of_the_original_renamed(
    count: int, cars: int, position: int
) -> None:
    worlds = Replicas(count, vehicles=10, xways=2)
    n = np.arange(cars)
    columns = dict.fromkeys(Row._fields, n % 2)
    columns |= {"release": n, "vid": n, "xway": np.where(n % 3, n % 2, -1)}
    rows = rs.Batch(Row, columns)
    got = worlds.rows(rows, 0, cars)
    assert (np.diff(got["release"]) >= 0).all()
    for number in range(count):
        mine = worlds.number(got["vid"]) == number
        assert worlds.original(got["vid"][mine]).tolist() == n.tolist()
        used = columns["xway"] >= 0
        assert got["xway"][mine].tolist() == (columns["xway"] + 2 * number * used).tolist()
        for name in set(Row._fields) - {"vid", "xway"}:
            assert got[name][mine].tolist() == rows[name].tolist()


def test_reading_goes_on_from_any_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lrb.query.replicas.BATCH_ROWS", 6)
    data = look_through(prepare(tmp_path, [report(t, 17, 2) for t in range(0, 210, 30)]))
    source = ReplicatedRows(data.rows, replicas(data, 2))
    for split in source.splits():
        every = [(at, batch["vid"].tolist()) for at, batch in source.read(split, 0)]
        for position in range(len(every) + 1):
            rest = [(at, batch["vid"].tolist()) for at, batch in source.read(split, position)]
            assert rest == every[position:]


def test_numbers_that_do_not_fit_are_refused() -> None:
    worlds = Replicas(1, vehicles=128_204, xways=1)
    assert replace(worlds, count=16_750).count == 16_750
    for count in (0, 16_751):
        with pytest.raises(ConfigError, match="1 to 16750 have numbers"):
            replace(worlds, count=count)
    with pytest.raises(ConfigError, match="1 to 8191 have numbers"):
        Replicas(8_192, vehicles=1, xways=4)
