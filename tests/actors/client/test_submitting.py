"""Which flows are refused before a job begins, and how it is followed. No Ray is started here."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import AuthenticationError

import raystream as rs
from raystream.actors.client import submitting
from raystream.controller.options import Options
from raystream.controller.reporting.report import Sample
from raystream.errors import ConfigError, Stopped
from raystream.run import Followed
from raystream.testing import Collect
from tests.flows import Line, Rows, lines, running, split


def test_every_process_of_a_job_imports_only_what_it_needs_to_start() -> None:
    heavy = "{'numba', 'pandas', 'pyarrow.compute', 'ray.autoscaler.sdk'}"
    code = (
        f"import sys, raystream.actors.client.submitting; print(sorted({heavy} & set(sys.modules)))"
    )
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_bounds_of_nobody_are_refused_before_anything_is_started() -> None:
    flow = rs.Flow("bounded")
    source = flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=30), name="lines")
    source.through(split).through(running, name="count").to(Collect(), name="out")
    with pytest.raises(ConfigError, match="no operator 'cuont'") as caught:
        flow.run(cluster="127.0.0.1:1", policy=rs.CpuThreshold(), bounds={"cuont": (1, 2)})
    assert "There are lines, count, out" in str(caught.value)


@pytest.mark.parametrize(("given", "begins"), [({}, 3), ({"count": 4}, 4), ({"count": 1}, 1)])
def test_an_operator_begins_with_the_least_of_its_bounds_unless_more_is_said(
    given: dict[str, int], begins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = rs.Flow("bounded")
    source = flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=30), name="lines")
    source.through(split).through(running, name="count").to(Collect(), name="out")
    ran: list[Any] = []
    report = SimpleNamespace(operators=(), operator=lambda _name: SimpleNamespace(by_port={}))
    monkeypatch.setattr(Followed, "run", lambda _self, plan: ran.append(plan) or report)
    bounds = {"count": (3, 5), "lines": (1, 1)}
    flow.run(cluster="127.0.0.1:1", instances=given, policy=rs.CpuThreshold(), bounds=bounds)
    (plan,) = ran
    assert {v.name: len(plan.ranges[v.id]) for v in plan.vertices} == {
        "lines": 1,
        "count": begins,
        "out": 1,
    }


class Hasty:
    """A policy that looks at reports of no time."""

    interval = 0.0

    def decide(self, loads: object) -> list[rs.Target]:
        return []


@pytest.mark.parametrize("policy", ["cpu", rs.CpuThreshold, Hasty(), object()])
def test_what_is_no_policy_is_refused_before_anything_is_started(policy: Any) -> None:
    flow = rs.Flow("judged")
    flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=30)).to(Collect())
    with pytest.raises(
        ConfigError, match=r"policy=.* is none|Hasty\(interval=0.0\): must be above"
    ):
        flow.run(cluster="127.0.0.1:1", policy=policy)


@pytest.mark.parametrize(
    ("policy", "pool", "taken"),
    [
        ("auto", None, None),
        ("auto", 2, rs.CpuThreshold()),
        (None, 2, None),
        (rs.RateBased(), 2, rs.RateBased()),
    ],
)
def test_a_pool_scales_by_itself_unless_it_is_not_to(
    policy: Any, pool: int | None, taken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Options] = []

    def refuse(plan: object, *, options: Options, **told: object) -> None:
        given.append(options)
        raise Stopped("enough")

    monkeypatch.setattr(submitting, "run_on_ray", refuse)
    flow = rs.Flow("pooled")
    flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=30)).to(Collect())
    with pytest.raises(Stopped):
        flow.run(cluster="auto", policy=policy, pool=pool)
    assert (given[0].policy, given[0].pool) == (taken, pool and rs.PoolOptions(pool))


def test_a_controller_that_is_late_is_no_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has begun again looks for its journal before it answers."""
    waits = {
        "result": iter([([], ["result"]), ([], ["result"]), (["result"], [])]),
        "samples": iter([([], ["samples"]), (["samples"], [])]),
    }
    sample = Sample(1.0, {}, {}, None)
    answers = iter([[sample], SimpleNamespace(samples=(sample,))])
    looks: list[None] = []
    head: Any = SimpleNamespace(look=lambda: looks.append(None))
    code: Any = SimpleNamespace(look=lambda: None)
    monkeypatch.setattr(submitting, "SAMPLES_SECONDS", -1.0)
    monkeypatch.setattr(ray, "wait", lambda calls, **_: next(waits[calls[0]]))
    monkeypatch.setattr(ray, "get", lambda _: next(answers))
    controller = SimpleNamespace(samples=SimpleNamespace(remote=lambda since: "samples"))
    shown: list[Sample] = []
    report: Any = submitting._follow(controller, "result", shown.append, head, code)
    assert len(looks) == 3, "whether the cluster is still there is asked whenever one waits"
    assert report.samples == (sample,) and shown == [sample, sample]


def ending(monkeypatch: pytest.MonkeyPatch, wait: Any, processes: Any) -> list[Any]:
    """Who is killed when a run ends, as Ray answers like this; the controller is None."""
    killed: list[Any] = []
    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "kill", lambda _: killed.append(None))
    monkeypatch.setattr(submitting, "processes_of", processes)
    monkeypatch.setattr(submitting, "kill", lambda run, process: killed.append(process))
    return killed


CONTROLLER = SimpleNamespace(cancel=SimpleNamespace(remote=lambda: None))


def test_a_second_ctrl_c_ends_the_wait_and_not_the_killing(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(calls: object, timeout: float) -> tuple[list[str], list[str]]:
        if timeout:
            raise KeyboardInterrupt
        return [], ["result"]

    killed = ending(monkeypatch, wait, lambda run: ["count/0"])
    with pytest.raises(KeyboardInterrupt):
        submitting._end("run", CONTROLLER, "result")
    assert killed == [None, "count/0"]


def test_to_end_a_job_whose_cluster_is_gone_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hide why this process ends: an interrupt, say."""

    def gone(run: str) -> list[str]:
        raise AuthenticationError("WrongClusterID")

    killed = ending(monkeypatch, lambda calls, timeout: (["result"], []), gone)
    submitting._end("run", CONTROLLER, "result")
    assert killed == [None]
