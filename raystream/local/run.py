"""Running a plan in this process to the end of its input: clock, pace, saved checkpoints."""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from raystream.api.connectors import Source, hears_commits
from raystream.controller.planning.resuming import images_of, save
from raystream.controller.reporting.report import JobReport, Sample, Samples, totals
from raystream.dataflow.plan import Plan
from raystream.dataflow.sources.epochs import Positions
from raystream.dataflow.sources.pace import release_of
from raystream.durable.saves import Saves
from raystream.errors import JobError, OvertakenError, leaves, left_by
from raystream.local.job import LocalJob
from raystream.local.source import MakeFeed
from raystream.native.memory import memory_use
from raystream.schema.types import LocalDirectory, SourceContext
from raystream.security.contexts import Certificates

LOOK_SECONDS = 0.1
"""Seconds between two looks at the memory that is left."""
PACED_START_DELAY = 0.2
"""Seconds between deploying a paced job and releasing its first row."""
OnProgress = Callable[[Sample], None]


def name_here() -> str:
    """A name for a run in this process that no other run has."""
    return uuid.uuid4().hex[:12]


class _Saving:
    """Saves the checkpoints of a run in this process, which waits for it."""

    saved: int
    """The newest saved checkpoint."""
    unsaved: str
    """Why the newest checkpoint that should be saved is not; empty if it is."""

    def __init__(self, plan: Plan, saves: Saves | None) -> None:
        self.plan = plan
        self.saves = saves
        self.saved = self._tried = plan.begins
        self.unsaved = ""

    def after(self, job: LocalJob) -> None:
        """Save the committed checkpoint, unless that was tried already."""
        checkpoint = job.committed
        if self.saves is None or checkpoint <= self._tried:
            return
        self._tried = checkpoint
        try:
            save(self.plan, self.saves, checkpoint, job.stored(checkpoint))
        except OvertakenError:
            raise
        except JobError as error:
            self.unsaved = f"checkpoint {checkpoint} was not saved in {self.saves}: {error}"
        else:
            self.saved, self.unsaved = checkpoint, ""
            job.publish(checkpoint)


def run_here(
    plan: Plan,
    saves: Saves | None,
    on_progress: OnProgress | None,
    feed: MakeFeed | None = None,
    teller: MakeTeller | None = None,
    *,
    certificates: Certificates | None = None,
) -> JobReport:
    """Run a plan in this process to the end of its input; see `raystream.run.run`.

    Args:
        feed: begins to read a split that may be idle on a thread of its own.
        teller: makes what tells a source of commits.
        certificates: for sources that listen; None for no TLS.
    """
    from raystream.dataflow.warming import warm

    clock = plan.clock
    paced = clock is not None and clock.speed is not None
    for _ in warm(plan) if paced else ():
        pass  # as a process of a cluster: what is compiled now makes no record late
    started = time.time()
    if clock is not None and clock.speed is not None:
        started += PACED_START_DELAY - plan.begins * clock.seconds / clock.speed
    run = name_here() if plan.durable is None else plan.durable.run
    with opened(plan, run, certificates):
        return _run_opened(plan, run, saves, started, on_progress, feed, teller)


@contextmanager
def opened(plan: Plan, run: str, certificates: Certificates | None = None) -> Iterator[None]:
    """A context in which the sources of a plan are open.

    Args:
        run: the name of the run, which sources are told.
        certificates: for sources that listen; None for no TLS.
    """
    directory = LocalDirectory()
    with ExitStack() as after:
        for vertex in plan.vertices:
            if vertex.kind == "source":
                context = SourceContext(
                    run, vertex.name, "127.0.0.1", False, directory, certificates
                )
                vertex.source.open(context)
                after.callback(vertex.source.close)
        yield


def _run_opened(
    plan: Plan,
    run: str,
    saves: Saves | None,
    started: float,
    on_progress: OnProgress | None,
    feed: MakeFeed | None,
    teller: MakeTeller | None,
) -> JobReport:
    paced = plan.clock is not None and plan.clock.speed is not None
    job = LocalJob(
        plan,
        run=run,
        paced_from=started if paced else None,
        resume=None if saves is None else images_of(plan, saves),
        feed=feed,
        jumps=True,
    )
    tellers = _tellers(job, teller)
    saving = _Saving(plan, saves)
    if not paced:
        started = time.time()
    samples = Samples()
    try:
        with _collecting_between_epochs():
            _drive(job, plan, started, samples, saving, on_progress)
    except BaseException as error:
        if leaves(error):
            raise left_by(error) from None
        raise
    finally:
        job.askers.stop()
        for source in job.sources:
            for each in source.feeds:
                each.stop()
    job.finish()
    for told in tellers:
        told.drain()
    elapsed = time.time() - started
    operators = totals(job.progress())
    last = Sample(elapsed, {o.name: o for o in operators})
    if on_progress is not None:
        on_progress(last)
    return JobReport(
        job=plan.job,
        cluster="local",
        started=started,
        elapsed=elapsed,
        operators=operators,
        samples=samples.ended(last),
        saved=saving.saved,
        unsaved=saving.unsaved,
    )


@contextmanager
def _collecting_between_epochs() -> Iterator[None]:
    """A context in which the cyclic collector runs only where it is called, as in the process of an
    instance, and does not look at what was there before.

    What the user's program has frozen stays frozen. Nothing more is frozen then, because it could
    not be told apart afterwards.
    """
    collects, frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.disable()
    if not frozen:
        gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
        if collects:
            gc.enable()


class Teller(Protocol):
    """Tells a source which positions are never read again, and does not wait for it."""

    def __call__(self, positions: Positions, /) -> None: ...

    def drain(self) -> bool:
        """Wait, for a limited time, until the source was told all."""


MakeTeller = Callable[[Source[Any], str], Teller]
"""Makes what tells a source, which has that name."""


def _tellers(job: LocalJob, make: MakeTeller | None) -> list[Teller]:
    found = []
    for source in job.sources:
        vertex = source.machine.vertex
        if make is not None and hears_commits(vertex.source):
            source.tenure.tell = made = make(vertex.source, vertex.name)
            found.append(made)
    return found


def pause_of(job: LocalJob) -> float | None:
    """How long to wait before the next epoch, in seconds; None if something has arrived already, or
    if no split may be idle."""
    feeds = [feed for source in job.sources for feed in source.feeds]
    if not feeds or any(feed.waiting for feed in feeds):
        return None
    lengths = (s.machine.vertex.epochs.seconds for s in job.sources if s.feeds)  # type: ignore[union-attr]
    return min(length or 0.05 for length in lengths)


def _drive(
    job: LocalJob,
    plan: Plan,
    started: float,
    samples: Samples,
    saving: _Saving,
    on_progress: OnProgress | None,
) -> None:
    """Step a local job to its end, at its pace."""
    release = release_of(plan)
    epoch = plan.begins
    look = 0.0
    while not job.ended:
        epoch += 1
        if release is not None:
            time.sleep(max(0.0, started + release(epoch) - time.time()))
        if (pause := pause_of(job)) is not None:
            time.sleep(pause)
        job.turn()
        saving.after(job)
        job.settle()
        t = time.time() - started
        if t >= look:
            look = t + LOOK_SECONDS
            use = memory_use()
            if use.node > use.limit and 2 * use.own >= use.node:
                raise job.shortage()
        if samples.due(t):
            gc.collect(1)
            sample = Sample(t, {o.name: o for o in totals(job.progress())})
            samples.add(sample)
            if on_progress is not None:
                on_progress(sample)
