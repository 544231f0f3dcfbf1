"""A fork reads the edges of a running job as a guest. The job runs in this process, with real
sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import raystream as rs
from raystream.actors.client import forking
from raystream.actors.client.forking import LiveEdges
from raystream.actors.control.state_routes import StateRoutes
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.errors import JobError
from raystream.local.forking import Fork, fork_plan
from raystream.security.credentials import Credentials
from raystream.testing import Collect
from tests.actors.helpers.shells import TOKEN, Shells, shells_of
from tests.flows import running, word_flow

QUICK_SECONDS = 0.01


def routes_of(shells: Shells, committed: int) -> StateRoutes:
    assignment, groups = shells.assignment, shells.plan.groups
    return StateRoutes(1, Credentials(TOKEN), groups, {}, assignment, committed, ())


@contextmanager
def edges_of(shells: Shells, flow: rs.Flow, committed: int = 0) -> Iterator[tuple[LiveEdges, Fork]]:
    plan = fork_plan(flow, shells.plan.clock, shells.plan.checkpoint_every)
    first = routes_of(shells, committed)
    edges = LiveEdges("fork/trial", plan, 0, first, lambda: routes_of(shells, committed))
    try:
        with Fork(plan, {}, 0) as fork:
            edges.begin(fork.ended_at_first)
            yield edges, fork
    finally:
        edges.stop()


def made_by(edges: LiveEdges, fork: Fork) -> list[tuple[int, Any]]:
    found = []
    while not (fork.ended or edges.finished):
        fork.give(edges.next(1.0))
        fork.turn()
        found += [(o.epoch, record) for o in fork.taken() for record in o.records]
    return found


@pytest.mark.parametrize("dies", [False, True])
def test_it_has_the_same_epochs_as_the_job_that_does_not_wait_for_it(
    dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forking, "LOOK_SECONDS", QUICK_SECONDS)
    sink, killed = Collect(), list[str]()

    def each(shells: Shells) -> None:
        if dies and shells.committed and not killed:
            killed.append(shells.kill(shells.of("rows")[0]).role.name)

    with (
        shells_of(word_flow(sink, running), instances={"rows": 2}) as shells,
        edges_of(shells, word_flow(Collect(), running)) as (edges, fork),
    ):
        assert all("fork" not in name for s in shells.shells for _, name in s.cursors.next)
        shells.start()
        shells.watch(each)
        made = made_by(edges, fork)
    assert made == sink.by_epoch()
    assert len(killed) == dies


def test_what_the_job_has_trimmed_it_cannot_have() -> None:
    flow = word_flow(Collect(), running)
    with shells_of(flow) as shells:
        shells.start()
        shells.watch()
        shells.until(lambda: shells.of("rows")[0].machine.outlets.logs[0].first > 1)
        behind = edges_of(shells, word_flow(Collect(), running))
        with behind as (edges, _), pytest.raises(JobError, match="too far behind: the job has"):
            edges.next(30.0)


def test_a_fork_that_takes_nothing_reads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "AHEAD_BYTES", 100)
    monkeypatch.setattr(forking, "LOOK_SECONDS", QUICK_SECONDS)
    sink = Collect()
    with (
        shells_of(word_flow(sink, running)) as shells,
        edges_of(shells, word_flow(Collect(), running)) as (edges, fork),
    ):
        shells.start()
        shells.until(lambda: all(s.machine.ended for s in shells.shells))  # nobody waits
        (edge,) = {e.id for e in shells.of("rows")[0].vertex.outputs}
        assert edges.reached(edge) < shells.of("rows")[0].machine.position
        assert made_by(edges, fork) == sink.by_epoch()  # nothing was trimmed yet


def test_it_ends_when_the_job_goes_over_to_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "LOOK_SECONDS", QUICK_SECONDS)
    with (
        shells_of(word_flow(Collect(), running)) as shells,
        edges_of(shells, word_flow(Collect(), running)) as (edges, _),
    ):
        version = CodeVersion(number=1, after=3, code=b"", settled=True)
        shells.assignment = replace(shells.assignment, version=2, versions=(version,))
        with pytest.raises(JobError, match="the job has gone over to other code"):
            edges.next(30.0)  # it has not begun
