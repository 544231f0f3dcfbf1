"""Whole jobs that are lost and go on from a saved checkpoint: their files hold each record once."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.plan import Plan
from raystream.local.job import LocalJob
from raystream.state.images.image import Image
from tests.dataflow.random_ranges import random_ranges
from tests.examples import examples
from tests.io.kinds import Counted
from tests.io.test_in_flows import Event, flow

EVENTS = [Event(t, t * 7 % 5) for t in range(120)]


def planned(sink: Any, rng: random.Random) -> Plan:
    plan = make_plan(flow(rs.io.iterable(EVENTS, Event, splits=3), sink), checkpoint_every=2)
    for vertex in plan.ranges:
        plan.ranges[vertex] = random_ranges(rng, plan.groups)
    return plan


@examples(6)
@given(st.integers(0, 2**32), st.sampled_from(["parquet", "csv"]))
def test_a_job_that_is_lost_and_goes_on_elsewhere_writes_exactly_once(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        sink = getattr(rs.io, kind)(Path(name))
        saved: dict[str, list[list[Image]]] = {}
        saver = ""
        for life in range(rng.randrange(4)):
            job = LocalJob(planned(sink, rng), run=f"run-{life}", resume=saved, resumed=saver)
            at = job.committed
            while not job.ended and rng.random() < 0.85:
                job.turn()
                at += 1
                if job.committed == at and rng.random() < 0.5:
                    saved, saver = job.checkpoint(at), f"run-{life}"
        LocalJob(planned(sink, rng), run="last", resume=saved, resumed=saver).run()
        found = [tuple(r) for b in rs.io.read_parts(name, Counted) for r in b.records()]
        for key in range(5):
            assert [n for k, n in found if k == key] == list(range(1, 25))
