"""The boundary register: which keepers hold it, and that the sources know them."""

from __future__ import annotations

from raystream.controller.protocol.job import Job
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.register_views import (
    Registering,
    answered,
    change,
    due,
    filled,
    first,
    resumed,
)


class BoundaryRegister:
    """Has enough keepers hold the boundary register, and tells the sources which they are."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._state: Registering | None = None
        self._stage: tuple[int, bool, bool] | None = None  # how far the commands given last were

    @property
    def settled(self) -> bool:
        """Whether no change of its places is under way."""
        return self._state is None or self._state.settled

    def handed(self, event: on.Handed) -> None:
        """A place has said what it holds, or a source what it knows."""
        if self._state is not None:
            self._state = answered(self._state, event.view, event.process, event.content)

    def filled(self, event: on.Filled) -> None:
        """A place was filled."""
        if self._state is not None:
            self._state = filled(self._state, event.view, event.process)

    def update(self, *, again: bool) -> list[Command]:
        """The commands that are due now. A job that has nothing to record has no register.

        Args:
            again: whether to repeat commands that were not answered.
        """
        job = self._job
        if not job.claiming_vertices or not job.members or job.ended:
            return []
        entry, committed = job.entry, job.entry.committed
        places = entry.places(job.options.copies)
        living = [p.process for p in entry.keepers]
        claiming = job.claiming
        alive = [m for m in claiming if not m.dead]
        told = {m.record.process: m.progress.view if m.progress else 0 for m in alive}
        state = self._state
        if state is None and entry.view:
            state = resumed(entry.view, entry.told, entry.knowing)
        elif state is None:
            state = first(places, told, job.plan.begins)
        if due(state, places, living, told):
            ended = [(m, m.progress) for m in claiming if m.progress and m.progress.ended]
            over = [m.record.process for m, p in ended if p.position <= committed]
            vacant = [m.record.process for m in claiming if m.dead]
            state = change(state, places, living, told, vacant, over)
        commands: list[Command] = []
        if (state.begun.number, state.told) != (entry.view, entry.told):
            number = state.begun.number
            commands += job.journal.write(view=number, told=state.told, knowing=state.knowing)
        stage = (state.begun.number, state.content is None, state.settled)
        if again or stage != self._stage:
            commands += state.commands(told)
        self._state, self._stage = state, stage
        return commands
