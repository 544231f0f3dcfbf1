"""A machine that tests drive by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from raystream.controller.options import Options
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.messages.events import Event
from raystream.dataflow.progress import Progress
from raystream.simulation.references import planned

NODES = ("a", "b")
C = TypeVar("C")


class Driven:
    """A machine, its clock, and all that it commanded."""

    def __init__(
        self,
        options: Options | None = None,
        *,
        instances: tuple[int, ...] = (1, 1),
        **changes: object,
    ) -> None:
        plan = planned("words", instances)[0]
        self.plan = replace(plan, **{"checkpoint_every": 10, **changes})
        self.options = options or Options(spares=0)
        self.machine = Machine(self.plan, self.options)
        self.now = 100.0
        self.said: list[Command] = []
        self.attempts: dict[str, do.Attempt] = {}

    def start(self) -> None:
        """Bring it to where all places are taken."""
        self.hear_of(self.machine.start(NODES, [], self.now))
        for i, hire in enumerate(self.all(do.Hire)):
            self.hear(on.Hired(hire.process, NODES[i % 2], i))
        for become in self.all(do.Become):
            self.hear(self.became(become.process, f"grpc://{become.process}"))

    def hear(self, event: Event) -> list[Command]:
        return self.hear_of(self.machine.handle(event, self.now))

    def hear_of(self, commands: list[Command]) -> list[Command]:
        written = False
        for command in commands:  # nothing is decided that is not in the journal
            written = written or isinstance(command, do.Write)
            assert written or not isinstance(command, do.Kill | do.Begin | do.Trim | do.End)
        self.said += commands
        self.attempts |= {c.process: c.attempt for c in commands if isinstance(c, do.Become)}
        return commands

    def became(self, process: str, address: str, nbytes: int = 0) -> on.Became:
        """The answer of a process to the newest request to take a place."""
        return on.Became(process, self.attempts[process], address, nbytes)

    def missing(self, process: str, *, again: bool = False) -> on.Missing:
        """The same, when it could not be given its state."""
        return on.Missing(process, self.attempts[process], again=again)

    def all(self, kind: type[C]) -> list[C]:
        return [c for c in self.said if isinstance(c, kind)]

    def at(self, position: int, *, only: str = "", **changes: object) -> None:
        """Everybody is there, or one alone, and has stored all cuts up to there."""
        for m in self.machine.members:
            if only not in ("", m.name):
                continue
            told = {"stored": position, "version": self.machine.journal.assignment.version}
            progress = Progress(
                vertex=m.record.place.operator,
                instance=m.record.place.index,
                position=position,
                name=m.name,
                kept=m.record.kept,
                committed=self.machine.journal.committed,
            )
            self.hear(on.Heard(m.record.process, replace(progress, **{**told, **changes})))

    def tick(self, nodes: tuple[str, ...] = NODES) -> list[Command]:
        return self.hear(on.Tick(nodes))

    def process(self, operator: str) -> str:
        return next(
            m.record.process for m in self.machine.members if m.record.place.operator == operator
        )


def kinds(commands: list[Command]) -> list[str]:
    return [type(c).__name__ for c in commands]
