"""A machine that tests drive by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from raystream.controller import commands as do
from raystream.controller.commands import Command, Event
from raystream.controller.machine import Machine
from raystream.controller.members import Options
from raystream.controller.report import Progress
from raystream.testing.simulator import planned

NODES = ("a", "b")
C = TypeVar("C")


class Driven:
    """A machine, its clock, and all that it commanded."""

    def __init__(self, options: Options | None = None, **changes: object) -> None:
        plan = planned("words", (1, 1))[0]
        self.plan = replace(plan, **{"cut_every": 10, **changes})
        self.options = options or Options(spares=0)
        self.machine = Machine(self.plan, self.options)
        self.now = 100.0
        self.said: list[Command] = []

    def start(self) -> None:
        """Bring it to where all places are taken."""
        self.hear_of(self.machine.start(NODES, [], self.now))
        for i, hire in enumerate(self.all(do.Hire)):
            self.hear(do.Hired(hire.process, NODES[i % 2], i))
        for become in self.all(do.Become):
            self.hear(do.Became(become.process, f"grpc://{become.process}"))

    def hear(self, event: Event) -> list[Command]:
        return self.hear_of(self.machine.handle(event, self.now))

    def hear_of(self, commands: list[Command]) -> list[Command]:
        written = False
        for command in commands:  # nothing is decided that is not in the journal
            written = written or isinstance(command, do.Write)
            assert written or not isinstance(command, do.Kill | do.Begin | do.Trim | do.End)
        self.said += commands
        return commands

    def all(self, kind: type[C]) -> list[C]:
        return [c for c in self.said if isinstance(c, kind)]

    def at(self, position: int, *, only: str = "", **changes: object) -> None:
        """Everybody is there, or one alone, and has stored all cuts up to there."""
        for m in self.machine.members:
            if only not in ("", m.name):
                continue
            told = {"stored": position, "version": self.machine.journal.assignment.version}
            progress = Progress(
                m.seat.place.operator, m.seat.place.index, position, False, 0, 0, 0, 0, 0, 0.0,
                name=m.name, kept=m.seat.kept, floor=self.machine.journal.committed,
            )  # fmt: skip
            self.hear(do.Heard(m.seat.process, replace(progress, **{**told, **changes})))

    def tick(self, nodes: tuple[str, ...] = NODES) -> list[Command]:
        return self.hear(do.Tick(nodes))

    def process(self, operator: str) -> str:
        return next(
            m.seat.process for m in self.machine.members if m.seat.place.operator == operator
        )
