"""The tables of phases: what can happen is in them, and what happens at random is too."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raystream.controller.options import Options
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.messages.events import Event
from raystream.controller.protocol.move_requests import RescaleRequest
from raystream.controller.protocol.parts import placement_steps, rebalancing
from raystream.controller.protocol.parts.rebalancing import MovePhase
from raystream.controller.protocol.phases import (
    Ignored,
    PhaseTable,
    Subject,
    markdown,
    mermaid,
    rule,
)
from raystream.controller.protocol.placement import PlacementPhase
from raystream.dataflow.progress import Progress
from raystream.errors import ConfigError, InternalError
from raystream.simulation.simulator import planned
from raystream.state.keys import even_ranges

PAGE = Path(__file__).resolve().parents[3] / "docs" / "internals" / "protocol.md"
NODES = ("a", "b", "c")
LAST = 200
"""The last epoch of the input."""
TABLES: dict[str, tuple[PhaseTable[Any, Any], Enum]] = {
    "placement": (placement_steps.TABLE, PlacementPhase.WAITING),
    "move": (rebalancing.TABLE, MovePhase.WANTED),
}


class Light(Enum):
    RED = "stop"
    GREEN = "go"


class Press(Enum):
    BUTTON = "a button is pressed"
    HORN = "a horn is blown"
    POLE = "a car hits the pole"


def _press(owner: object, subject: Subject[Light], to: Light) -> tuple[Light, list[Command]]:
    return to, [do.Keep("k", "a")]


LIGHTS: PhaseTable[Light, Press] = PhaseTable(
    "light",
    {
        (Light.RED, Press.BUTTON): rule(_press, Light.GREEN),
        (Light.RED, Press.HORN): Ignored("it hears nothing"),
    },
)


def test_an_event_leads_to_the_next_phase_and_its_commands() -> None:
    light = Subject(phase=Light.RED)
    assert LIGHTS.step(None, light, Press.HORN) == [] and light.phase is Light.RED
    assert LIGHTS.step(None, light, Press.BUTTON, Light.GREEN) == [do.Keep("k", "a")]
    assert light.phase is Light.GREEN


def test_what_is_not_in_the_table_is_a_bug_that_tells_the_story() -> None:
    light = Subject(phase=Light.RED)
    with pytest.raises(InternalError, match=r"POLE came in phase RED.*before: nothing"):
        LIGHTS.step(None, light, Press.POLE)
    with pytest.raises(InternalError, match="BUTTON in phase RED led to RED"):
        LIGHTS.step(None, light, Press.BUTTON, Light.RED)
    LIGHTS.step(None, light, Press.BUTTON, Light.GREEN)
    with pytest.raises(InternalError, match="before: BUTTON in RED: GREEN"):
        LIGHTS.step(None, light, Press.BUTTON, Light.RED)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_shows_the_table_and_the_picture_of_the_code(name: str) -> None:
    """Where it does not, `python -m tests.controller.protocol.test_phases` prints what is right."""
    table, first = TABLES[name]
    page = PAGE.read_text(encoding="utf-8")
    assert markdown(table) in page
    assert f"```mermaid\n{mermaid(table, first)}\n```" in page


@pytest.mark.parametrize("name", TABLES)
def test_every_phase_and_event_is_in_its_table(name: str) -> None:
    table, first = TABLES[name]
    phases, events = {p for p, _ in table.rows}, {e for _, e in table.rows}
    then = {p for row in table.rows.values() if not isinstance(row, Ignored) for p in row.then}
    assert phases | then == {*type(first)}
    assert events == {*type(next(iter(events)))}


# ---------------------------------------------------------------- at random


class World:
    """Processes, nodes and people around a machine, which do at random what real ones may do."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.plan = replace(planned("words", (1, 2))[0], checkpoint_every=10)
        self.options = Options(
            copies=rng.randint(1, 2),
            spares=rng.randint(0, 2),
            recovery=rng.choice(("state",) * 6 + ("upstream", "source")),
            restore_into=rng.randint(1, 2),
        )
        self.unlucky = rng.choice((0.1, 0.1, 0.9))
        self.nodes, self.now, self.epoch, self.number = NODES, 100.0, 0, 1
        self.hires: list[do.Hire] = []
        self.asked: list[do.Become | do.Deliver] = []
        self.dying: list[str] = []
        self.machine = Machine(self.plan, self.options)
        self.do(self.machine.start(self.nodes, [], self.now))

    # ------------------------------------------------------------ the shell

    def do(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case do.Hire():
                    self.hires.append(command)
                case do.Adopt(process):
                    self.hear(on.Gone(process, "it has a place that nobody knows"))
                case do.Become() | do.Deliver():
                    self.asked.append(command)
                case do.Kill(process):
                    self.dying.append(process)

    def hear(self, event: Event) -> None:
        self.do(self.machine.handle(event, self.now))
        self.check()

    def check(self) -> None:
        """Phases are what they say."""
        for p in self.machine._job.placements:
            assert (p.phase is PlacementPhase.WAITING) == bool(p.waiting)
            assert (p.phase is PlacementPhase.RESTORING) == bool(p.preparing and not p.waiting)
            assert (p.phase is PlacementPhase.DELIVERING) == bool(p.delivering)
            assert (p.phase is PlacementPhase.STOPPING) == bool(p.stopping)
        states = self.machine.moves._states
        assert {*states} == {m.operator for m in self.machine.journal.moves}
        under_way = {p.operator for p in self.machine._job.placements}
        for move in self.machine.journal.moves:
            phase = states[move.operator].phase
            assert (phase is MovePhase.CATCHING_UP) == bool(move.new)
            assert (phase is MovePhase.PLACING) == (move.operator in under_way)

    # ------------------------------------------------------------ what happens

    def happen(self) -> None:
        """Something happens."""
        self.now += self.rng.choice((0.01, 0.1, 0.1, 1.0, 6.0))
        things = [self.hired] * 6 + [self.answered] * 8 + [self.said] * 8 + [self.tick] * 5
        things += [self.ended] * 4 + [self.dies] * 2 + [self.asks] * 3
        things += [self.keeper_dies, self.drains, self.restarts, self.waits]
        self.rng.choice(things)()

    def hired(self) -> None:
        if self.hires:
            hire = self.hires.pop(self.rng.randrange(len(self.hires)))
            if self.rng.random() < (self.unlucky if self.machine.members else 0.1):
                self.hear(on.Gone(hire.process, "its node is gone"))
            else:
                node = hire.node or self.rng.choice(self.nodes)
                self.hear(on.Hired(hire.process, node, 1))

    def answered(self, *, well: bool = False) -> None:
        """A process answers, be it late."""
        if not self.asked:
            return
        asked = self.asked.pop(self.rng.randrange(len(self.asked)))
        process, attempt = asked.process, asked.attempt
        luck = 1.0 if well else self.rng.random()
        if isinstance(asked, do.Deliver):
            why = "" if luck > 0.2 else "its log was cut"
            self.hear(on.Delivered(process, attempt, max(asked.committed, self.epoch), why, 9))
        elif luck < 0.05:
            self.hear(on.AlreadyPlaced(process, attempt))
        elif luck < 0.1:
            self.hear(on.Missing(process, attempt, again=True))
        elif luck < 0.12:
            self.hear(on.Missing(process, attempt))
        elif luck < 0.13:
            self.hear(on.Failed(process, ConfigError("another version")))
        else:
            self.hear(on.Became(process, attempt, "grpc://", 9))

    def said(self, *, all_of_them: bool = False) -> None:
        self.epoch = min(LAST, self.epoch + self.rng.randrange(4))
        for m in list(self.machine.members):
            if all_of_them or self.rng.random() < 0.8:
                least = max(self.machine.journal.committed, self.epoch - 2)
                at = max(
                    m.progress.position if m.progress else 0, self.rng.randint(least, least + 2)
                )
                at = min(at, self.epoch, LAST) if at < LAST else LAST
                told = Progress(
                    vertex=m.record.place.operator,
                    instance=m.record.place.index,
                    position=at,
                    ended=at == LAST,
                    name=m.name,
                    stored=at,
                    version=self.machine.journal.assignment.version,
                    committed=self.machine.journal.committed,
                    kept=m.record.kept,
                )
                self.hear(on.Heard(m.record.process, told))

    def tick(self) -> None:
        self.hear(on.Tick(self.nodes))

    def ended(self) -> None:
        """It is heard that a process which was killed has ended."""
        if self.dying:
            self.hear(on.Gone(self.dying.pop(), "killed"))

    def dies(self) -> None:
        """A process dies, with or without a place."""
        found = [m.record.process for m in self.machine.members]
        found += [b.process for b in self.asked]
        found += [s for p in self.machine._job.placements for s in sorted(p.processes)]
        if found and self.rng.random() < 0.5:
            self.hear(on.Gone(self.rng.choice(found), "killed"))

    def keeper_dies(self) -> None:
        keepers = self.machine.journal.keepers
        if keepers:
            self.hear(on.Gone(self.rng.choice(keepers).process, "killed"))

    def asks(self) -> None:
        """Somebody asks for a move."""
        operator = self.rng.choice(("count", "count", "chain", "collect", "lines"))
        owners = {
            m.name: m.record.place.keys
            for m in self.machine.owners
            if m.record.place.operator == operator
        }
        ranges, leave = tuple(owners.values()), tuple(owners)[:1]
        if operator == "count" and self.rng.random() < 0.7:
            ranges, leave = tuple(even_ranges(self.plan.groups, self.rng.randint(1, 3))), ()
        mode = "handover" if self.rng.random() < 0.6 else "replay"
        node = self.rng.choice(("", "", *self.nodes))
        wanted = RescaleRequest(operator, ranges, "tested", leave, node, mode)  # type: ignore[arg-type]
        self.hear(on.Rescale(1, (wanted,)))

    def drains(self) -> None:
        if self.rng.random() < 0.2:
            self.hear(on.Drain(1, self.rng.choice(self.nodes), "it is to be left"))

    def restarts(self) -> None:
        """Another controller goes on; answers to the old one may still reach it."""
        if self.rng.random() < 0.5 or not self.machine.members:
            return
        alive = [m.record.process for m in self.machine.members]
        alive += [b.process for b in self.asked]
        self.number += 1
        self.hires = []
        self.machine = Machine(self.plan, self.options, self.machine.journal, self.number)
        self.do(self.machine.start(self.nodes, alive, self.now))
        self.check()

    def waits(self) -> None:
        self.now += self.rng.choice((20.0, 70.0, 400.0))
        self.tick()

    def settle(self) -> None:
        """All goes well from now on."""
        for _ in range(60):
            while self.hires or self.asked or self.dying:
                if self.machine.ended:
                    return
                if self.hires:
                    hire = self.hires.pop()
                    self.hear(on.Hired(hire.process, hire.node or self.nodes[0], 1))
                if self.asked:
                    self.answered(well=True)
                self.ended()
            self.said(all_of_them=True)
            self.now += 1.0
            self.tick()


@contextmanager
def counted() -> Iterator[Counter[tuple[str, str, str]]]:
    """Counts the rows of all tables that are used."""
    seen: Counter[tuple[str, str, str]] = Counter()
    step = PhaseTable.step

    def noted(
        self: PhaseTable[Any, Any], owner: object, subject: Any, event: Enum, *told: Any
    ) -> Any:
        seen[self.what, subject.phase.name, event.name] += 1
        return step(self, owner, subject, event, *told)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PhaseTable, "step", noted)
        yield seen


def run(seed: int, steps: int) -> World:
    world = World(seed)
    for _ in range(steps):
        if world.machine.ended:
            break
        world.happen()
    return world


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32), st.integers(0, 300))
def test_nothing_that_can_happen_is_missing_in_the_tables_and_placements_end(
    seed: int, steps: int
) -> None:
    world = run(seed, steps)
    world.settle()
    assert world.machine.ended or not world.machine._job.placements


def test_every_row_of_the_tables_can_happen() -> None:
    """And a late answer is dropped, and counted."""
    rows = {(n, p.name, e.name) for n, (table, _) in TABLES.items() for p, e in table.rows}
    dropped: Counter[str] = Counter()
    with counted() as seen:
        for seed in range(600):
            dropped += run(seed, 300).machine.placements.dropped
            if rows <= {*seen} and {"Became", "Delivered"} <= {*dropped}:
                break
    assert not rows - {*seen}
    assert dropped["Became"] and dropped["Delivered"]


if __name__ == "__main__":
    for what, (table, first) in TABLES.items():
        print(f"\n{what}\n\n```mermaid\n{mermaid(table, first)}\n```\n\n{markdown(table)}")
