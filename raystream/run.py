"""Running a flow to the end of its input: in this process, or on a Ray cluster.

This is the glue above all layers: it owns the clock and the choice of shell. `Flow.run` calls it.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from raystream.api.flow import Flow
from raystream.controller.members import Options
from raystream.controller.planning import make_plan
from raystream.controller.recovery import Mode
from raystream.controller.report import JobReport, Sample, Samples, totals
from raystream.dataflow.plan import Plan

if TYPE_CHECKING:
    from raystream.testing.local import LocalJob

PACED_START_DELAY = 0.2
"""Seconds between deploying a paced job and releasing its first row."""

OnProgress = Callable[[Sample], None]


def run(
    flow: Flow,
    *,
    cluster: str | None = None,
    instances: Mapping[str, int] | None = None,
    checkpoint_seconds: float = 5.0,
    cut_every: int | None = None,
    copies: int = 1,
    spares: int = 2,
    recovery: Mode = "state",
    restore_into: int = 1,
    check: bool = False,
    on_progress: OnProgress | None = None,
) -> JobReport:
    """Run a flow to the end of its input.

    Args:
        cluster: None runs in this process; `"auto"` joins the Ray cluster of this machine, or
            starts one; another value is the address of a cluster.
        instances: how many instances an operator has (1 unless given).
        checkpoint_seconds: about how often there is a cut.
        cut_every: epochs between cuts, instead.
        copies: on a cluster, how many nodes hold a checkpoint.
        spares: on a cluster, how many warm processes stand by for those that die.
        recovery: on a cluster, what takes the place of what died starts from: `"state"`, the newest
            checkpoint; for comparison `"upstream"` or `"source"`, from all that the operators
            before it, or the sources alone, have sent since the beginning.
        restore_into: on a cluster, how many instances share the range of one that died.
        check: checking mode: instances are made again from checkpoints, and an operator that then
            emits something else ends the job. It costs time and memory.
        on_progress: called about every second with the totals so far.

    Raises:
        GraphError, ConfigError, InputError: nothing was started. OperatorError: a user's function
        raised. JobError: the job failed otherwise.
    """
    plan = make_plan(
        flow,
        instances=instances,
        cut_every=cut_every,
        checkpoint_seconds=checkpoint_seconds,
        check=check,
    )
    if cluster is None:
        return _run_here(plan, on_progress)
    from raystream.actors.deploy import run_on_ray

    options = Options(copies, spares, recovery, restore_into)
    return run_on_ray(plan, address=cluster, on_progress=on_progress, options=options)


def _run_here(plan: Plan, on_progress: OnProgress | None) -> JobReport:
    from raystream.testing.local import LocalJob

    paced = plan.clock is not None and plan.clock.speed is not None
    started = time.time() + (PACED_START_DELAY if paced else 0.0)
    job = LocalJob(plan, run=uuid.uuid4().hex[:12], paced_from=started if paced else None)
    if not paced:
        started = time.time()
    samples = Samples()
    gc.disable()  # as in an instance's process: the cyclic collector runs between epochs
    try:
        _drive(job, plan, started, samples, on_progress)
    finally:
        gc.enable()
    job.finish()
    elapsed = time.time() - started
    operators = totals(job.progress())
    last = Sample(elapsed, {o.name: o for o in operators})
    if on_progress is not None:
        on_progress(last)
    return JobReport(plan.job, "local", started, elapsed, operators, samples.ended(last))


def _drive(
    job: LocalJob, plan: Plan, started: float, samples: Samples, on_progress: OnProgress | None
) -> None:
    """Step a local job to its end, at its pace."""
    clock = plan.clock
    epoch = 0
    while not job.ended:
        epoch += 1
        if clock is not None and clock.speed is not None:
            time.sleep(max(0.0, started + epoch * clock.seconds / clock.speed - time.time()))
        job.turn()
        t = time.time() - started
        if samples.due(t):
            gc.collect()
            sample = Sample(t, {o.name: o for o in totals(job.progress())})
            samples.add(sample)
            if on_progress is not None:
                on_progress(sample)
