"""Sources without rows are at their end, and the job ends, goes on and is resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.local.job import LocalJob
from raystream.testing import Collect, run_local
from tests.dataflow.sources.ticks import Tick, echo
from tests.flows import Rows


def pairs(sink: Any, *sources: tuple[tuple[Tick, ...], ...], **by_time: Any) -> rs.Flow:
    flow = rs.Flow("pairs", key_groups=8)
    for i, parts in enumerate(sources):
        epochs = rs.by_time(seconds=2, **by_time)
        ticks = flow.source(Rows(Tick, parts, 3), epochs=epochs, name=f"ticks-{i}")
        ticks.through(echo, name=f"echo-{i}").to(sink if not i else Collect())
    return flow


SOME = ((Tick(7, 1), Tick(9, 2)), ())


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_source_without_rows_is_at_its_end(seed: int | None) -> None:
    told = []
    for sources in ((SOME,), (SOME, ((),)), (SOME, ((), ()), ((),))):
        sink = Collect()
        run_local(pairs(sink, *sources), seed=seed, instances={"ticks-0": 2}, checkpoint_every=1)
        told.append(sink.by_epoch())
    assert told == [[(1, Tick(7, 1)), (2, Tick(9, 2))]] * 3


@pytest.mark.parametrize("by_time", [{}, {"origin": 5}])
def test_a_job_without_rows_ends(by_time: dict[str, Any]) -> None:
    sink = Collect()
    run_local(pairs(sink, ((),), ((), ()), **by_time), instances={"ticks-1": 2}, check=True)
    assert sink.records() == []


@pytest.mark.parametrize("some", [SOME, ((),)])
def test_a_job_with_a_source_without_rows_goes_on_from_any_cut(some: Any) -> None:
    """From one on the way, and from its end."""
    sink = Collect()
    plan = make_plan(pairs(sink, some, ((),)), checkpoint_every=1)
    job, stored = LocalJob(plan), [{}]
    while not job.ended:
        job.turn()
        checkpoint = max(m.position for m in job.machines)
        stored.append(
            {plan.vertices[v].name: [[i] for i in f] for v, f in job.stored(checkpoint).items()}
        )
    job.finish()
    whole = sink.by_epoch()
    assert len(whole) == len(some[0])
    for checkpoint, images in enumerate(stored):
        later = Collect()
        LocalJob(make_plan(pairs(later, some, ((),)), checkpoint_every=1), resume=images).run()
        assert later.by_epoch() == [(e, r) for e, r in whole if e > checkpoint]


def test_a_saved_job_with_a_source_without_rows_is_resumed(tmp_path: Path) -> None:
    """From a cut on the way; and from its end, after which there is nothing more."""

    def run(**options: Any) -> list[Any]:
        sink = Collect()
        pairs(sink, SOME, ((),)).run(durable=tmp_path, checkpoint_every=1, **options)
        return sink.by_epoch()

    whole = run()
    assert len(whole) == 2
    max(tmp_path.glob("*/cuts/*")).unlink()
    assert run(resume=True) == whole[1:]
    assert run(resume=True) == []
