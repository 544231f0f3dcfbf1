"""Running a flow to the end of its input: in this process, or on a Ray cluster.

This is the glue above all layers: it owns the choice of shell. `Flow.run` calls it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from raystream.api.connectors import hears_commits
from raystream.api.flow import Flow
from raystream.controller.elastic.detector import bounds_in
from raystream.controller.elastic.policy import Policy
from raystream.controller.elastic.pool import PoolOptions
from raystream.controller.options import Options, options_of, refuse_here, with_room
from raystream.controller.planning.adapting import adapted
from raystream.controller.planning.changes import ResumeWishes
from raystream.controller.planning.plans import make_plan
from raystream.controller.planning.resuming import (
    Resumes,
    StartPoint,
    beginning,
    durably,
)
from raystream.controller.planning.run_options import check_run_options
from raystream.controller.protocol.strategies import RecoveryMode
from raystream.controller.reporting.left_out import left_out
from raystream.controller.reporting.replays import tell_replay
from raystream.controller.reporting.report import JobReport
from raystream.dataflow.plan import Plan
from raystream.durable.saves import KEPT, Saves
from raystream.durable.store import open_store
from raystream.errors import ConfigError, LostError, RaystreamError, without_values
from raystream.page import notebook
from raystream.renamed import renamed
from raystream.schema.lengths import Seconds
from raystream.security.certificates import given
from raystream.security.contexts import Certificates
from raystream.submitted import submitted

if TYPE_CHECKING:
    from raystream.local.run import MakeTeller, OnProgress
    from raystream.local.source import MakeFeed


OnNote = Callable[[str], None]


@renamed(cut_every="checkpoint_every")
def run(
    flow: Flow,
    *,
    cluster: str | None = None,
    instances: Mapping[str, int] | None = None,
    checkpoint_seconds: Seconds = 5.0,
    checkpoint_every: int | None = None,
    copies: int = 1,
    spares: int = 2,
    recovery: RecoveryMode = "state",
    restore_into: int = 1,
    together: bool = False,
    policy: Policy | Literal["auto"] | None = "auto",
    bounds: Mapping[str, tuple[int, int]] | None = None,
    pool: PoolOptions | int | None = None,
    check: bool = False,
    rows: Mapping[str, int] | None = None,
    state_folder: str | os.PathLike[str] | None = None,
    state_memory: int | str | None = None,
    checkpoint_memory: int | str | None = None,
    durable: str | os.PathLike[str] | None = None,
    resume: bool | None = None,
    rename: Mapping[str, str] | None = None,
    drop: Collection[str] = (),
    keep: int = KEPT,
    tls: str | os.PathLike[str] | None = None,
    traces: str | None = None,
    ui: bool = False,
    values: bool | None = None,
    on_progress: OnProgress | None = None,
    on_note: OnNote | None = None,
) -> JobReport:
    """Run a flow to the end of its input.

    Args:
        cluster: None runs in this process; `"auto"` joins the Ray cluster of this machine, or
            starts one; another value is the address of a cluster.
        instances: by operator, how many instances it has. Unless given: the least of its bounds, or
            1.
        checkpoint_seconds: about how many seconds there are from one checkpoint to the next.
        checkpoint_every: epochs from one checkpoint to the next, instead.
        copies: on a cluster, how many nodes hold a checkpoint.
        spares: on a cluster, how many warm spare processes stand by for those that die.
        recovery: on a cluster, what a new instance starts from that replaces one that died:
            `"state"`, the committed checkpoint; for comparison `"upstream"` or `"source"`, all that
            the operators before it, or the sources alone, have sent since the beginning.
        restore_into: on a cluster, how many instances share the range of one that died.
        together: on a cluster, have instances of the same index, one of each source, operator and
            sink, share a process and one thread. Epochs then pass between them without a socket.
            For jobs that have little to compute: a slow function holds all of them up, and they die
            and recover together.
        policy: on a cluster, what decides how many instances operators have, and which ranges:
            `rs.CpuThreshold()` splits an instance that uses more than 70 % of a core. None: only
            `instances` and people decide. `"auto"`: `rs.CpuThreshold()` with a pool, None without.
        bounds: by operator, how few and how many instances the policy may give it.
        pool: on a cluster with Ray's autoscaler, how many spare nodes are kept besides those in
            use, or `rs.PoolOptions`.
        check: checking mode: instances are made again from checkpoints, and an operator that then
            emits something else ends the job. It costs time and memory.
        rows: by compiled or batch operator, how many rows of state it is expected to keep. Room for
            them is made before the first record comes. Otherwise a job whose state grows quickly
            may be late at first, where the system gives new memory slowly.
        state_folder: the folder on each node for files of checkpoints that memory has no room for,
            and for rows of state beyond `state_memory`. None: the folder for temporary files.
        state_memory: about how much memory the rows of an instance take, as in `"4GiB"`. Beyond
            that, the rows that were not touched for the longest are on disk. None: all rows are in
            memory.
        checkpoint_memory: on a cluster, how much of each node's object store holds recent
            checkpoints, as in `"512MB"`; the rest is in files. None: 512 MiB, or a quarter of the
            store if that is less.
        durable: a folder or s3://bucket/prefix to which committed checkpoints are copied: on a
            cluster in the background, in this process while the job waits. When a cluster has lost
            all copies of a checkpoint, the job goes on from there.
        resume: with `durable`, True goes on from the newest whole checkpoint there, with any number
            of instances (where nothing was saved: from the beginning). False begins again although
            there are checkpoints, which new ones supersede. None refuses to run where there are
            some.
        rename: with `resume`, by the name that an operator, source or sink had in the saved
            checkpoint the name that it has now. Its state, and what marks a sink's output, go on.
        drop: with `resume`, the names of those of which the saved state may go: they are not in the
            flow any more, or begin empty. What is new in the flow begins empty, too.
        keep: how many saved checkpoints stay in `durable`, at least 2: `raystream replay` reaches
            back to the oldest of them.
        tls: encrypt the connections between the job's instances and those of `rs.io.push`, and have
            both sides show a certificate. A folder with `ca.crt`, `tls.crt` and `tls.key`
            (`raystream certificates` makes one), or "made": new certificates for this run (needs
            the extra `tls`). Ray's own connections have other settings: see
            docs/reference/security.md.
        traces: on a cluster, the address of a collector of OpenTelemetry, as in
            `"http://127.0.0.1:4318"`: each recovery, move, upgrade and checkpoint is sent to it as
            a trace.
        ui: on a cluster, show the job on a page in a browser while it runs. Its address is said as
            a note; only this machine can see it. Needs the extra `ui`.
        values: whether errors and notes may show keys and values of records. False leaves the kind
            of an error and its place. None: True, but False in a submitted Ray job, because Ray
            keeps what that job prints in its logs.
        on_progress: called about every second with the totals so far. What it raises ends the job.
            Unless given, the cell of a notebook shows them.
        on_note: called with notes in words: about saved checkpoints (these are in the report, too),
            and where the Ray is that was started for this run.

    Raises:
        GraphError, ConfigError, InputError: nothing was started. OperatorError: a user's function
        raised. StateError: the job cannot go on from the saved checkpoint. Stopped: the job was
        stopped. JobError: the job failed otherwise.
    """
    between = check_run_options(locals())
    wishes = _wishes(durable, resume, rename, drop)
    certificates = given(tls)
    options = options_of(cluster, copies, spares, recovery, restore_into, policy, bounds, pool)
    options = replace(options, together=together, traces=traces)
    options = with_room(options, state_folder, checkpoint_memory, state_memory)
    refuse_here(options, cluster)
    least = {name: few for name, (few, _) in (bounds or {}).items() if few > 1}
    shows, say = not submitted() if values is None else values, on_note or _on_terminal
    with _showing(values=shows), _page(flow.name, cluster, say, ui=ui), _alone(flow.name, cluster):
        saves, known, begin = _start_of(flow.name, durable, resume)
        plan = make_plan(
            flow,
            instances=least | {**(instances or {})},
            checkpoint_every=None if checkpoint_every is None else int(checkpoint_every),
            checkpoint_seconds=between,
            check=check,
            rows=rows,
            saved=begin.saved,
            wishes=wishes,
        )
        plan.state_memory, plan.state_folder = options.state_memory, options.state_folder
        bounds_in(plan, bounds or {})  # a controller would say it too, but only on the cluster
        _tell_of_sources(plan, say)
        tell, watch = on_note or _ignore, on_progress or notebook.live(flow.name)
        follow = Followed(cluster, options, saves, watch, tell, certificates, shows)
        report = _followed(follow, plan, saves, begin, known, wishes, int(keep))
        return _with_warnings(report, plan, say, values=shows)


def _start_of(
    job: str, durable: str | os.PathLike[str] | None, resume: bool | None
) -> tuple[Saves | None, Collection[str] | None, StartPoint]:
    """The durable tier, the manifests in it that are known (see `durably`), and where the job
    begins."""
    if durable is None:
        return None, None, StartPoint(None, ())
    saves = Saves(open_store(durable), job)
    return saves, None if resume is False else saves.manifests(), beginning(saves, resume)


def _tell_of_sources(plan: Plan, on_note: OnNote) -> None:
    """Give the notes of the sources to `on_note`."""
    for vertex in plan.vertices:
        if vertex.source is not None and (note := getattr(vertex.source, "note", "")):
            on_note(f"{vertex.name}: {note}")


@contextmanager
def _showing(*, values: bool) -> Iterator[None]:
    """Let errors out with the keys and values that they show, or without."""
    try:
        yield
        return
    except Exception as error:
        if values:
            raise
        told = without_values(error)
    raise told  # here, because the error itself must not be its context


@contextmanager
def _alone(job: str, address: str | None) -> Iterator[None]:
    """Be connected to the cluster, if there is one, and see that no run of the job is there; where
    there is none, that no run of this user has started a Ray on this machine for the same job.

    Raises:
        ConfigError: one is.
    """
    if address is None:
        yield
        return
    from raystream.actors.client.jobs import refuse_running
    from raystream.actors.cluster.connecting import joined, of_other_runs

    with joined(address) as there:
        if there:
            refuse_running(job, "in this cluster")
        for other in () if there else of_other_runs(address):
            with joined(other) as answers:
                if answers:
                    refuse_running(job, f"on a Ray of its own at {other}")
        yield


def _page(
    job: str, address: str | None, on_note: OnNote, *, ui: bool
) -> AbstractContextManager[None]:
    """A page beside the run, if one is wanted.

    Raises:
        ConfigError: there can be none.
    """
    if not ui:
        return nullcontext()
    if address is None:
        raise ConfigError(
            "the page needs a cluster: in this process there is nothing to look at",
            hint='Add cluster="auto", or leave out --local.',
        )
    from raystream.page.beside import page_beside
    from raystream.page.serving import refuse_without_nicegui

    refuse_without_nicegui()
    return page_beside(job, address, on_note)


class Followed(NamedTuple):
    """Where a plan is run, and how it is followed."""

    address: str | None
    """The address of a cluster; None for this process."""
    options: Options
    """What the controller is to do besides."""
    saves: Saves | None
    """The durable tier; None without one."""
    on_progress: OnProgress | None
    """Called with the totals so far."""
    on_note: OnNote
    """Called with notes in words."""
    certificates: Certificates | None = None
    """The certificates of the job; None without TLS."""
    values: bool = True
    """Whether errors may show keys and values of records."""

    def name(self, job: str) -> str:
        """A name for the next run."""
        if self.address is None:
            from raystream.local.run import name_here

            return name_here()
        from raystream.actors.control.actor_names import new_run

        return new_run(job)

    def ready(self, plan: Plan) -> AbstractContextManager[None]:
        """Be connected where a plan is to run that saves its checkpoints.

        Raises:
            GraphError, ConfigError: it cannot be run there.
        """
        if self.address is None:
            return nullcontext()
        from raystream.actors.client.submitting import ready

        return ready(plan, self.address, self.options, durable=True, on_note=self.on_note)

    def run(self, plan: Plan) -> JobReport:
        """Run it to its end."""
        with _showing(values=self.values):
            return self._run(plan)

    def _run(self, plan: Plan) -> JobReport:
        if self.address is None:
            from raystream.local.run import run_here

            return run_here(
                plan,
                self.saves,
                self.on_progress,
                feed_of(plan),
                _teller(plan),
                certificates=self.certificates,
            )
        from raystream.actors.client.submitting import run_on_ray

        return run_on_ray(
            plan,
            address=self.address,
            on_progress=self.on_progress,
            on_note=self.on_note,
            options=self.options,
            certificates=self.certificates,
        )


def _teller(plan: Plan) -> MakeTeller | None:
    """What tells sources of commits, if one wants to know."""
    if not any(v.kind == "source" and hears_commits(v.source) for v in plan.vertices):
        return None
    from raystream.actors.worker.reading import CommitTeller

    return CommitTeller


def feed_of(plan: Plan) -> MakeFeed | None:
    """What reads splits that may be silent, if there are any."""
    from raystream.local.source import may_be_silent

    if not any(map(may_be_silent, plan.vertices)):
        return None
    from raystream.actors.worker.reading import ReadAhead

    return ReadAhead


def _wishes(
    durable: object, resume: bool | None, rename: Mapping[str, str] | None, drop: Collection[str]
) -> ResumeWishes:
    """What becomes of a saved checkpoint of a flow that has changed since."""
    if durable is None and resume is not None:
        raise ConfigError(
            "resume without durable: no checkpoints are named",
            hint="Say where they are: --durable URL (durable=...).",
        )
    if resume is not True and (rename or drop):
        raise ConfigError(
            "rename and drop say what becomes of a saved checkpoint, and none is resumed",
            hint="Add --resume (resume=True).",
        )
    return ResumeWishes(rename or {}, tuple(drop))


def _followed(
    follow: Followed,
    plan: Plan,
    saves: Saves | None,
    begin: StartPoint,
    known: Collection[str] | None,
    wishes: ResumeWishes,
    keep: int,
) -> JobReport:
    """Run a plan and save its checkpoints, if that is asked for. When a cluster has lost its own
    copies of a checkpoint, run the plan again from a saved one.

    Args:
        known, keep: see `durably`.
    """
    if saves is None:
        return follow.run(plan)
    resumes = Resumes(saves)
    notes: tuple[str, ...] = ()
    while True:
        now = adapted(saves, plan, begin.saved, wishes)
        for note in (*begin.notes, *now.notes):
            follow.on_note(note)
        notes += begin.notes + now.notes
        try:
            with follow.ready(plan):  # what cannot run is not to end the saves of what does
                name = follow.name(plan.job)
                plan = durably(plan, saves, name, begin.saved, known, now.saved, keep)
                report = follow.run(plan)
        except LostError as error:
            known = saves.manifests()
            begin = resumes.after(error, plan)
            if begin.saved is not None and begin.saved.checkpoint > plan.begins:
                wishes = ResumeWishes()  # fulfilled: it is one of this flow
        except RaystreamError as error:
            if plan.durable is not None:
                tell_replay(error, plan, saves)
            raise
        else:
            return replace(report, notes=notes)


def _with_warnings(report: JobReport, plan: Plan, on_note: OnNote, *, values: bool) -> JobReport:
    """Say, also in the report, what records and rows were left out."""
    notes = left_out(report, plan, values=values)
    for note in notes:
        on_note(note)
    return replace(report, notes=(*report.notes, *notes)) if notes else report


def _on_terminal(note: str) -> None:
    with suppress(OSError, ValueError):  # closed: the report has it, too
        sys.stderr.write(f"{note}\n")


def _ignore(note: str) -> None:
    """Drop a note: the report has it, too."""
