"""A job that tests ask for moves of ranges, and drive through them."""

from __future__ import annotations

from raystream.controller.options import Options
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.members import Member
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.move_requests import MoveMode, RescaleRequest
from raystream.schema.types import KeyRange
from raystream.state.keys import even_ranges
from tests.controller.protocol.driven import NODES, Driven

GROUPS = 16
HALVES = tuple(even_ranges(GROUPS, 2))
ALL = KeyRange(0, GROUPS)
STATE_BYTES = 1000
"""Of each new instance."""


class Moved(Driven):
    """A job at epoch 25 with a cut at 20, which is asked for moves."""

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self.start()
        self.at(25)
        self.tick()
        self.said.clear()

    def ask(self, operator: str, *ranges: KeyRange, leave: tuple[str, ...] = (), node: str = "",
            mode: MoveMode = "replay") -> str:  # fmt: skip
        wanted = RescaleRequest(operator, ranges, "tested", leave, node, mode)
        self.hear(on.Rescale(7, (wanted,)))
        return self.all(do.Answer)[-1].refusal

    def hire(self, node: str = "a") -> None:
        """Whoever is to be started is."""
        done = {h.process for h in self.hired}
        for hire in [h for h in self.all(do.Hire) if h.process not in done]:
            self.hired.append(hire)
            self.hear(on.Hired(hire.process, hire.node or node, 1))

    def restore(self) -> None:
        """Whoever was given a place has its state."""
        for become in self.given:
            self.hear(self.became(become.process, f"grpc://{become.process}", STATE_BYTES))

    @property
    def given(self) -> list[do.Become]:
        ready = {m.record.process for m in self.machine.members}
        return [b for b in self.all(do.Become) if b.process not in ready]

    def members(self, operator: str) -> dict[str, Member]:
        found = [m for m in self.machine.members if m.record.place.operator == operator]
        return {m.name: m for m in found}

    def owners(self, operator: str) -> dict[str, KeyRange]:
        found = [m.record.place for m in self.machine.owners]
        return {p.name: p.keys for p in found if p.operator == operator}

    def die(self, name: str) -> None:
        member = next(m for m in self.machine.members if m.name == name)
        self.hear(on.Gone(member.record.process, "killed"))

    def record(self) -> tuple[str, tuple[str, ...], int, str]:
        """Of the last move: operator, who took ranges, attempts, why it was given up."""
        last = self.machine.journal.moved[-1]
        return last.operator, last.new, last.tries, last.failed

    hired: list[do.Hire]

    def start(self) -> None:
        self.hired = []
        super().start()
        self.hired = self.all(do.Hire)

    def restart(self) -> None:
        """Another controller goes on from the journal; everybody answers it."""
        alive = [m.record.process for m in self.machine.members]
        alive += [p.process for p in self.machine.journal.keepers]
        alive += [b.process for b in self.given]
        self.machine = Machine(self.plan, self.options, self.machine.journal, 2)
        self.said.clear()
        self.hear_of(self.machine.start(NODES, alive, self.now))
        for adopt in self.all(do.Adopt):
            self.hear(on.Gone(adopt.process, "it has a place that nobody knows"))


def grow(job: Moved, *ranges: KeyRange) -> None:
    assert job.ask("count", *ranges) == ""
    job.hire()
    finish(job)
    assert set(job.owners("count").values()) == set(ranges)


def finish(job: Moved) -> None:
    """What was given places has its state, and everybody is level."""
    job.restore()
    job.at(25 if job.machine.journal.committed < 30 else 45)
    job.tick()


def on_its_way(step: str) -> Moved:
    """A move that was asked for, whose processes were given their places, or are candidates."""
    job = Moved()
    job.ask("count", *HALVES)
    if step != "asked":
        job.hire()
    if step == "candidates":
        job.restore()
    return job


def delivered(deliver: do.Deliver, epoch: int, why: str = "", nbytes: int = 0) -> on.Delivered:
    return on.Delivered(deliver.process, deliver.attempt, epoch, why, nbytes)
