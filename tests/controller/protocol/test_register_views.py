"""The boundary register under faults: one boundary for all, whoever dies or is replaced."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from raystream.controller.protocol import register_views as registering
from raystream.controller.protocol.register_views import (
    AskContent,
    Fill,
    Recall,
    Registering,
    Tell,
    answered,
    change,
    due,
    filled,
    first,
    resumed,
)
from raystream.dataflow.register import Boundaries, Boundary, HeldBoundary, PlaceSet, Register
from raystream.errors import InternalError, JobError
from raystream.simulation.processes import register as simregister
from raystream.simulation.processes.register import (
    Cast,
    Ledger,
    Noted,
    RegisterPlace,
    Registrar,
    SimulatedClaimer,
)
from raystream.simulation.world import Box, World, Wrong

SCHEDULES = 150
TRIES = 600
"""Schedules in which a broken protocol has to be caught."""
EPOCHS = 25
KINDS = (
    *("source", "place", "both", "in turn", "then place"),
    *("sleep", "controller", "commit", "commit"),
)
SPLITS = ("a", "b", "c")
PACE = 0.1
POLL = 0.1
EVENTS_MAX = 30_000


class Source:
    """A source instance with a split of its own: it publishes epoch after epoch."""

    def __init__(self, job: Job, split: str, number: int, committed: int) -> None:
        self.job, self.split = job, split
        self.name = f"{split}.{number}"
        self.box = Box(self.name)
        self.claimer = SimulatedClaimer(job.world, self.box)
        self.position = committed
        self._go_on()

    def _go_on(self) -> None:
        if self.position < EPOCHS:
            self.job.world.after(PACE, self.box, self._want)

    def _want(self) -> None:
        wanted = Boundary(self.job.world.rng.randrange(1 << 40), 0, False)
        self.claimer.want(self.split, self.position + 1, wanted, self._publish)

    def _publish(self, held: HeldBoundary) -> None:
        self.position += 1
        self.job.world.tell(self.name, "publishes", self.position, held.boundary.position)
        self.job.ledger.publish(self.split, self.position, held.boundary)
        self._go_on()


class Job:
    """Sources, places and a controller, which may die."""

    def __init__(self, world: World, copies: int) -> None:
        self.world = world
        self.copies = copies
        self.ledger = Ledger()
        self.journal = Noted()
        self.committed = 0
        self.error: JobError | None = None
        self.places: dict[str, RegisterPlace] = {}
        self.seen: dict[str, RegisterPlace] = {}
        for node in range(3):
            self.place(node)
        self.splits = SPLITS[: world.rng.randrange(1, len(SPLITS) + 1)]
        self.sources = {s: Source(self, s, 0, 0) for s in self.splits}
        self.missing: set[str] = set()
        self.registrar = self.controller()
        self._poll()

    def place(self, node: int) -> None:
        place = RegisterPlace(f"{node}.{len(self.places)}")
        self.places[place.name] = place
        self.seen = {n: p for n, p in self.seen.items() if n[0] != str(node)}
        self.seen[place.name] = place

    def controller(self) -> Registrar:
        box = Box("controller")
        return Registrar(self.world, box, self.journal, self.cast, self.lose)

    def cast(self) -> Cast:
        living = sorted(self.seen.values(), key=lambda p: p.name)
        there = {s.name: s.claimer for k, s in self.sources.items() if k not in self.missing}
        vacant = frozenset(self.sources[k].name for k in self.missing)
        return Cast(living[: self.copies], living, there, vacant)

    def lose(self, error: JobError) -> None:
        """It is lost only if no place of the newest view is left."""
        if any(name in self.seen for name in self.journal.told.places):
            raise Wrong(f"it is not lost: {error}")
        self.error = error

    @property
    def over(self) -> bool:
        done = all(s.position == EPOCHS for s in self.sources.values())
        return self.error is not None or (done and not self.missing)

    def _poll(self) -> None:
        if self.registrar.box.alive:
            self.registrar.poll()
        self.world.at(self.world.now + POLL, None, self._poll)

    def commit(self) -> None:
        """All that are alive have reached the floor."""
        reached = min(s.position for s in self.sources.values())
        if reached > self.committed and not self.missing:
            self.committed = reached
            for place in self.places.values():
                self.world.send(PACE, place, place.boundaries.trim, reached)
            for source in self.sources.values():
                self.world.send(PACE, source.box, source.claimer.claims.trim, reached)

    # ------------------------------------------------------------ what goes wrong

    def strike(self) -> None:
        rng = self.world.rng
        kind = rng.choice(KINDS)
        self.world.tell(kind)
        if kind in ("source", "both", "then place"):
            self._replace(rng.choice(self.splits))
        if kind in ("place", "both", "in turn"):
            self._drop(rng.choice(sorted(self.seen)))
        if kind == "in turn":
            self.world.after(1.0, None, self._replace, rng.choice(self.splits))
        if kind == "then place":
            self.world.after(0.35, None, self._drop_any)
        if kind == "sleep":
            boxes = [s.box for s in self.sources.values()] + list(self.seen.values())
            box = rng.choice(sorted(boxes, key=lambda b: b.name))
            box.asleep = True
            self.world.after(rng.choice((0.2, 2.0)), None, self.world.wake, box)
        if kind == "controller" and self.registrar.box.alive:
            self.registrar.box.alive = False
            self.world.after(0.3, None, self._restart)
        if kind == "commit":
            self.commit()

    def _restart(self) -> None:
        self.registrar = self.controller()

    def _replace(self, split: str) -> None:
        """Its source is dead, or seems to be, and goes on publishing."""
        if split not in self.missing:
            self.missing.add(split)
            self.sources[split].box.alive = self.world.rng.random() < 0.6
            self.world.after(0.5, None, self._substitute, split)

    def _substitute(self, split: str) -> None:
        number = int(self.sources[split].name.split(".")[1]) + 1
        self.sources[split] = Source(self, split, number, self.committed)
        self.missing.discard(split)

    def _drop_any(self) -> None:
        self._drop(min(self.seen))

    def _drop(self, name: str) -> None:
        self.seen[name].alive = self.world.rng.random() < 0.5
        self.place(int(name[0]))


def simulate(seed: int) -> tuple[str, Job]:
    """How a schedule ends: "right" or "lost". Raises what a checker or the protocol found."""
    world = World(seed, story=True)
    rng = world.rng
    world.loss, world.doubling, world.slow = (rng.random() * m for m in (0.1, 0.4, 0.1))
    job = Job(world, rng.choice((1, 2, 2, 3)))
    faults = _times(rng)
    while not job.over and world.events < EVENTS_MAX:
        while faults and faults[0] <= world.events:
            faults.pop(0)
            job.strike()
        if not faults:
            world.loss = world.slow = 0.0
        world.step()
    if not job.over:
        raise Wrong(f"it does not go on: {job.registrar.state}")
    for _ in range(500):  # those that were replaced go on
        world.step()
    return ("lost" if job.error else "right"), job


def _times(rng: random.Random) -> list[int]:
    """After how many events faults strike, often soon after each other."""
    times: list[int] = []
    for _ in range(rng.randrange(15)):
        near = times and rng.random() < 0.6
        times.append(times[-1] + rng.randrange(80) if near else rng.randrange(1200))
    return sorted(times)


def told(seed: int) -> str:
    try:
        return simulate(seed)[0]
    except (Wrong, InternalError) as error:
        return f"wrong: {error}"


def test_nothing_is_published_twice_with_different_boundaries() -> None:
    outcomes = [told(seed) for seed in range(SCHEDULES)]
    assert not [(seed, o) for seed, o in enumerate(outcomes) if o.startswith("wrong")]
    assert outcomes.count("right") > SCHEDULES * 0.6
    assert "lost" in outcomes


def test_nor_by_fresh_seeds() -> None:
    fresh = random.SystemRandom().randrange(1 << 32)
    for seed in range(fresh, fresh + 50):
        assert told(seed) in ("right", "lost"), seed


# ---------------------------------------------------------------- a broken protocol is noticed


def _takes_claims_under_any_view(patch: pytest.MonkeyPatch) -> None:
    claim = Register.claim

    def any_view(self: Register, view: int, *args: Any) -> HeldBoundary | None:
        return claim(self, self.view if self.view == self.filled else view, *args)

    patch.setattr(Register, "claim", any_view)


def _hands_over_and_goes_on(patch: pytest.MonkeyPatch) -> None:
    def hand(self: Register, view: int) -> Boundaries | None:
        return self._table.content

    patch.setattr(Register, "hand", hand)


def _fills_with_nothing(patch: pytest.MonkeyPatch) -> None:
    fill = Register.fill
    patch.setattr(
        Register,
        "fill",
        lambda self, view, content: fill(self, view, Boundaries(content.committed)),
    )


def _fills_again(patch: pytest.MonkeyPatch) -> None:
    def fill(self: Register, view: int, content: Boundaries) -> bool:
        if view >= self.view:
            self.view = self.filled = view
            self._table.replace(content)
        return True

    patch.setattr(Register, "fill", fill)


def _asks_one_place_only(patch: pytest.MonkeyPatch) -> None:
    def claim(view: PlaceSet[Any], *args: Any) -> Any:
        return (yield from _claim(PlaceSet(view.number, view.places[:1]), *args))

    _claim = simregister.claim
    patch.setattr(simregister, "claim", claim)


def _tells_successors_of_old_views(patch: pytest.MonkeyPatch) -> None:
    """Views change with their places only, and whoever is there counts as one who knows."""
    commands = Registering.commands

    def is_due(state: Registering, places: Any, living: Any, sources: Any) -> bool:
        return due(state, places, living, state.readers) and due(state, places, living, sources)

    def any_source(state: Registering, places: Any, living: Any, sources: Any, vacant: Any) -> Any:
        return change(replace(state, knowing=frozenset(sources)), places, living, sources, vacant)

    def to_all(self: Registering, views: Any) -> Any:
        return commands(replace(self, readers=frozenset(views)), views)

    patch.setattr(Registering, "commands", to_all)
    patch.setattr(simregister, "due", is_due)
    patch.setattr(simregister, "change", any_source)


def _forgets_who_is_vacant(patch: pytest.MonkeyPatch) -> None:
    def careless(state: Registering, places: Any, living: Any, sources: Any, _: Any) -> Any:
        return change(state, places, living, sources)

    patch.setattr(simregister, "change", careless)


BROKEN = (
    _forgets_who_is_vacant,
    _takes_claims_under_any_view,
    _hands_over_and_goes_on,
    _fills_with_nothing,
    _fills_again,
    _asks_one_place_only,
    _tells_successors_of_old_views,
)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda f: f.__name__[1:])
def test_a_broken_protocol_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    monkeypatch.setattr(registering, "merged", _any)
    assert any("published" in told(seed) for seed in range(TRIES))


def _any(parts: Iterable[Boundaries]) -> Boundaries:
    """Conflicts are not noticed by the code under test: the ledger has to."""
    held: dict[tuple[str, int], Boundary] = {}
    committed = 0
    for part in parts:
        held |= part.held
        committed = max(committed, part.committed)
    return Boundaries(committed, held)


# ---------------------------------------------------------------- state by state

X, Y = Boundary(3, 10, False), Boundary(5, 12, False)


def settled(*places: str, sources: tuple[str, ...] = ("s", "t")) -> Registering:
    state = first(places, sources)
    for place in places:
        state = filled(state, 1, place)
    return state


def test_a_view_is_told_when_all_its_places_are_filled() -> None:
    state = first(["p", "q"], ["s"])
    assert state.commands({"s": 0}) == [Fill(1, "p", Boundaries()), Fill(1, "q", Boundaries())]
    state = filled(filled(state, 1, "p"), 0, "q")
    assert state.commands({"s": 0}) == [Fill(1, "q", Boundaries())]
    state = filled(state, 1, "q")
    assert state.told == PlaceSet(1, ("p", "q"))
    assert state.commands({"s": 0, "other": 0}) == [Tell(state.told, "s", Boundaries())]
    assert state.commands({"s": 1}) == []


def test_a_new_view_holds_what_any_survivor_holds() -> None:
    state = settled("p", "q", "r")
    assert not due(state, ["p", "q", "r"], "pqr", ["s", "t"])
    assert due(state, ["q", "r", "u"], "qru", ["s", "t"])
    state = change(state, ["q", "r", "u"], "qru", ["s", "t"])
    assert state.commands({}) == [AskContent(2, "q"), AskContent(2, "r")]
    state = answered(state, 2, "q", Boundaries(4, {("a", 5): X}))
    assert answered(state, 2, "r", None) == answered(state, 1, "r", Boundaries()) == state
    assert due(state, ["q", "r", "u"], "qu", ["s", "t"])
    state = answered(state, 2, "r", Boundaries(3, {("a", 4): X, ("b", 5): Y}))
    content = Boundaries(4, {("a", 5): X, ("b", 5): Y})
    assert state.commands({}) == [Fill(2, p, content) for p in "qru"]
    state = change(state, ["r", "u"], "ru", ["s", "t"])  # all is at hand: nobody is asked again
    assert state.commands({}) == [Fill(3, p, content) for p in "ru"]


def test_where_no_place_is_left_the_sources_are_asked() -> None:
    state = change(settled("p"), ["q"], "q", ["s", "t"])
    assert state.commands({}) == [Recall(2, "s", 1), Recall(2, "t", 1)]
    state = answered(state, 2, "s", Boundaries(0, {("a", 1): X}))
    with pytest.raises(JobError, match=r"register is lost: its places are gone \(p\), .* what t"):
        answered(state, 2, "t", None)
    state = answered(state, 2, "t", Boundaries(0, {("b", 1): Y}))
    assert state.commands({})[0] == Fill(2, "q", Boundaries(0, {("a", 1): X, ("b", 1): Y}))


def test_it_is_lost_with_a_source_that_knew_of_it() -> None:
    with pytest.raises(JobError, match="what t knew"):
        change(settled("p"), ["q"], "q", ["s", "new"])
    state = change(settled("p"), ["q"], "q", ["s", "new"], over=["t"])
    assert state.commands({}) == [Recall(2, "s", 1)]


def test_it_is_lost_with_a_source_that_nobody_had_replaced() -> None:
    """Its place had a view without it: only the place knew what it had published."""
    state = change(settled("p"), ["p"], "p", ["s"], vacant=["t"])
    state = filled(answered(state, 2, "p", Boundaries(0, {("b", 1): Y})), 2, "p")
    assert state.told == PlaceSet(2, ("p",))
    with pytest.raises(JobError, match="what t knew"):
        change(state, ["q"], "q", ["s", "new"])


def test_a_controller_goes_on_from_its_journal() -> None:
    state = resumed(7, PlaceSet(5, ("p", "q")), ["s"])
    assert due(state, ["p", "q"], "pq", ["s"])
    assert state.commands({"s": 5}) == []
    state = change(state, ["p", "q"], "pq", ["s"])
    assert state.commands({"s": 5}) == [AskContent(8, "p"), AskContent(8, "q")]


def test_two_boundaries_for_one_epoch_are_a_bug() -> None:
    state = change(settled("p", "q"), ["p", "q"], "pq", ["s"])
    state = answered(state, 2, "p", Boundaries(0, {("a", 1): X}))
    with pytest.raises(InternalError, match="epoch 1 of a ends both at"):
        answered(state, 2, "q", Boundaries(0, {("a", 1): Y}))
