"""Checking mode in one process: sound flows run as ever, the others are named."""

from __future__ import annotations

from typing import Any

import pytest

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.errors import JobError
from raystream.local.job import LocalJob
from raystream.testing import Collect, run_local
from tests import unsound
from tests.dataflow.shapes import SHAPES
from tests.dataflow.test_l1 import counted, written
from tests.flows import Line, Rows, lines, running, split, word_flow


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_sound_flows_are_not_disturbed(name: str, seed: int | None) -> None:
    found = []
    for check in (False, True):
        sink = Collect()
        flow = SHAPES[name].build(sink, 8, 1)
        counts = {v.name: 1 + v.id % 3 for v in make_plan(flow).vertices}
        reports = run_local(flow, instances=counts, seed=seed, checkpoint_every=4, check=check)
        found.append((written(sink), [counted(r) for r in reports]))
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("checkpoint_every", [1, 13, 1000])
@pytest.mark.parametrize("name", unsound.FLOWS)
def test_others_are_named(name: str, checkpoint_every: int, seed: int | None) -> None:
    with pytest.raises(JobError) as caught:
        run_local(
            unsound.FLOWS[name](Collect()), checkpoint_every=checkpoint_every, seed=seed, check=True
        )
    assert caught.value.message.startswith(f"{name} is not deterministic: ")


def test_they_run_to_their_end_without_it() -> None:
    for build in unsound.FLOWS.values():
        sink = Collect()
        run_local(build(sink))
        assert sink.records()


def test_nothing_is_committed_that_was_not_compared() -> None:
    sink = Collect()
    commits: list[int] = []
    sink.commit = commits.append  # type: ignore[method-assign]
    with pytest.raises(JobError, match="by_chance is not deterministic"):
        run_local(word_flow(sink, unsound.by_chance), checkpoint_every=20, check=True)
    assert commits == []
    assert sink.records()


@pytest.mark.parametrize("seed", [None, *range(6)])
def test_sources_cut_by_arrival_are_cut_where_they_were(seed: int | None) -> None:
    def build(sink: Collect, source: Any) -> rs.Flow:
        flow = rs.Flow("arriving")
        flow.source(source, epochs=rs.by_arrival()).through(split).through(running).to(sink)
        return flow

    found = []
    for check in (False, True):
        sink = Collect()
        counts = {"rows": 2, "running": 2}
        flow = build(sink, Rows(Line, lines(3), batch=4))
        run_local(flow, instances=counts, seed=seed, checkpoint_every=3, check=check)
        found.append(sink.by_epoch())
    assert found[0] == found[1]
    with pytest.raises(JobError, match=r"grows \(or split, which runs inside it\) is"):
        run_local(
            build(Collect(), unsound.Grows(Line, lines(3), batch=4)),
            seed=seed,
            checkpoint_every=3,
            check=True,
        )


@pytest.mark.parametrize("name", ["sessions", "ledger", "diamond, keyed"])
def test_a_job_that_goes_on_from_a_checkpoint_is_checked_from_there(name: str) -> None:
    whole, parts = Collect(), Collect()
    run_local(SHAPES[name].build(whole, 5, 1))
    job = LocalJob(make_plan(SHAPES[name].build(parts, 5, 1), checkpoint_every=4, check=True))
    for _ in range(7):
        job.turn()
    again = make_plan(SHAPES[name].build(parts, 5, 1), checkpoint_every=4, check=True)
    LocalJob(again, resume=job.checkpoint(7)).run()
    assert written(parts) == written(whole)


def test_logs_are_kept_from_cut_to_cut_and_no_longer() -> None:
    job = LocalJob(make_plan(word_flow(Collect(), running), checkpoint_every=10, check=True))
    for turn in range(1, 36):
        job.turn()
        for machine in job.machines:
            for log in machine.outlets.logs.values():
                assert log.first == turn // 10 * 10 + 1
    assert all(min(i.checksums.sums) == 31 for i in job.instances if i.checksums is not None)
