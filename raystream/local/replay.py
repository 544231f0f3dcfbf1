"""A job again, from one of its saved checkpoints: the same instances take the same input, in this
process, and make the same bits. No sink is written.

    plan = replay_plan(flow, saves, saved)
    with Replay(plan, saves) as replay:
        while replay.turn(to):                 an epoch, or a run of epochs without rows
            replay.taken()                     by sink and epoch, what it would have been given
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

from raystream.api.batch import Batch
from raystream.api.connectors import Sink
from raystream.api.flow import Flow
from raystream.controller.planning.adapting import adapted
from raystream.controller.planning.changes import ResumeWishes
from raystream.controller.planning.plans import make_plan
from raystream.controller.planning.resuming import images_of
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.instances.sink import SinkInstance
from raystream.dataflow.plan import Durable, Plan
from raystream.durable.manifest import Saved
from raystream.durable.saves import Saves
from raystream.errors import ConfigError
from raystream.io.file_functions import parquet
from raystream.local.job import LocalJob
from raystream.local.run import name_here, opened
from raystream.local.source import Ends, LocalSource, MakeFeed
from raystream.schema.types import NEVER, KeyRange, SinkContext
from raystream.state.counts import IN

EVERY = 100
"""Epochs from one checkpoint to the next in a replay from the beginning. Nothing is saved of them;
what was written by a fork is shown up to them."""
BeforeStep = Callable[[Instance], None]
"""Called with an instance that is about to apply an epoch."""


def replay_plan(
    flow: Flow,
    saves: Saves | None = None,
    saved: Saved | None = None,
    wishes: ResumeWishes | None = None,
) -> tuple[Plan, tuple[str, ...]]:
    """The plan of a replay, and in words what of the flow has changed since.

    Its instances have the ranges that they had at the checkpoint, so that errors count records as
    they did. It is not paced.

    Args:
        saves: where the checkpoint is; the name of the flow may be another.
        saved: the checkpoint to begin with; None for the beginning of the input.
        wishes: what becomes of what is saved, where the flow has changed.

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
    """Refuse input that is neither saved nor there to be read again."""
    for vertex in plan.vertices:
        if vertex.source is not None and vertex.source.recorded:
            raise ConfigError(
                f"{vertex.name} cannot be read again, so nothing after {since} can be replayed:"
                " what it records is kept by the running job, and not saved",
                where=vertex.where,
                hint="The state at the checkpoint can be read: rs.states(...).",
            )
        if vertex.spec is not None and vertex.spec.asking is not None:
            raise ConfigError(
                f"{vertex.name} asks the world, and what it was answered after {since} is not"
                " saved: asked again, it may be told something else",
                where=vertex.where,
            )


def uncertain(plan: Plan) -> list[str]:
    """Why a replay may make other bits than the run, in words; nothing if it may not."""
    return [
        f"{v.name} is cut into epochs by arrival, and where they ended after the checkpoint is not"
        " saved: they may end elsewhere in the replay"
        for v in plan.vertices
        if v.kind == "source" and plan.clock is None
    ]


def changed_files(plan: Plan, saved: Saved) -> list[str]:
    """In words, which files of sources are others than when the run began."""
    return [
        f"{name} is not what it was when run {saved.number} began: {then} then, {now} now"
        for name, then in saved.files.items()
        if (now := plan.files.get(name)) is not None and now != then
    ]


class SinkOutput(NamedTuple):
    """What a sink would have been given of one epoch."""

    sink: str
    """The name of the sink."""
    epoch: int
    """The epoch."""
    records: tuple[Any, ...]
    """Its records: by type in the order of the names of the types, then in canonical order."""


class _Heard(Sink[Any]):
    """Stands where a sink would.

    Args:
        keyed_by: as of that sink. take: takes what it would write.
        kept: another sink, which writes it; None to write nothing.
    """

    def __init__(
        self,
        keyed_by: Any,
        take: Callable[[int, KeyRange, Batch[Any]], None],
        kept: Sink[Any] | None,
    ) -> None:
        self.keyed_by = keyed_by
        self._take = take
        self._kept = kept

    def __copy__(self) -> _Heard:
        return _Heard(self.keyed_by, self._take, copy.copy(self._kept))

    def open(self, context: SinkContext) -> None:
        if self._kept is not None:
            begun = context.committed  # it is as a sink that was added to the job
            self._kept.open(context._replace(resumed="", begun=begun))

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any]) -> None:
        self._take(epoch, keys, batch)
        if self._kept is not None:
            self._kept.write(epoch, keys, batch)

    def prepare(self, epoch: int) -> None:
        if self._kept is not None:
            self._kept.prepare(epoch)

    def commit(self, epoch: int) -> None:
        if self._kept is not None:
            self._kept.commit(epoch)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()


class Replay:
    """A plan that is replayed. A context: its sources are open within.

    Args:
        before: see `BeforeStep`.
        keeps: whether `boundaries` keeps what it has; its owner removes it.
        feed: see `LocalJob`.
        write_to: a folder into which what comes to each sink is written as Parquet files, in a
            folder of the job's name and the sink's; None to write nothing.
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
        """Where epochs end that are cut by arrival, by split and epoch."""
        self._keeps = keeps
        self._saves = saves
        self._before = before
        self._feed = feed
        self._parts: dict[tuple[int, str, str, int], Batch[Any]] = {}
        self._after = ExitStack()
        self.job: _ReplayedJob
        for vertex in plan.vertices:
            if vertex.kind == "sink":
                kept = None
                if write_to is not None:
                    kept = parquet(os.path.join(write_to, plan.job, vertex.name))
                    for schema in vertex.schemas:
                        kept.accept(schema.cls)
                vertex.sink = _Heard(vertex.sink.keyed_by, self._hears(vertex.name), kept)

    def _hears(self, sink: str) -> Callable[[int, KeyRange, Batch[Any]], None]:
        def take(epoch: int, keys: KeyRange, batch: Batch[Any]) -> None:
            self._parts[epoch, sink, batch.record.__name__, keys.lo] = batch

        return take

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
        """Let what was written up to here be seen, also of an input that goes on."""
        for sink in (m for m in self.job.instances if isinstance(m, SinkInstance) and not m.ended):
            if raised is None:
                sink.sink.prepare(sink.position)
                sink.publish(sink.position)

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
        """Replay the next epoch, or a run of epochs without rows; False if the input has ended, or
        all instances have applied the epoch `to`.

        Raises:
            RaystreamError: what the job would have ended with.
        """
        if self.ended or self.at >= to:
            return False
        self.job.last = to
        self.job.turn()
        self.job.settle()
        self.job.publish(self.job.committed)
        return True

    def advance(self, to: int) -> None:
        """Replay up to an epoch, or to the end of the input."""
        while self.turn(to):
            pass

    def taken(self) -> Iterator[SinkOutput]:
        """What came to the sinks since this was asked last, in order of epochs."""
        parts, self._parts = self._parts, {}
        outputs: dict[tuple[int, str], list[Any]] = {}
        for epoch, sink, record, lo in sorted(parts):
            records = parts[epoch, sink, record, lo].records()
            outputs.setdefault((epoch, sink), []).extend(records)
        for (epoch, sink), found in outputs.items():
            yield SinkOutput(sink, epoch, tuple(found))


class _ReplayedJob(LocalJob):
    """A job in this process that goes no further than it is told, and says what steps."""

    before: BeforeStep | None = None
    last = NEVER
    """Up to this epoch sources go in one step."""

    def each_by_itself(self) -> None:
        """Take epochs with rows one by one: what is told of a call names its epoch, and an error
        loses nothing of the epochs before it."""
        self._several = False

    def _upto(self, sources: Any) -> int:
        return min(super()._upto(sources), self.last)

    def _step(self, each: LocalSource | ReceivingInstance, upto: int = 0) -> None:
        if self.before is not None:
            self.before(each if isinstance(each, ReceivingInstance) else each.machine)
        super()._step(each, upto)
