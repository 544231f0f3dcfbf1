"""The sink: answers are whole and stamped, whoever wrote them, in whatever order."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import raystream as rs
from lrb.oracle.answers import ALERT, BALANCE, EMIT, EXPENDITURE, KINDS, LATENCY_FILE, TOLL, read
from lrb.query import sink as sink_module
from lrb.query.expenditure import Spent
from lrb.query.flow import LONG_RATE, epoch_seconds
from lrb.query.records import Alert, Balance, Toll
from lrb.query.run import series
from lrb.query.sink import LATENCY, AnswerParts, collect, handed_over, latency_p99
from lrb.query.source import look_through
from raystream.errors import ConfigError, JobError
from spark_ingest.layout import SLOTS, slot
from tests.lrb.rows import balance, report
from tests.lrb.running import TWO, answer, prepare

LEFT, RIGHT = rs.KeyRange(0, 100), rs.KeyRange(100, 256)
STARTED, ORIGIN, SPEED = 1_000_000.0, 60.0, 20.0
NONE = dict.fromkeys(KINDS, 0)


def opened(folder: Path, keys: rs.KeyRange, *, paced: bool = False) -> AnswerParts:
    """The sink of one instance, as the engine makes it: a copy of the one in the flow."""
    sink = copy.copy(AnswerParts(folder))
    clock = (STARTED, ORIGIN, SPEED) if paced else (None, ORIGIN, None)
    sink.open(rs.SinkContext("run", "answers", keys, *clock))
    return sink


def resumed(folder: Path, keys: rs.KeyRange, checkpoint: int) -> AnswerParts:
    """The same in a run that goes on from a saved cut of the run above."""
    sink = copy.copy(AnswerParts(folder))
    context = rs.SinkContext("next", "answers", keys, None, ORIGIN, None, checkpoint, resumed="run")
    sink.open(context)
    return sink


def ended(sink: AnswerParts) -> None:
    """What the engine does when the last epoch is committed."""
    sink.commit(2)
    sink.close()


def tolls(*vids: int, time: int = 70) -> rs.Batch[Toll]:
    n = len(vids)
    columns: dict[str, Any] = {"time": [time] * n, "vid": vids, "lav": [30] * n, "toll": [200] * n}
    return rs.Batch(Toll, {**columns, "starts": [True] * n})


def test_answers_of_a_run_that_was_lost_are_kept_up_to_the_cut(tmp_path: Path) -> None:
    for keys, vid in ((LEFT, 5), (RIGHT, 6)):
        sink = opened(tmp_path, keys)
        sink.write(1, keys, tolls(vid))
        sink.prepare(1)
        sink.write(2, keys, tolls(vid, time=71))
        sink.prepare(2)
    sink = resumed(tmp_path, rs.KeyRange(0, 256), 1)
    sink.write(2, rs.KeyRange(0, 256), tolls(5, 6, time=72))
    ended(sink)
    table = collect(tmp_path, groups=256, expected=NONE | {TOLL: 4})[TOLL]
    found = zip(table["vid"].to_pylist(), table["time"].to_pylist(), strict=True)
    assert sorted(found) == [(5, 70), (5, 72), (6, 70), (6, 72)]


def test_answers_of_all_kinds_and_ranges_are_collected_in_order_of_time(tmp_path: Path) -> None:
    right, left = opened(tmp_path, RIGHT), opened(tmp_path, LEFT)
    right.write(1, RIGHT, tolls(5, 3, time=90))
    left.write(1, LEFT, tolls(9, 8))
    left.write(2, LEFT, rs.Batch(Alert, {"time": [70], "vid": [8], "seg": [12]}))
    left.write(2, LEFT, rs.Batch(Spent, {"time": [71], "vid": [9], "qid": [2], "bal": [37]}))
    moved = {"time": [75], "vid": [8], "qid": [4], "result_time": [70], "bal": [2**40]}
    right.write(2, RIGHT, rs.Batch(Balance, moved))
    ended(right)
    ended(left)
    expected = {TOLL: 4, ALERT: 1, BALANCE: 1, EXPENDITURE: 1}
    found = collect(tmp_path, groups=256, expected=expected)
    answers = {kind: table.select(kind.columns) for kind, table in found.items()}
    assert answers[TOLL].to_pydict() == {
        "vid": [8, 9, 3, 5], "time": [70, 70, 90, 90], "lav": [30] * 4, "toll": [200] * 4,
    }  # fmt: skip
    assert answers[ALERT].to_pylist() == [{"time": 70, "vid": 8, "seg": 12}]
    assert answers[BALANCE].to_pylist() == [{"time": 75, "qid": 4, "result_time": 70, "bal": 2**40}]
    assert answers[EXPENDITURE].to_pylist() == [{"time": 71, "qid": 2, "bal": 37}]


def test_a_range_that_has_written_nothing_here_is_missed(tmp_path: Path) -> None:
    ended(opened(tmp_path, RIGHT))
    with pytest.raises(JobError, match=r"lacks the output of the key groups \[0, 100\)"):
        collect(tmp_path, groups=256, expected=NONE)


def test_answers_that_did_not_arrive_are_missed(tmp_path: Path) -> None:
    ended(opened(tmp_path, rs.KeyRange(0, 256)))
    with pytest.raises(JobError, match="0 of 3 answers of kind alert") as caught:
        collect(tmp_path, groups=256, expected=NONE | {ALERT: 3})
    assert "all of them share" in str(caught.value)


def test_what_was_handed_over_is_read_from_the_ports_of_the_sink() -> None:
    ports = {"answers.Toll": 3, "answers.Alert": 1, "answers.Spent": 2}
    assert handed_over(ports) == {TOLL: 3, ALERT: 1, BALANCE: 0, EXPENDITURE: 2}


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write to .*file"):
        opened(tmp_path / "file", LEFT)


def test_emit_and_latency_are_counted_from_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(tmp_path, rs.KeyRange(0, 256), paced=True)
    # Two seconds after the start it is second 100 of the traffic.
    monkeypatch.setattr(sink_module.time, "time", lambda: STARTED + 2.0)
    sink.write(1, LEFT, tolls(8, 9, time=90))
    assert latency_p99(tmp_path, groups=256) is None
    sink.commit(1)
    p99 = latency_p99(tmp_path, groups=256)
    assert p99 is not None
    assert 0.47 < p99 <= 0.5
    ended(sink)
    found = collect(tmp_path, groups=256, expected=NONE | {TOLL: 2})[TOLL]
    assert found[EMIT].to_pylist() == [100.0, 100.0]
    released = np.array([90 + slot(8) / SLOTS, 90 + slot(9) / SLOTS])
    np.testing.assert_allclose(found[LATENCY].to_numpy(), (100.0 - released) / SPEED, rtol=1e-6)


def test_a_run_at_full_speed_has_no_emit_and_no_latency(tmp_path: Path) -> None:
    ran = answer(prepare(tmp_path, [report(0, 1, 3), balance(0, 1, 7)]))
    (out,) = tmp_path.glob("answers-*")
    assert (out / "tollalerts.csv").read_text() == "0,1,0,-1,-1,0\n"
    assert (out / "balances.csv").read_text() == "2,0,-1,7,0,0\n"
    assert (out / "accidentalerts.csv").read_text() == ""
    assert not (out / LATENCY_FILE).exists()
    assert ran.record["latency"] is None
    assert ran.record["deadline_missed"] is None
    assert {path.name for path in out.iterdir()} == {*(kind.file for kind in KINDS), "run.json"}


def test_a_paced_run_keeps_to_its_pace_and_measures_every_answer(tmp_path: Path) -> None:
    rows = [report(t, vid, t // 30 + vid, spd=9) for t in range(5, 125, 30) for vid in range(1, 9)]
    data = prepare(tmp_path, rows)
    ran = answer(data, speed=200.0, instances=TWO)
    (out,) = tmp_path.glob("answers-*")
    answers, latency = read(out), pq.read_table(out / LATENCY_FILE)
    assert Counter(latency["kind"].to_pylist()) == {0: len(rows)}
    assert latency["latency"].to_numpy().min() > 0
    emit, time = answers[TOLL][EMIT].to_numpy(), answers[TOLL]["time"].to_numpy()
    assert (emit > time).all()
    assert ran.record["elapsed"] >= (time.max() - time.min()) / 200.0
    assert ran.record["latency"]["p50"] <= ran.record["latency"]["p99"]
    assert ran.record["latency"]["max"] == pytest.approx(latency["latency"].to_numpy().max())
    assert ran.record["checksum"] == answer(data).record["checksum"]


def test_rates_are_those_between_samples_that_are_apart() -> None:
    def sample(t: float, n: int) -> SimpleNamespace:
        totals = SimpleNamespace(records_in=n, records_out=2 * n, cpu=n / 100, instances=1)
        return SimpleNamespace(t=t, operators={"vehicles": totals})

    found = series([sample(1.0, 100), sample(3.0, 500), sample(3.1, 510), sample(3.09, 520)])
    rates = [(point["t"], point["operators"]["vehicles"]) for point in found]
    assert [t for t, _ in rates] == [1.0, 3.09]
    assert rates[0][1] == {"in": 100.0, "out": 200.0, "cpu": 1.0, "instances": 1}
    assert rates[1][1]["in"] == pytest.approx(420 / 2.09)


def test_epochs_follow_pace_and_data(tmp_path: Path) -> None:
    data = look_through(prepare(tmp_path, [report(t, 1, 3) for t in range(0, 3000, 30)]))
    assert epoch_seconds(data, 1.0) == 1 / SLOTS
    assert epoch_seconds(data, 20.0) == 4 / SLOTS
    assert epoch_seconds(data, 60.0) == 12 / SLOTS
    assert epoch_seconds(data, 0.1) == 1 / SLOTS
    assert epoch_seconds(data, 8.0) == 2 / SLOTS
    busy = round(LONG_RATE * 2971 / 100 / 60)  # replicas that make so many rows at 60 times
    assert epoch_seconds(data, 60.0, busy) == epoch_seconds(data, 60.0, 9 * busy) == 60 / SLOTS
    assert epoch_seconds(data, 60.0, busy // 2) == 30 / SLOTS
    assert epoch_seconds(data, None) == round(200_000 * 2971 / 100)
