"""What can happen to a placement: the functions of its table of phases, and the table."""

from __future__ import annotations

from raystream.controller.protocol.job import Job
from raystream.controller.protocol.members import Member, SpareProcess, process_of
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.parts.hiring import Hiring
from raystream.controller.protocol.phases import Ignored, PhaseTable, rule
from raystream.controller.protocol.placement import Placement, PlacementEvent, PlacementPhase
from raystream.controller.protocol.recovery import (
    ATTEMPTS_MAX,
    Place,
    checkpoint_lost,
    successors,
)
from raystream.errors import JobError

Step = tuple[PlacementPhase, list[Command]]


class PlacementSteps:
    """Brings placements from phase to phase."""

    def __init__(self, job: Job, hiring: Hiring) -> None:
        self._job = job
        self._hiring = hiring

    def give(self, p: Placement, matched: list[tuple[SpareProcess, Place]]) -> Step:
        """There is a process for every waiting place: they are given them."""
        given = {spare.process: (spare, place) for spare, place in matched}
        for process in given:
            self._hiring.spares.pop(process, None)  # it was started by the name of its first place
        p.waiting.clear()
        if p.newest and not p.processes:
            p.committed = self._job.entry.committed
        p.preparing.update(given)
        commands = p.purpose.given(p)
        commands += [self._become(p, name, place) for name, (_, place) in given.items()]
        return PlacementPhase.RESTORING, commands

    def _become(self, p: Placement, process: str, place: Place) -> Command:
        entry = self._job.entry
        holders = tuple(k.process for k in entry.keepers) if p.committed else ()
        held = p.purpose.donor(p, place) is not None
        attempt = p.attempt(process, entry.incarnation)
        versions = entry.assignment.settled
        return do.Become(process, place, p.committed, holders, held, attempt, versions)

    def widened(self, p: Placement, gone: tuple[Member, ...], dead: list[Member]) -> Step:
        """More instances have died: their places are taken too."""
        p.gone += gone
        for m in gone:
            place = m.record.place
            split = m in dead and self._job.is_operator(place)
            into = self._job.options.restore_into if split else 1
            p.waiting += successors(place, into, self._job.free_index(place.vertex))
        return PlacementPhase.WAITING, []

    def restored(self, p: Placement, event: on.Became) -> Step:
        """A process has its state."""
        p.ready[event.process] = (*p.preparing.pop(event.process), event.address)
        p.nbytes += event.nbytes
        if p.waiting:
            return PlacementPhase.WAITING, []
        return (PlacementPhase.RESTORING if p.preparing else PlacementPhase.READY), []

    def state_lost(self, p: Placement, process: str) -> Step:
        """No keeper has the state of a process. Only a move can do without."""
        place = p.preparing[process][1]
        if not p.operator:
            raise checkpoint_lost(place, p.committed)
        p.why = f"{place.name} could not be made: the keeper of its checkpoint died"
        return PlacementPhase.BROKEN, []

    def keeper_died(self, p: Placement, process: str) -> Step:
        """A keeper died while a process fetched its state: it tries again; a move comes to
        nothing."""
        if p.operator:
            return self.state_lost(p, process)
        place = p.preparing[process][1]
        self._count(p, place, "the keeper of its checkpoint died")
        return p.phase, [self._become(p, process, place)]

    def taken(self, p: Placement, process: str) -> Step:
        """Another controller has given the process a place: it is of no use."""
        place, why = p.preparing[process][1], "another controller gave it a place"
        self._leave(p, process)
        commands = self._hiring.dismiss([process], why)
        if p.operator:
            p.why = f"{place.name} could not be made: {why}"
            return PlacementPhase.BROKEN, commands
        return PlacementPhase.WAITING, commands

    def _leave(self, p: Placement, process: str) -> None:
        """A process is of no use, or gone, and with it all places that share it. Other processes
        are to take these; of a move, none."""
        for shared in [s for s in p.processes if process_of(s) == process_of(process)]:
            taken = p.preparing.pop(shared, None) or p.ready.pop(shared)
            p.attempts.pop(shared, None)
            if not p.operator:
                p.waiting.append(taken[1])

    def died(self, p: Placement, process: str, why: str) -> Step:
        """A process died before it began: another one takes its places; a move comes to nothing."""
        place = p.preparing[process][1] if process in p.preparing else p.ready[process][1]
        if not p.operator:
            self._count(p, place, why)
        self._leave(p, process)
        # The process may only be late, and hold all that it was given.
        commands = self._hiring.dismiss([process], why)
        if not p.operator:
            return PlacementPhase.WAITING, commands
        p.why = f"{place.name} died before it began: {why}"
        return PlacementPhase.BROKEN, commands

    def _count(self, p: Placement, place: Place, why: str) -> None:
        p.failures[place] += 1
        if p.failures[place] >= ATTEMPTS_MAX:
            raise JobError(f"{place.name} could not be made, {ATTEMPTS_MAX} times: {why}")

    def broken(self, p: Placement, why: str) -> Step:
        """It comes to nothing."""
        p.why = why
        return PlacementPhase.BROKEN, []

    def go_on(self, p: Placement) -> Step:
        """All processes have their state: the purpose says what is next."""
        return p.purpose.go_on(p)

    def delivered(self, p: Placement, event: on.Delivered) -> Step:
        """An owner has delivered. When all have, the candidates begin."""
        p.delivering.discard(event.process)
        p.nbytes += event.nbytes
        for taker, (_, place, _) in p.ready.items():
            donor = p.purpose.donor(p, place)
            if donor is not None and donor.record.process == event.process:
                p.bases[taker] = event.epoch
        if p.delivering:
            return PlacementPhase.DELIVERING, []
        return PlacementPhase.OVER, p.purpose.delivered(p, event)

    def delivering(self, p: Placement) -> Step:
        """Owners that do not deliver in time are not waited for."""
        p.why = p.purpose.overdue(p)
        return (PlacementPhase.BROKEN if p.why else PlacementPhase.DELIVERING), []

    def stopped(self, p: Placement, process: str) -> Step:
        """An old instance has ended. When all have, the new ones begin."""
        p.stopping.discard(process)
        if p.stopping:
            return PlacementPhase.STOPPING, []
        return PlacementPhase.OVER, p.purpose.stopped(p)

    def stopping(self, p: Placement) -> Step:
        """Old instances that do not end are told again, and left behind after a while."""
        p.told = p.told or self._job.now  # it may have taken long until the journal was written
        if p.purpose.overdue(p):  # they are left behind, as the dead are that cannot be reached
            p.stopping.clear()
            return PlacementPhase.OVER, p.purpose.stopped(p)
        # A controller that was overtaken must kill nothing, so the journal is written first.
        commands = self._job.journal.write()
        because = "its place is another's"
        commands += [do.Kill(process, because, True) for process in sorted(p.stopping)]
        return PlacementPhase.STOPPING, commands

    def abandoned(self, p: Placement) -> Step:
        """The placement is over; its move ends its processes."""
        return PlacementPhase.OVER, []


WAITING, RESTORING, READY = PlacementPhase.WAITING, PlacementPhase.RESTORING, PlacementPhase.READY
DELIVERING, STOPPING = PlacementPhase.DELIVERING, PlacementPhase.STOPPING
BROKEN, OVER = PlacementPhase.BROKEN, PlacementPhase.OVER
On = PlacementEvent

_END = rule(PlacementSteps.abandoned, OVER)

TABLE: PhaseTable[PlacementPhase, PlacementEvent] = PhaseTable(
    "placement",
    {
        (WAITING, On.GIVE): rule(PlacementSteps.give, RESTORING),
        (WAITING, On.WIDENED): rule(PlacementSteps.widened, WAITING),
        (WAITING, On.RESTORED): rule(PlacementSteps.restored, WAITING),
        (WAITING, On.KEEPER_DIED): rule(PlacementSteps.keeper_died, WAITING),
        (WAITING, On.STATE_LOST): rule(PlacementSteps.state_lost),
        (WAITING, On.TAKEN): rule(PlacementSteps.taken, WAITING),
        (WAITING, On.DIED): rule(PlacementSteps.died, WAITING),
        (WAITING, On.UNHIRED): rule(PlacementSteps.broken, BROKEN),
        (WAITING, On.TICK): Ignored("processes are asked for again, as long as it takes"),
        (WAITING, On.ABANDON): _END,
        (RESTORING, On.WIDENED): rule(PlacementSteps.widened, WAITING),
        (RESTORING, On.RESTORED): rule(PlacementSteps.restored, RESTORING, READY),
        (RESTORING, On.KEEPER_DIED): rule(PlacementSteps.keeper_died, RESTORING, BROKEN),
        (RESTORING, On.STATE_LOST): rule(PlacementSteps.state_lost, BROKEN),
        (RESTORING, On.TAKEN): rule(PlacementSteps.taken, WAITING, BROKEN),
        (RESTORING, On.DIED): rule(PlacementSteps.died, WAITING, BROKEN),
        (RESTORING, On.TICK): Ignored("a process that does not answer in time counts as dead"),
        (RESTORING, On.ABANDON): _END,
        (READY, On.GO_ON): rule(PlacementSteps.go_on, OVER, DELIVERING, STOPPING),
        (DELIVERING, On.DELIVERED): rule(PlacementSteps.delivered, DELIVERING, OVER),
        (DELIVERING, On.UNDELIVERED): rule(PlacementSteps.broken, BROKEN),
        (DELIVERING, On.DIED): rule(PlacementSteps.died, BROKEN),
        (DELIVERING, On.TICK): rule(PlacementSteps.delivering, DELIVERING, BROKEN),
        (DELIVERING, On.ABANDON): _END,
        (STOPPING, On.STOPPED): rule(PlacementSteps.stopped, STOPPING, OVER),
        (STOPPING, On.DIED): rule(PlacementSteps.died, BROKEN),
        (STOPPING, On.TICK): rule(PlacementSteps.stopping, STOPPING, OVER),
        (BROKEN, On.ABANDON): _END,
    },
)
"""What can happen to a placement, and what follows."""
