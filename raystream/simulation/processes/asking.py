"""How simulated instances ask the world: one key group after the other, and each answer of it is
another one, whoever asks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from raystream.dataflow.asking.answers import recorded
from raystream.dataflow.asking.calls import WorldCalls
from raystream.dataflow.asking.questions import Asked, Question, calls_of
from raystream.dataflow.instances.asking import AskingInstance
from raystream.dataflow.register import Boundary, HeldBoundary
from raystream.dataflow.upgrading.versions import version_at
from raystream.simulation.processes.register import Ledger, SimulatedClaimer
from raystream.simulation.world import Box, World, Wrong

ANSWER = 0.05
"""How long the world takes to answer."""
LOOK = 0.1


class SimulatedAsking:
    """Asks for the instance in `box`.

    Args:
        owns: whether the instance owns its range. answered: called when there are answers.
    """

    def __init__(
        self,
        world: World,
        box: Box,
        machine: AskingInstance,
        ledger: Ledger,
        owns: Callable[[], bool],
        answered: Callable[[], None],
    ) -> None:
        self.claimer = SimulatedClaimer(world, box)
        self._world, self._box, self._ledger = world, box, ledger
        self._machine, self._owns, self._answered = machine, owns, answered
        self._calls = self._made_calls()
        self._waiting: deque[Asked] = deque()
        self._busy = False
        machine.upgraded.append(self._go_over)

    def _made_calls(self) -> WorldCalls:
        spec, name, world = self._machine.spec, self._machine.vertex.name, self._world
        return WorldCalls(spec, name, "sim", lambda: world.now, world.rng.random)

    def _go_over(self) -> None:
        """The instance runs other code now, with which it asks."""
        if self._busy or self._waiting:
            raise Wrong(f"{self._box.name} has gone over to other code while it asks")
        self._calls = self._made_calls()
        self._world.after(0.0, self._box, self._answered)  # what has come may be asked now

    def turn(self) -> None:
        """Ask what can be asked by now."""
        self._waiting.extend(self._machine.questions())
        if not self._busy:
            self._next()

    def _next(self) -> None:
        self._busy = bool(self._waiting)
        if self._waiting:
            asked = self._waiting.popleft()
            by_group: dict[int, list[Question]] = {}
            for question in asked.questions:
                by_group.setdefault(question.group, []).append(question)
            self._group(asked.epoch, [*by_group.items()], {})

    def _group(
        self, epoch: int, left: list[tuple[int, list[Question]]], held: dict[int, Boundary]
    ) -> None:
        """Ask for one key group, and then for those after it."""
        if not left:
            for group, boundary in held.items():
                self._ledger.publish(self._name(group), epoch, boundary)
            self._machine.answer(epoch, held)
            self._next()
            self._answered()
            return
        (group, questions), *rest = left
        name, world = self._name(group), self._world

        def agreed(answer: HeldBoundary) -> None:
            self._group(epoch, rest, {**held, group: answer.boundary})

        def seen(found: dict[str, Boundary]) -> None:
            if name in found:
                self.claimer.want(name, epoch, found[name], agreed)
            else:  # try again: it may be the owner by now
                world.after(LOOK, self._box, self._group, epoch, left, held)

        def ask() -> None:
            self.claimer.want(name, epoch, self._asked(epoch, questions), agreed)

        known = self.claimer.claims.known(name, epoch)
        if known is not None:
            agreed(known)
        elif self._owns():
            world.after(ANSWER, self._box, ask)
        else:
            self.claimer.look(epoch, [name], seen)

    def _name(self, group: int) -> str:
        return self._machine.entry(group)

    def _check_version(self, epoch: int) -> None:
        """Check that no epoch is asked by code that is known not to make it."""
        switching = self._machine.switching
        version = version_at(switching.told, epoch)
        if switching.told and switching.version != (0 if version is None else version.number):
            raise Wrong(f"{self._box.name} asks for epoch {epoch}, which {version} makes")

    def _asked(self, epoch: int, questions: list[Question]) -> Boundary:
        """Ask now, in any order, and make the entry of the answers."""
        spec, emitted = self._calls.spec, list[Any]()
        self._check_version(epoch)
        calls = list(calls_of(spec, questions))
        if spec.asking is not None and not spec.asking.ordered and not spec.keyed:
            self._world.rng.shuffle(calls)
        for call in calls:
            try:
                result = self._calls.context(call).run(self._calls.begin, call)
                answers = self._calls.emitted(call, result)
            except Exception as error:
                answers = self._calls.failed(call, error)
            emitted += [record for answer in answers for record in answer]
        return recorded(spec, "", epoch, emitted, len(questions))
