"""What `raystream plan` knows of a flow, as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console

import raystream as rs
from raystream.api.epochs import Epochs
from raystream.cli.plan import UNLIMITED, describe, tree
from raystream.testing import Collect
from tests import flows


def test_plan_reads_nothing() -> None:
    class Untouched(flows.Rows):
        def splits(self) -> Any:
            raise AssertionError("the source was asked")

    flow = rs.Flow("quiet")
    flow.source(Untouched(flows.Line, ())).through(flows.split).to(Collect())
    assert describe(flow)["vertices"][0]["epochs"] == "by arrival, every 0.05 s"


class Stamped(NamedTuple):
    ts: int


@pytest.mark.parametrize(
    ("epochs", "shown"),
    [
        (None, "no watermark: Stamped has no integer 'time'"),
        (rs.by_arrival("ts"), "watermark by ts"),
        (rs.by_arrival("ts", idle="1m"), "watermark by ts, splits idle after 60 s"),
    ],
)
def test_plan_tells_whether_there_is_a_watermark(epochs: Epochs | None, shown: str) -> None:
    flow = rs.Flow("stamped")
    flow.source(rs.io.iterable([], Stamped), epochs=epochs).to(rs.io.console())
    assert describe(flow)["vertices"][0]["epochs"] == f"by arrival, every 0.05 s, {shown}"


def test_plan_tells_windows_timers_and_late_streams() -> None:
    words = describe(flows.word_flow(Collect(), flows.SlidingCount(), late=Collect()))
    assert words["vertices"][1]["window"] == "sliding 30 s, every 10 s by time"
    assert [e["late"] for e in words["edges"] if e["from"] == "SlidingCount"] == [True, False]
    ledger = describe(flows.ledger_flow(Collect()))
    assert ledger["vertices"][2]["state"]["timer"] == "due"
    assert all(e["merged_in_order_of_emission"] for e in ledger["edges"] if e["to"] == "collect")


@pytest.mark.parametrize(
    ("epochs", "visible", "shown"),
    [
        (rs.by_time(), None, "visible by epoch"),
        (rs.by_time(), "epoch", "visible by epoch"),
        (rs.by_arrival(), "epoch", "visible by epoch"),
        (rs.by_arrival(), None, "visible by epoch, with a durable tier by saved checkpoint"),
        (
            rs.by_time(),
            "saved",
            "visible when a checkpoint is committed, with a durable tier when it is saved",
        ),
    ],
)
def test_plan_tells_when_a_database_shows_its_rows(
    epochs: Epochs, visible: Any, shown: str, tmp_path: Path
) -> None:
    flow = rs.Flow("visible")
    stream = flow.source(rs.io.iterable([], flows.Word), epochs=epochs)
    stream.to(rs.io.sqlite(tmp_path / "words.db", table="words", visible=visible))
    described = describe(flow)
    assert described["vertices"][1]["visible"] == shown
    assert shown in drawn(described)


def test_plan_tells_when_other_sinks_show_their_records(tmp_path: Path) -> None:
    flow = rs.Flow("visible")
    stream = flow.source(rs.io.iterable([], flows.Word))
    for sink in (rs.io.csv(tmp_path / "words"), rs.io.console(), Collect()):
        stream.to(sink)
    files, console, own = (v["visible"] for v in describe(flow)["vertices"][1:])
    assert files.startswith("visible when a checkpoint is committed")
    assert console.startswith("at least once")
    assert own is None


def test_plan_tells_the_event_time_of_a_stream() -> None:
    flow = rs.Flow("timed", time_unit="ms")
    lines = flow.source(rs.io.iterable([], flows.Line), name="lines")
    words = lines.through(flows.split)
    for timed in (words, words.timed("time", disorder=5), words.timed("time", behind="1m")):
        timed.through(flows.running).to(Collect())
    described = describe(flow)
    edges = [e for e in described["edges"] if e["from"] == "lines"]
    shown = ["Word.time, records up to 5 s out of order", "that of lines, 60 s behind"]
    assert [e["event_time"] for e in edges] == [None, *shown]
    assert all(f", event time {words}" in drawn(described) for words in shown)


def drawn(described: dict[str, Any]) -> str:
    console = Console(width=UNLIMITED)
    with console.capture() as capture:
        console.print(tree(described))
    return capture.get()
