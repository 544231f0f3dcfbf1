"""What a job shows to Prometheus, and that what is deployed uses nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from raystream.controller.planning.plans import make_plan
from raystream.controller.protocol.totals import (
    BOUNDS,
    WRITE_SECONDS,
    Histogram,
    OperatorTotals,
    RunningTotals,
    Totals,
)
from raystream.controller.reporting.metrics import METRICS, Point, points
from raystream.controller.reporting.report import Committed
from raystream.controller.reporting.status import Status, Worker
from raystream.dataflow.progress import Progress, marks_in, marks_of
from raystream.schema.types import KeyRange
from raystream.testing import Collect
from tests.flows import running, word_flow

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
SERIES = {name: labels for metric in METRICS for name, labels in metric.series}
WHOLE = KeyRange(0, 256)


def said(vertex: str, records: int, position: int = 1, **more: Any) -> Progress:
    return Progress(vertex=vertex, instance=0, position=position, records_in=records, **more)


def tally(totals: Totals | None = None) -> RunningTotals:
    return RunningTotals(make_plan(word_flow(Collect(), running)), totals or Totals())


def status(instances: int) -> Status:
    """A job of some instances, each with 10 records more than the one before."""
    width = 256 // instances
    workers = tuple(
        Worker(
            name=f"count/{i}",
            operator="count",
            keys=KeyRange(i * width, (i + 1) * width),
            node="a",
            pid=i,
            progress=said("count", 10 * (i + 1), seconds=1.0, busy=0.5, watermark=7),
        )
        for i in range(instances)
    )
    return Status(
        run="job-1",
        t=1.0,
        operators=("count",),
        workers=workers,
        committed=Committed(epoch=3, age=0.5, saved=2),
        keepers=("a",),
        story=(),
        totals=Totals(
            operators={"count": OperatorTotals(records_in=5)}, latency={"count": Histogram()}
        ),
        epoch_seconds=1.0,
    )


def test_totals_do_not_fall_when_an_instance_goes_on_from_a_checkpoint() -> None:
    kept = tally()
    kept.summed([said("count", 50), said("count", 60)], 1.0)
    back = kept.summed([said("count", 50), said("count", 20)], 2.0)
    assert back.operators["count"].records_in == 110
    again = tally(back)  # another controller, which has the journal
    assert again.summed([], 3.0).operators["count"].records_in == 110
    assert again.summed([said("count", 111)], 4.0).operators["count"].records_in == 111


def test_totals_are_written_where_nothing_is_committed_for_long() -> None:
    kept = tally()
    assert not kept.due(5.0) and not kept.due(5.0 + WRITE_SECONDS / 2)
    assert kept.due(5.0 + WRITE_SECONDS)
    kept.summed([], 5.0 + WRITE_SECONDS)
    assert not kept.due(6.0 + WRITE_SECONDS)


def test_latency_is_from_the_last_source_to_the_sink_and_counts_an_epoch_once() -> None:
    kept = tally()
    source, sink = (v.name for v in kept_plan_ends())
    halves = KeyRange(0, 128), KeyRange(128, 256)
    for keys, at in zip(halves, (10.0, 10.2), strict=True):
        kept.heard(keys, said(source, 0, marks=marks_of([(1, at), (2, at + 1)])), 12.0)
    for _ in range(2):  # a sink says it again and again
        kept.heard(WHOLE, said(sink, 0, marks=marks_of([(1, 10.3), (2, 12.2)])), 12.0)
    assert not kept.summed([], 12.5).latency  # a source may be heard later
    latency = kept.summed([], 13.5).latency[sink]
    assert latency.count == 2 and latency.seconds == pytest.approx(0.1 + 1.0)
    kept.heard(halves[0], said(source, 0, marks=marks_of([(1, 50.0)])), 51.0)  # its successor
    assert kept.summed([], 60.0).latency[sink].count == 2
    assert kept.totals.epochs.count == 2 and kept.totals.epochs.seconds == pytest.approx(2.0)


def kept_plan_ends() -> tuple[Any, Any]:
    vertices = make_plan(word_flow(Collect(), running)).vertices
    return vertices[0], vertices[-1]


def test_histograms() -> None:
    found = Histogram().plus(0.001).plus(0.002, 2).plus(1e9)
    assert found.upto()[:2] == [("0.001", 1), ("0.0025", 3)] and found.upto()[-1] == ("+Inf", 4)
    assert found.quantile(0.5) == pytest.approx(0.001 + 0.0015 / 2)
    assert found.quantile(1.0) == BOUNDS[-1] and Histogram().quantile(0.5) is None
    assert found.since(Histogram().plus(0.001)).count == 3
    assert list(marks_in(marks_of([(7, 1.5)]))) == [(7, 1.5)] and marks_of([]) == b""


def test_series_have_the_labels_of_their_metric_and_are_bounded() -> None:
    one, many = ([*points("job", status(n), None)] for n in (1, 128))
    for point in many:
        assert tuple(point.labels) == SERIES[point.name], point
    assert len(one) == len(many) == len({(p.name, *p.labels.values()) for p in many})
    value = {(p.name, *list(p.labels.values())[2:]): p.value for p in many}
    assert value["raystream_instances", "count"] == 128
    assert value["raystream_records_in_total", "count"] == 5
    assert value["raystream_skew", "count"] == pytest.approx(1280 / 645)


# ------------------------------------------------------------------------- what is deployed


def expressions() -> list[str]:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    found = [t["expr"] for panel in board["panels"] for t in panel.get("targets", [])]
    return found + [r["expr"] for group in rules["groups"] for r in group["rules"]]


def test_dashboard_and_alerts_use_metrics_that_exist_with_labels_that_they_have() -> None:
    assert len(expressions()) > 15
    used = set()
    for expression in expressions():
        names = re.findall(r"\bray_(raystream_\w+)", expression)
        assert names and set(names) <= SERIES.keys(), expression
        used |= set(names)
        known = {label for name in names for label in SERIES[name]}
        for labels in re.findall(r"(?:by|without) \(([^)]*)\)", expression):
            assert {x.strip() for x in labels.split(",")} <= known, expression
        for label in re.findall(r"[{,](\w+)(?:=~|!~|!=|=)", expression):
            assert label in known, expression
    assert len(used) > 15


def test_every_metric_is_documented_with_its_labels() -> None:
    text = (ROOT / "docs/reference/metrics.md").read_text()
    rows = {m[1]: m[2] for m in re.finditer(r"^\| `(\w+)` \| (.*?) \|", text, re.M)}
    assert rows.keys() == {m.name for m in METRICS}
    for metric in METRICS:
        assert rows[metric.name] == ", ".join(f"`{x}`" for x in metric.labels[2:]), metric.name
        assert metric.kind in text


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool here")
def test_prometheus_takes_the_rules_and_they_ring(tmp_path: Path) -> None:
    """Its own checker, and a made-up day in which every alert rings."""
    test = yaml.safe_load((Path(__file__).parent / "alerts_test.yaml").read_text())
    test["rule_files"] = ["rules.yaml"]
    names = {c["alertname"] for t in test["tests"] for c in t["alert_rule_test"]}
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    assert names == {r["alert"] for group in rules["groups"] for r in group["rules"]}
    for group in rules["groups"]:  # their words are for people
        group["rules"] = [
            {k: v for k, v in r.items() if k != "annotations"} for r in group["rules"]
        ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    for words in (["check", "rules", DEPLOY / "alerts.yaml"], ["test", "rules", "test.yaml"]):
        done = subprocess.run(
            ["promtool", *map(str, words)],
            check=False,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_point_is_what_prometheus_reads() -> None:
    first = next(iter(points("job", status(1), None)))
    assert isinstance(first, Point) and first.labels["job"] == "job"
