"""A node says that it will end: a job on real Ray leaves it before it does."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import raystream as rs
from raystream.actors.cluster.spot import Notice, drain_node
from raystream.controller.elastic.pool import OPERATOR_NODE
from tests.actors.helpers.heads import Head, started_node
from tests.actors.jobs.test_ray_moves import LINES, Held, parts_of
from tests.flows import running, split
from tests.gates import until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]

INSTANCE = "i-0123"
LEFT_SECONDS = 120.0


def nodes() -> set[str]:
    """The nodes for operators that live."""
    listed: Any = ray.nodes
    return {n["NodeID"] for n in listed() if n["Alive"] and n["Resources"].get(OPERATOR_NODE)}


def joined() -> None:
    """Wait until there is such a node."""
    until(nodes)


@dataclass
class Taken:
    """Gives notice once a cut is committed; the input ends when the node is gone."""

    gcs: str
    gate: Path
    node: str = ""

    def __call__(self, sample: Any) -> None:
        if sample.committed.epoch and not self.node:
            notice = Notice("terminate", time.time() + LEFT_SECONDS)
            self.node = drain_node(self.gcs, INSTANCE, "", notice)
        elif self.node and self.node not in nodes():
            self.gate.touch()


def test_a_node_that_is_taken_away_is_left_by_hand_over(tmp_path: Path) -> None:
    gcs, gate = ray.get_runtime_context().gcs_address, tmp_path / "gate"
    flow = rs.Flow("taken")
    source = flow.source(Held(gate), epochs=rs.by_time(seconds=10), name="lines")
    counts = source.through(split).through(running, name="count")
    counts.to(rs.io.parquet(tmp_path / "out"), name="files")
    offers = f"--resources={json.dumps({OPERATOR_NODE: 1})}"
    env = {"RAY_CLOUD_INSTANCE_ID": INSTANCE}
    taken = Taken(gcs, gate)
    with started_node(Head(gcs, "", psutil.Process(), tmp_path), offers, env=env):
        joined()
        report = flow.run(cluster="auto", on_progress=taken, checkpoint_seconds=0.5)
    assert taken.node and not nodes()
    (moved,) = report.moved
    assert (moved.operator, moved.gone, moved.failed) == ("count", ("count/0",), "")
    assert (moved.mode, moved.because) == ("handover", "it is about to be taken away")
    assert moved.nbytes and not report.recoveries
    words = [f"{side}{i % 7}" for side in "ab" for i in range(LINES)]
    words += [f"w{i % 5}" for i in range(LINES)] * 2
    expected = [(w, n) for w in sorted(set(words)) for n in range(1, words.count(w) + 1)]
    assert sorted(parts_of(tmp_path / "out")) == expected
