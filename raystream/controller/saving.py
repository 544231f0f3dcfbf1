"""Saving committed cuts in the durable tier: who is to store what, and when the cut is saved.

One cut is on its way at a time. Keepers put the chains of the ranges that they hold; when all are
there, one of them writes the manifest. What cannot be saved is given up: the next commit is another
chance. Cuts that are committed meanwhile wait, and the newest of them is next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from raystream.controller import commands as do
from raystream.controller.journal import Entry, Post, Seat
from raystream.controller.recovery import Place
from raystream.dataflow.plan import Durable, Edge, Plan
from raystream.dataflow.snapshot import shape_of
from raystream.errors import Stopped
from raystream.state.saved import Layout, Saved, SavedChain, differs, refuse_other

SAVE_SECONDS = 600.0
"""How long a cut may take on its way before it is given up."""

LAST_SECONDS = 60.0
"""How long it is tried to save the end of a job, of which sinks show nothing before."""


class Cut(NamedTuple):
    """A committed cut, and who owned a range then: their keepers hold all of it. kept: all places
    whose images are needed, those of candidates too."""

    epoch: int
    seats: tuple[Seat, ...]
    kept: tuple[Place, ...]


class Saver:
    """Saves the cuts of one run, if it has a durable tier. unsaved: why the newest attempt failed;
    empty if it did not."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.unsaved = ""
        self._newest: Cut | None = None
        self._next: Cut | None = None
        self._now: Cut | None = None
        self._began = 0.0
        self._asked: set[str] = set()
        self._chains: dict[int, list[SavedChain]] = {}

    def committed(
        self, epoch: int, owners: Iterable[Seat], seats: Iterable[Seat], now: float
    ) -> list[do.Command]:
        """There is a cut to be saved. seats: of owners and candidates."""
        self._newest = Cut(epoch, tuple(owners), tuple(s.place for s in seats))
        if self.plan.durable is not None:
            self._next = self._newest
        return [] if self._now else self._begin(now)

    @property
    def busy(self) -> bool:
        """Whether a cut is on its way."""
        return self._now is not None

    def trims(self, posts: Iterable[Post]) -> list[do.Command]:
        """Let keepers drop what is older than the newest cut and than that which is on its way.

        Who was never told of a commit does not know what is stored: nothing, until the next one.
        """
        cuts = [c for c in (self._newest, self._now) if c is not None]
        if not cuts:
            return []
        places = tuple(dict.fromkeys(p for c in cuts for p in c.kept))
        floor = min(c.epoch for c in cuts)
        return [do.Trim(p.process, floor, places) for p in posts]

    def stopped(self, entry: Entry) -> Stopped | None:
        """How a job ends that was to end after a cut, once there is one."""
        durable = self.plan.durable
        cut = entry.committed if durable is None else entry.saved
        if not 0 <= entry.stop_after < cut:
            return None
        if durable is None:
            return Stopped(f"the job was stopped at epoch {cut}")
        return Stopped(
            f"the job was stopped: cut {cut} is saved in {durable.url}",
            hint="Go on from there with --resume.",
        )

    def _begin(self, now: float) -> list[do.Command]:
        self._now, self._next = self._next, None
        if self._now is None:
            return []
        self._began, self._chains = now, {}
        places: dict[str, list[Place]] = {}
        for seat in self._now.seats:
            places.setdefault(next(iter(seat.keepers), ""), []).append(seat.place)
        self._asked = set(places)
        if "" in places:
            return self._give_up(f"nobody holds {places[''][0].name}", now)
        cut = self._now.epoch
        return [do.PutChains(process, cut, tuple(held)) for process, held in places.items()]

    def put(self, event: do.Put, now: float) -> list[do.Command]:
        """A keeper has put what it holds; or could not."""
        if self._now is None or self._now.epoch != event.cut or event.process not in self._asked:
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
        manifest = saved_cut(self.plan, self.plan.durable, event.cut, self._chains)
        return [do.SaveCut(event.process, manifest)]

    def saved(self, event: do.CutSaved, now: float) -> tuple[int, list[do.Command]]:
        """The cut that is saved now, 0 for none; and what follows."""
        if self._now is None or self._now.epoch != event.cut or event.process not in self._asked:
            return 0, []
        if event.why:
            return 0, self._give_up(event.why, now)
        self.unsaved = ""
        return event.cut, self._begin(now)

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
        self.unsaved = f"cut {self._now.epoch} was not saved in {self.plan.durable.url}: {why}"
        return self._begin(now)


# ---------------------------------------------------------------- what is saved


def saved_cut(
    plan: Plan, durable: Durable, cut: int, chains: Mapping[int, Iterable[SavedChain]]
) -> Saved:
    """The manifest of a cut.

    It holds nothing of the boundary register: what came after the cut is discarded by who goes on
    from it, so that epochs may end elsewhere then.

    Args:
        chains: by vertex, of all its ranges.
    """
    clock = plan.clock
    return Saved(
        plan.job,
        durable.number,
        durable.run,
        cut,
        plan.cut_every,
        layout_of(plan),
        {plan.vertices[v].name: tuple(sorted(found)) for v, found in chains.items()},
        {plan.vertices[v].name: tuple(names) for v, names in plan.splits.items()},
        None if clock is None else (clock.origin, clock.seconds, clock.speed),
        columns={
            v.name: (v.epochs.column, v.epochs.ticks)
            for v in plan.vertices
            if v.epochs is not None and v.epochs.column is not None
        },
    )


def layout_of(plan: Plan) -> Layout:
    """What must be the same in whoever goes on from a cut of this plan."""
    shapes = {}
    for vertex in plan.vertices:
        shape = None if vertex.spec is None else shape_of(vertex.spec)
        shapes[vertex.name] = "" if shape is None else shape.fingerprint
    return Layout(plan.groups, plan.ticks, shapes, tuple(_in_words(plan, e) for e in plan.edges))


def _in_words(plan: Plan, edge: Edge) -> str:
    producer, consumer = plan.vertices[edge.producer], plan.vertices[edge.consumer]
    port = producer.ports[edge.port]
    words = f"{edge.schema.fingerprint} from {port.node} to {consumer.name}"
    if port.late:
        words = f"late {words}"
    return words if edge.key is None else f"{words} by {', '.join(edge.key)}"


SHOWN = 5
"""So many splits are shown of those that were not there before, or are not now."""

_SPLITS = (
    "Splits are as they were when the job began: what came later is for a run of its own. Or begin"
    " anew: --fresh, resume=False."
)


def _without(names: Sequence[str], others: Sequence[str]) -> str:
    """Which names the others do not have; all, where it is their order that differs."""
    only = [n for n in names if set(names) == set(others) or n not in others]
    more = f" and {len(only) - SHOWN} more" if len(only) > SHOWN else ""
    return ", ".join(only[:SHOWN]) + more if only else "none but those"


def refuse_unlike(plan: Plan, saved: Saved) -> None:
    """Check that a plan can go on from a saved cut.

    Raises:
        StateError: its graph or splits are others, or a state has another shape and no `upgrade`.
    """
    upgraded, upgrades = [], {}
    for vertex in plan.vertices:
        shape = None if vertex.spec is None else shape_of(vertex.spec)
        if shape is None or not shape.may_take(saved.layout.shapes.get(vertex.name, "")):
            continue
        upgrades[vertex.name] = shape.upgrade_words
        if shape.state.upgrade is not None:
            upgraded.append(vertex.name)
    refuse_other(saved, layout_of(plan), upgraded, upgrades)
    for v, names in plan.splits.items():
        source = plan.vertices[v].name
        if (then := saved.splits[source]) != tuple(names):
            before, after = _without(then, names), _without(names, then)
            raise differs(saved, f"other splits of {source}", before, after, _SPLITS)
