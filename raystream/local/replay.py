"""A job again, from one of its saved checkpoints: the same instances take the same input, in this
process, and make the same bits. No sink is written.

    plan = replay_plan(flow, saves, saved)
    with Replay(plan, saves) as replay:
        while replay.turn(to):                 an epoch, or a run of epochs without rows
            replay.taken()                     the records that each sink would have been given
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from raystream.api.flow import Flow
from raystream.controller.planning.adapting import adapted
from raystream.controller.planning.changes import ResumeWishes
from raystream.controller.planning.plans import make_plan
from raystream.controller.planning.resuming import images_of
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.plan import Durable, Plan
from raystream.durable.manifest import Saved
from raystream.durable.saves import Saves
from raystream.errors import ConfigError
from raystream.local.hearing import Hearing, SinkOutput, show
from raystream.local.job import LocalJob
from raystream.local.run import name_here, opened
from raystream.local.source import Ends, LocalSource, MakeFeed
from raystream.schema.types import NEVER
from raystream.state.counts import IN

EVERY = 100
"""Epochs from one checkpoint to the next in a replay from the beginning. These checkpoints are not
saved: at each one a fork publishes its output."""
LIVE_HINT = "While the job runs, `raystream fork --live` compares another version with it."
BeforeStep = Callable[[Instance], None]
"""Called with an instance that is about to apply an epoch."""


def replay_plan(
    flow: Flow,
    saves: Saves | None = None,
    saved: Saved | None = None,
    wishes: ResumeWishes | None = None,
) -> tuple[Plan, tuple[str, ...]]:
    """The plan of a replay, and notes on what has changed in the flow since the checkpoint.

    Its instances have the ranges that they had at the checkpoint, so that an error gives a record
    the number that it had in the run. It is not paced.

    Args:
        saves: where the checkpoint is. Its job may have another name than the flow.
        saved: the checkpoint to begin with; None for the beginning of the input.
        wishes: what becomes of saved state where the flow has changed.

    Raises:
        ConfigError: a source cannot be read again, or an operator asks the world.
        InputError: a source is not there any more.
        StateError: the flow cannot go on from the checkpoint.
    """
    every = EVERY if saved is None else saved.checkpoint_every
    plan = make_plan(flow, checkpoint_every=every, saved=saved, wishes=wishes)
    _refuse_unrecorded(plan, "the beginning" if saved is None else str(saved))
    clock = None if plan.clock is None else replace(plan.clock, speed=None)
    if saves is None or saved is None:
        return replace(plan, clock=clock), ()
    changed = adapted(saves, plan, saved, wishes)
    begins = changed.saved or saved
    for vertex in plan.vertices:
        plan.ranges[vertex.id] = [chain.keys for chain in begins.chains[vertex.name]]
    durable = Durable(saves.store.url, saved.number, saved.run, begins)
    return replace(plan, clock=clock, durable=durable), changed.notes


def _refuse_unrecorded(plan: Plan, since: str) -> None:
    """Refuse a source that cannot be read again, and an operator that asks the world.

    Args:
        since: the beginning of the replay, in words.

    Raises:
        ConfigError: there is one.
    """
    for vertex in plan.vertices:
        if vertex.source is not None and vertex.source.recorded:
            raise ConfigError(
                f"{vertex.name} cannot be read again, so nothing after {since} can be replayed:"
                " what it records is kept by the running job, and not saved",
                where=vertex.where,
                hint=f"The state at the checkpoint can be read: rs.states(...). {LIVE_HINT}",
            )
        if vertex.spec is not None and vertex.spec.asking is not None:
            raise ConfigError(
                f"{vertex.name} asks the world, and what it was answered after {since} is not"
                " saved: asked again, it may be told something else",
                where=vertex.where,
                hint=LIVE_HINT,
            )


def uncertain(plan: Plan) -> list[str]:
    """Reasons for which a replay may make other bits than the run, in words."""
    return [
        f"{v.name} is cut into epochs by arrival, and where they ended after the checkpoint is not"
        " saved: they may end elsewhere in the replay"
        for v in plan.vertices
        if v.kind == "source" and plan.clock is None
    ]


def changed_files(plan: Plan, saved: Saved) -> list[str]:
    """The files of sources that have changed since the run began, in words."""
    return [
        f"{name} is not what it was when run {saved.number} began: {then} then, {now} now"
        for name, then in saved.files.items()
        if (now := plan.files.get(name)) is not None and now != then
    ]


class Replay:
    """A plan that is replayed. It is a context, in which its sources are open.

    Args:
        saves: where the checkpoint is; None for a replay from the beginning.
        before: see `BeforeStep`.
        keeps: whether `boundaries` keeps all entries until the caller removes them.
        feed: see `LocalJob`.
        write_to: a folder; the output is written as Parquet files into its folders JOB/SINK. None
            to write nothing.
    """

    def __init__(
        self,
        plan: Plan,
        saves: Saves | None = None,
        *,
        before: BeforeStep | None = None,
        keeps: bool = False,
        feed: MakeFeed | None = None,
        write_to: str | None = None,
    ) -> None:
        self.plan = plan
        self.boundaries: Ends = {}
        """The ends of epochs by arrival, by split and epoch."""
        self._keeps = keeps
        self._saves = saves
        self._before = before
        self._feed = feed
        self._after = ExitStack()
        self.job: _ReplayedJob
        self._hearing = Hearing(plan, write_to)

    def __enter__(self) -> Replay:
        self._after.enter_context(opened(self.plan, name_here()))
        self.job = _ReplayedJob(
            self.plan,
            run=name_here(),
            resume=None if self._saves is None else images_of(self.plan, self._saves),
            boundaries=self.boundaries if self._keeps else None,
            feed=self._feed,
            jumps=True,
        )
        self.job.before = self._before
        self.job.each_by_itself()
        self._after.callback(self._stop)
        self._after.push(self._show)
        return self

    def _show(self, raised: object, *_: object) -> None:
        """Publish what was written, even if the input goes on; nothing after an error."""
        if raised is None:
            show(self.job.instances)

    def _stop(self) -> None:
        self.job.askers.stop()
        for source in self.job.sources:
            for each in source.feeds:
                each.stop()

    def __exit__(self, *raised: Any) -> None:
        self._after.__exit__(*raised)

    @property
    def at(self) -> int:
        """The last epoch that all instances have applied."""
        return min(
            (m.position for m in self.job.machines if not m.ended),
            default=max(m.position for m in self.job.machines),
        )

    @property
    def ended(self) -> bool:
        """Whether the input has ended."""
        return self.job.ended

    @property
    def read(self) -> int:
        """How many records the sources have read so far, also before the checkpoint."""
        return sum(int(s.machine.counts.by_group(IN).sum()) for s in self.job.sources)

    def turn(self, to: int = NEVER) -> bool:
        """Replay the next epoch, or a run of epochs without rows. False if the input has ended or
        all instances have applied the epoch `to`.

        Raises:
            RaystreamError: the job fails as its run did.
        """
        if self.ended or self.at >= to:
            return False
        self.job.last = to
        self.job.turn()
        self.job.settle()
        self.job.publish(self.job.committed)
        return True

    def taken(self) -> Iterator[SinkOutput]:
        """The output since the last call, in order of epochs, then of sinks."""
        return self._hearing.taken()

    def advance(self, to: int) -> None:
        """Replay up to an epoch, or to the end of the input."""
        while self.turn(to):
            pass


class _ReplayedJob(LocalJob):
    """A job in this process that stops at a given epoch, and calls a function before each step."""

    before: BeforeStep | None = None
    last = NEVER
    """The epoch that no step of a source goes beyond."""

    def each_by_itself(self) -> None:
        """Take epochs with rows one by one: so each call is told with its own epoch, and the output
        of the epochs before an error is complete."""
        self._several = False

    def _upto(self, sources: Any) -> int:
        return min(super()._upto(sources), self.last)

    def _step(self, each: LocalSource | ReceivingInstance, upto: int = 0) -> None:
        if self.before is not None:
            self.before(each if isinstance(each, ReceivingInstance) else each.machine)
        super()._step(each, upto)
