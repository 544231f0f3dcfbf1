"""Saving committed checkpoints in the durable tier: which keeper stores what, and when it is done.

One checkpoint is being saved at a time. Keepers store the chains of the ranges that they hold; when
all are there, one of them writes the manifest. A checkpoint that cannot be saved is given up: the
next commit is another chance. Of the checkpoints that are committed meanwhile, the newest is next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from raystream.api.row_shapes import shape_of
from raystream.controller.protocol.journal import InstanceRecord, JournalEntry, KeeperRecord
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.plan import Durable, Edge, Plan, Vertex
from raystream.dataflow.sinks import shows_at_once
from raystream.dataflow.upgrading.versions import CodeVersion, begins_of, version_at
from raystream.durable.manifest import Saved, SavedChain, SavedLayout
from raystream.errors import Stopped

SAVE_SECONDS = 600.0
"""How long saving a checkpoint may take before it is given up."""

LAST_SECONDS = 60.0
"""How long the controller tries to save the end of a job. Sinks wait with their last output until
it is saved, but no longer than this."""


class CheckpointToSave(NamedTuple):
    """A committed checkpoint that is to be saved."""

    epoch: int
    """Its epoch."""
    instances: tuple[InstanceRecord, ...]
    """The owners of ranges when it was committed: their keepers hold all of it."""
    kept: tuple[Place, ...]
    """All places whose images are still needed, those of candidates too."""
    versions: tuple[CodeVersion, ...]
    """The versions of the code that were settled then."""


class Saver:
    """Saves the checkpoints of one run, if it has a durable tier."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.unsaved = ""
        """Why the newest attempt failed; empty if it did not."""
        self._newest: CheckpointToSave | None = None
        """The newest committed checkpoint."""
        self._next: CheckpointToSave | None = None
        """What is to be saved next."""
        self._now: CheckpointToSave | None = None
        """What is being saved, since `_began`."""
        self._began = 0.0
        self._asked: set[str] = set()
        """The processes of the keepers whose answers are awaited."""
        self._chains: dict[int, list[SavedChain]] = {}

    def committed(
        self,
        epoch: int,
        owners: Iterable[InstanceRecord],
        instances: Iterable[InstanceRecord],
        now: float,
        versions: tuple[CodeVersion, ...] = (),
    ) -> list[do.Command]:
        """A checkpoint was committed, and is to be saved.

        Args:
            owners: the instances that own ranges.
            instances: owners and candidates.
            now: seconds that only grow.
            versions: the versions of the code that are settled.
        """
        kept = tuple(s.place for s in instances)
        self._newest = CheckpointToSave(epoch, tuple(owners), kept, versions)
        if self.plan.durable is not None:
            self._next = self._newest
        return [] if self._now else self._begin(now)

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being saved."""
        return self._now is not None

    def trims(self, keepers: Iterable[KeeperRecord]) -> list[do.Command]:
        """Let keepers drop what is older than the newest committed checkpoint and than the one that
        is being saved.

        After a restart of the controller nothing is dropped until the next commit: before it, the
        saver does not know what is stored.
        """
        checkpoints = [c for c in (self._newest, self._now) if c is not None]
        if not checkpoints:
            return []
        places = tuple(dict.fromkeys(p for c in checkpoints for p in c.kept))
        committed = min(c.epoch for c in checkpoints)
        return [do.Trim(p.process, committed, places) for p in keepers]

    def stopped(self, entry: JournalEntry) -> Stopped | None:
        """How a job ends that was asked to stop, once its last checkpoint is there; None before."""
        durable = self.plan.durable
        checkpoint = entry.committed if durable is None else entry.saved
        if not 0 <= entry.stop_after < checkpoint:
            return None
        stop_at = entry.assignment.stop_at
        if shows_at_once(self.plan) and checkpoint != stop_at:
            return None
        if durable is None:
            return Stopped(f"the job was stopped at epoch {checkpoint}")
        return Stopped(
            f"the job was stopped: checkpoint {checkpoint} is saved in {durable.url}",
            hint="Go on from there with --resume.",
        )

    def _begin(self, now: float) -> list[do.Command]:
        self._now, self._next = self._next, None
        if self._now is None:
            return []
        self._began, self._chains = now, {}
        places: dict[str, list[Place]] = {}
        for record in self._now.instances:
            places.setdefault(next(iter(record.keepers), ""), []).append(record.place)
        self._asked = set(places)
        if "" in places:
            return self._give_up(f"nobody holds {places[''][0].name}", now)
        checkpoint, begins = self._now.epoch, begins_of(self._now.versions)
        return [do.PutChains(p, checkpoint, tuple(held), begins) for p, held in places.items()]

    def put(self, event: on.Put, now: float) -> list[do.Command]:
        """A keeper has stored what it holds, or could not."""
        if (
            self._now is None
            or self._now.epoch != event.checkpoint
            or event.process not in self._asked
        ):
            return []
        if event.why:
            return self._give_up(event.why, now)
        self._asked.discard(event.process)
        for vertex, chain in event.chains:
            self._chains.setdefault(vertex, []).append(chain)
        if self._asked:
            return []
        self._asked = {event.process}
        assert self.plan.durable is not None
        version = version_at(self._now.versions, event.checkpoint)
        manifest = saved_checkpoint(
            self.plan, self.plan.durable, event.checkpoint, self._chains, version
        )
        return [do.SaveCheckpoint(event.process, manifest)]

    def saved(self, event: on.CheckpointSaved, now: float) -> tuple[int, list[do.Command]]:
        """A keeper has written the manifest, or could not: the checkpoint that is saved now, 0 for
        none, and the commands that follow."""
        if (
            self._now is None
            or self._now.epoch != event.checkpoint
            or event.process not in self._asked
        ):
            return 0, []
        if event.why:
            return 0, self._give_up(event.why, now)
        self.unsaved = ""
        return event.checkpoint, self._begin(now)

    def gone(self, process: str, now: float) -> list[do.Command]:
        """A process is dead."""
        if self._now is None or process not in self._asked:
            return []
        return self._give_up("the keeper that was to store it died", now)

    def tick(self, now: float) -> list[do.Command]:
        """Time has passed."""
        if self._now is None or now - self._began <= SAVE_SECONDS:
            return []
        return self._give_up(f"it took more than {SAVE_SECONDS:g} s", now)

    def _give_up(self, why: str, now: float) -> list[do.Command]:
        assert self._now is not None and self.plan.durable is not None
        self.unsaved = (
            f"checkpoint {self._now.epoch} was not saved in {self.plan.durable.url}: {why}"
        )
        return self._begin(now)


# ---------------------------------------------------------------- what is saved


def saved_checkpoint(
    plan: Plan,
    durable: Durable,
    checkpoint: int,
    chains: Mapping[int, Iterable[SavedChain]],
    version: CodeVersion | None = None,
) -> Saved:
    """The manifest of a checkpoint.

    It holds nothing of the boundary register: a run that goes on from the checkpoint discards what
    came after it, so its epochs may end elsewhere.

    Args:
        chains: by vertex, the chains of all its ranges.
        version: the version of the code that made it; None for the one that the job began with.
    """
    clock, layout = plan.clock, layout_of(plan)
    return Saved(
        job=plan.job,
        number=durable.number,
        run=durable.run,
        checkpoint=checkpoint,
        checkpoint_every=plan.checkpoint_every,
        layout=layout if version is None else replace(layout, shapes=version.shapes),
        chains={plan.vertices[v].name: tuple(sorted(found)) for v, found in chains.items()},
        splits={plan.vertices[v].name: tuple(names) for v, names in plan.splits.items()},
        clock=None if clock is None else (clock.origin, clock.seconds, clock.speed),
        columns=columns_of(plan),
        marks={} if plan.resumed is None else dict(plan.resumed.marks),
        code=plan.code if version is None else version.name,
        version=0 if version is None else version.number,
        files=plan.files,
    )


def columns_of(plan: Plan) -> dict[str, tuple[str, int]]:
    """By source that is cut by time, the column that epochs follow from, and its ticks."""
    return {
        v.name: (v.epochs.column, v.epochs.ticks)
        for v in plan.vertices
        if v.epochs is not None and v.epochs.column is not None
    }


def layout_of(plan: Plan) -> SavedLayout:
    """What must be the same in a plan that goes on from a checkpoint of this plan."""
    words = tuple(_in_words(plan, e) for e in plan.edges)
    kinds = {v.name: v.kind for v in plan.vertices}
    return SavedLayout(plan.groups, plan.ticks, shapes_of(plan.vertices), words, kinds)


def shapes_of(vertices: Iterable[Vertex]) -> dict[str, str]:
    """By vertex the fingerprint of its rows; empty for one without rows."""
    shapes = {v.name: None if v.spec is None else shape_of(v.spec) for v in vertices}
    return {name: "" if s is None else s.fingerprint for name, s in shapes.items()}


def _in_words(plan: Plan, edge: Edge) -> str:
    producer, consumer = plan.vertices[edge.producer], plan.vertices[edge.consumer]
    port = producer.ports[edge.port]
    words = f"{edge.schema.fingerprint} from {port.node} to {consumer.name}"
    if port.late:
        words = f"{'ahead' if producer.kind == 'source' else 'late'} {words}"
    if edge.to_all:
        return f"{words} to all"
    return words if edge.key is None else f"{words} by {', '.join(edge.key)}"
