"""Running a flow to the end of its input: in this process, or on a Ray cluster.

This is the glue above all layers: it owns the clock and the choice of shell. `Flow.run` calls it.
"""

from __future__ import annotations

import gc
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from raystream.api.flow import Flow
from raystream.controller.detector import bounds_in
from raystream.controller.members import Options
from raystream.controller.planning import make_plan
from raystream.controller.policy import CpuThreshold, Policy
from raystream.controller.pool import PoolOptions
from raystream.controller.recovery import Mode
from raystream.controller.report import JobReport, Sample, Samples, totals
from raystream.controller.resuming import (
    Beginning,
    Resumes,
    beginning,
    durably,
    images_of,
    save,
)
from raystream.dataflow.plan import Plan
from raystream.errors import ConfigError, JobError, LostError, OvertakenError, exited
from raystream.io.saves import Saves
from raystream.io.store import open_store

if TYPE_CHECKING:
    from raystream.testing.local import LocalJob

PACED_START_DELAY = 0.2
"""Seconds between deploying a paced job and releasing its first row."""

OnProgress = Callable[[Sample], None]
OnNote = Callable[[str], None]


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
    policy: Policy | Literal["auto"] | None = "auto",
    bounds: Mapping[str, tuple[int, int]] | None = None,
    pool: PoolOptions | int | None = None,
    check: bool = False,
    rows: Mapping[str, int] | None = None,
    durable: str | os.PathLike[str] | None = None,
    resume: bool | None = None,
    on_progress: OnProgress | None = None,
    on_note: OnNote | None = None,
) -> JobReport:
    """Run a flow to the end of its input.

    Args:
        cluster: None runs in this process; `"auto"` joins the Ray cluster of this machine, or
            starts one; another value is the address of a cluster.
        instances: how many instances an operator has (the least of its bounds, or 1, unless given).
        checkpoint_seconds: about how often there is a cut.
        cut_every: epochs between cuts, instead.
        copies: on a cluster, how many nodes hold a checkpoint.
        spares: on a cluster, how many warm processes stand by for those that die.
        recovery: on a cluster, what takes the place of what died starts from: `"state"`, the newest
            checkpoint; for comparison `"upstream"` or `"source"`, from all that the operators
            before it, or the sources alone, have sent since the beginning.
        restore_into: on a cluster, how many instances share the range of one that died.
        policy: on a cluster, what decides by itself how many instances operators have, and which
            ranges: `rs.CpuThreshold()` splits what uses more than 70 % of its CPU. None leaves
            that to `instances` and to people. `"auto"`: None without a pool, with one
            `rs.CpuThreshold()`.
        bounds: by operator how few and how many instances the policy may give it.
        pool: on a cluster with Ray's autoscaler, how many nodes are kept beside those in use, or
            `rs.PoolOptions`.
        check: checking mode: instances are made again from checkpoints, and an operator that then
            emits something else ends the job. It costs time and memory.
        rows: how many rows of state a compiled or batch operator is expected to keep. Room for them
            is made before the first record comes. Without it a job whose state grows quickly may be
            late at first, where new memory comes slowly.
        durable: a folder or s3://bucket/prefix to which committed cuts are copied: on a cluster in
            the background, in this process while it waits. When all copies of a checkpoint in a
            cluster are lost the job goes on from there.
        resume: with `durable`, True goes on from the newest whole cut there, with any number of
            instances (where nothing was saved: from the beginning); False begins anew although
            there are cuts, which the new ones supersede. Unless given, such cuts are refused.
        on_progress: called about every second with the totals so far.
        on_note: called with what there is to say of saved cuts, which the report has, too; and with
            where the Ray is that was started for this run.

    Raises:
        GraphError, ConfigError, InputError: nothing was started. OperatorError: a user's function
        raised. StateError: the job cannot go on from the saved cut. Stopped: somebody stopped the
        job. JobError: the job failed otherwise.
    """
    if durable is None and resume is not None:
        raise ConfigError("resume without durable: say where the cuts are")
    options = _options(cluster, copies, spares, recovery, restore_into, policy, bounds, pool)
    least = {name: few for name, (few, _) in (bounds or {}).items() if few > 1}
    with _alone(flow.name, cluster):
        saves = None if durable is None else Saves(open_store(durable), flow.name)
        known = None if saves is None or resume is False else saves.manifests()
        begin = Beginning(None, ()) if saves is None else beginning(saves, resume)
        plan = make_plan(
            flow,
            instances=least | {**(instances or {})},
            cut_every=cut_every,
            checkpoint_seconds=checkpoint_seconds,
            check=check,
            rows=rows,
            saved=begin.saved,
        )
        bounds_in(plan, bounds or {})  # a controller would say it too, but only on the cluster
        follow = Follow(cluster, options, saves, on_progress, on_note or _ignore)
        if saves is None:
            return follow.run(plan)
        return _run_durably(follow, plan, saves, begin, known)


@contextmanager
def _alone(job: str, address: str | None) -> Iterator[None]:
    """Be connected to the cluster, if there is one, where no run of the job may be running.

    Raises:
        ConfigError: one is.
    """
    if address is None:
        yield
        return
    from raystream.actors.deploy import joined
    from raystream.actors.stopping import refuse_running

    with joined(address) as there:
        if there:
            refuse_running(job)
        yield


class Follow(NamedTuple):
    """Where a plan is run, and how it is followed. address: of a cluster; None for this process."""

    address: str | None
    options: Options
    saves: Saves | None
    on_progress: OnProgress | None
    on_note: OnNote

    def name(self, job: str) -> str:
        """A name for the next run."""
        if self.address is None:
            return _name_here()
        from raystream.actors.naming import new_run

        return new_run(job)

    def ready(self, plan: Plan) -> AbstractContextManager[None]:
        """Be where a plan can be run that is to save its cuts; or find out that it cannot."""
        if self.address is None:
            return nullcontext()
        from raystream.actors.deploy import ready

        return ready(plan, self.address, self.options, durable=True, on_note=self.on_note)

    def run(self, plan: Plan) -> JobReport:
        """Run it to its end."""
        if self.address is None:
            return _run_here(plan, self.saves, self.on_progress)
        from raystream.actors.deploy import run_on_ray

        return run_on_ray(
            plan,
            address=self.address,
            on_progress=self.on_progress,
            on_note=self.on_note,
            options=self.options,
        )


def _options(
    cluster: str | None,
    copies: int,
    spares: int,
    recovery: Mode,
    restore_into: int,
    policy: Policy | Literal["auto"] | None,
    bounds: Mapping[str, tuple[int, int]] | None,
    pool: PoolOptions | int | None,
) -> Options:
    if policy == "auto":
        policy = None if pool is None else CpuThreshold()
    if policy is not None and not _is_policy(policy):
        raise ConfigError(
            f"policy={policy!r} is none: it has no `decide`, or no `interval` of seconds",
            hint="For example policy=rs.CpuThreshold().",
        )
    if cluster is None and (policy is not None or bounds or pool is not None):
        raise ConfigError(
            "policy, bounds and pool need a cluster: in this process nothing scales",
            hint='Add cluster="auto", or leave --local away.',
        )
    if cluster is None:
        _refuse_here(copies=copies, spares=spares, recovery=recovery, restore_into=restore_into)
    if isinstance(pool, int):
        pool = PoolOptions(pool)
    if pool is not None and (
        pool.nodes_max < 1 or min(pool.spare, pool.idle_seconds, pool.spot_seconds) < 0
    ):
        raise ConfigError(
            f"{pool}: no negative numbers of nodes or seconds, and at least one node in all"
        )
    if bounds and policy is None:
        raise ConfigError(
            "bounds without a policy: nothing changes numbers of instances",
            hint="Add policy=rs.CpuThreshold().",
        )
    return Options(copies, spares, recovery, restore_into, policy, bounds, pool)


def _is_policy(given: object) -> bool:
    """Whether this is a policy, as far as can be seen before it is asked."""
    seconds = getattr(given, "interval", None)
    timed = isinstance(seconds, int | float) and seconds > 0
    return timed and callable(getattr(given, "decide", None)) and not isinstance(given, type)


def _refuse_here(**options: object) -> None:
    """Refuse what would be without effect in this process, where nothing but all of it can die."""
    given = [name for name, value in options.items() if value != Options._field_defaults[name]]
    if given:
        raise ConfigError(
            f"{given[0]} needs a cluster: in this process there are no keepers and no spares",
            hint='Add cluster="auto", or leave --local away. What is to outlive the process goes to'
            " durable (--durable).",
        )


def _run_durably(
    follow: Follow, plan: Plan, saves: Saves, begin: Beginning, known: Collection[str] | None
) -> JobReport:
    """Run a plan and save its cuts; and again from one of them when the cluster lost its own.

    Args:
        known: see `durably`.
    """
    resumes = Resumes(saves)
    notes: tuple[str, ...] = ()
    while True:
        for note in begin.notes:
            follow.on_note(note)
        notes += begin.notes
        try:
            with follow.ready(plan):  # what cannot run is not to end the saves of what does
                plan = durably(plan, saves, follow.name(plan.job), begin.saved, known)
                report = follow.run(plan)
        except LostError as error:
            known = saves.manifests()
            begin = resumes.after(error, plan)
        else:
            return replace(report, notes=notes)


def _ignore(note: str) -> None:
    """Nobody wants to hear it: it is in the report."""


def _name_here() -> str:
    return uuid.uuid4().hex[:12]


class _Saving:
    """Saves the cuts of a run in this process, which waits for it. saved: the newest; unsaved: why
    the last one that was to be saved was not, if it was not."""

    def __init__(self, plan: Plan, saves: Saves | None) -> None:
        self.plan = plan
        self.saves = saves
        self.saved = self._tried = plan.begins
        self.unsaved = ""

    def after(self, job: LocalJob) -> None:
        """Save the newest cut, if that was not done."""
        cut = job.committed
        if self.saves is None or cut <= self._tried:
            return
        self._tried = cut
        try:
            save(self.plan, self.saves, cut, job.stored(cut))
        except OvertakenError:
            raise
        except JobError as error:
            self.unsaved = f"cut {cut} was not saved in {self.saves}: {error}"
        else:
            self.saved, self.unsaved = cut, ""
            job.show(cut)


def _run_here(plan: Plan, saves: Saves | None, on_progress: OnProgress | None) -> JobReport:
    from raystream.dataflow.warming import warm
    from raystream.testing.local import LocalJob

    clock = plan.clock
    paced = clock is not None and clock.speed is not None
    for _ in warm(plan) if paced else ():
        pass  # as a process of a cluster: what is compiled now makes no record late
    started = time.time()
    if clock is not None and clock.speed is not None:
        started += PACED_START_DELAY - plan.begins * clock.seconds / clock.speed
    job = LocalJob(
        plan,
        run=_name_here() if plan.durable is None else plan.durable.run,
        paced_from=started if paced else None,
        resume=None if saves is None else images_of(plan, saves),
    )
    saving = _Saving(plan, saves)
    if not paced:
        started = time.time()
    samples = Samples()
    gc.disable()  # as in an instance's process: the cyclic collector runs between epochs, and does
    gc.freeze()  # not look at what was there before
    try:
        _drive(job, plan, started, samples, saving, on_progress)
    except SystemExit as error:
        raise exited(error) from None
    finally:
        gc.unfreeze()
        gc.enable()
    job.finish()
    elapsed = time.time() - started
    operators = totals(job.progress())
    last = Sample(elapsed, {o.name: o for o in operators})
    if on_progress is not None:
        on_progress(last)
    return JobReport(
        plan.job,
        "local",
        started,
        elapsed,
        operators,
        samples.ended(last),
        saved=saving.saved,
        unsaved=saving.unsaved,
    )


def _drive(
    job: LocalJob,
    plan: Plan,
    started: float,
    samples: Samples,
    saving: _Saving,
    on_progress: OnProgress | None,
) -> None:
    """Step a local job to its end, at its pace."""
    clock = plan.clock
    epoch = plan.begins
    while not job.ended:
        epoch += 1
        if clock is not None and clock.speed is not None:
            time.sleep(max(0.0, started + epoch * clock.seconds / clock.speed - time.time()))
        job.turn()
        saving.after(job)
        job.settle()
        t = time.time() - started
        if samples.due(t):
            gc.collect(1)
            sample = Sample(t, {o.name: o for o in totals(job.progress())})
            samples.add(sample)
            if on_progress is not None:
                on_progress(sample)
