"""Tables of phases: what an event makes of something that is in one of several phases.

A table has a row for every pair of a phase and an event that can occur:

    (Phase.WAITING, On.GIVEN): Rule(give, Phase.RESTORING)
    (Phase.WAITING, On.TICK): Ignored("it waits for processes as long as it takes")

A rule's function does what follows from the event and returns the next phase, which has to be one
that the rule names, and the commands. A pair that is not in the table is a bug of raystream: it is
an `InternalError` that tells how the subject came there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NoReturn, TypeVar

from raystream.controller.protocol.messages.commands import Command
from raystream.errors import InternalError

P = TypeVar("P", bound=Enum)
K = TypeVar("K", bound=Enum)

STORY_MAX = 100
"""How many steps a subject remembers: the newest."""


@dataclass(eq=False, kw_only=True)
class Subject(Generic[P]):
    """Something that goes from phase to phase, and remembers how it came where it is."""

    phase: P
    """The phase in which it is. Only `PhaseTable.step` changes it."""
    story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY_MAX), repr=False)
    """Its steps so far, in words."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[P]):
    """What an event does in a phase."""

    does: Callable[..., tuple[P, list[Command]]]
    """Called with the owner of the table, the subject and what the event brings; returns the next
    phase and the commands that follow."""
    then: frozenset[P]
    """The phases in which the subject may be afterwards."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """An event that can come in a phase and changes nothing."""

    why: str
    """Why nothing follows."""


def rule(does: Callable[..., tuple[P, list[Command]]], *then: P) -> Rule[P]:
    """A rule with its next phases."""
    return Rule(does, frozenset(then))


class PhaseTable(Generic[P, K]):
    """All pairs of a phase and an event that can occur.

    Args:
        what: what goes through the phases, in one word.
    """

    def __init__(self, what: str, rows: Mapping[tuple[P, K], Rule[P] | Ignored]) -> None:
        self.what = what
        self.rows = dict(rows)

    def step(self, owner: object, subject: Subject[P], event: K, *told: Any) -> list[Command]:
        """Do what follows from an event, and bring the subject into its next phase.

        Raises:
            InternalError: the event cannot occur in this phase, or the rule's function returned a
                phase that the rule does not name.
        """
        before = subject.phase
        row = self.rows.get((before, event))
        if row is None:
            self._fail(subject, f"{event.name} came in phase {before.name}")
        if isinstance(row, Ignored):
            return []
        after, commands = row.does(owner, subject, *told)
        if after not in row.then:
            self._fail(subject, f"{event.name} in phase {before.name} led to {after.name}")
        subject.phase = after
        subject.story.append(f"{event.name} in {before.name}: {after.name}")
        return commands

    def _fail(self, subject: Subject[P], what: str) -> NoReturn:
        story = "; ".join(subject.story) or "nothing"
        raise InternalError(f"a {self.what}: {what}; {subject}; before: {story}")


def markdown(table: PhaseTable[Any, Any]) -> str:
    """A table as text in Markdown, a line for each of its rows."""
    lines = ["| Phase | Event | Function | Then |", "|---|---|---|---|"]
    for (phase, event), row in table.rows.items():
        then = f"ignored: {row.why}" if isinstance(row, Ignored) else _names(row.then, phase)
        then = then or "the job ends"
        does = "" if isinstance(row, Ignored) else f"`{row.does.__name__}`"
        lines.append(f"| `{phase.name}` | `{event.name}` | {does} | {then} |")
    return "\n".join(lines)


def mermaid(table: PhaseTable[Any, Any], first: Enum) -> str:
    """A table as a state diagram in Mermaid: an arrow for every change of phase."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (phase, event), row in table.rows.items():
        for after in sorted(row.then, key=_order) if isinstance(row, Rule) else ():
            if after is not phase:
                arrows.setdefault((phase.name, after.name), []).append(event.name)
    lines = ["stateDiagram-v2", f"    [*] --> {first.name}"]
    lines += [f"    {a} --> {b}: {', '.join(on)}" for (a, b), on in arrows.items()]
    ends = {a for _, a in arrows} - {a for a, _ in arrows}
    return "\n".join([*lines, *(f"    {end} --> [*]" for end in sorted(ends))])


def _names(phases: frozenset[Enum], before: Enum) -> str:
    return " or ".join(
        f"stays `{p.name}`" if p is before else f"`{p.name}`" for p in sorted(phases, key=_order)
    )


def _order(phase: Enum) -> int:
    return list(type(phase)).index(phase)
