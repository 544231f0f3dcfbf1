"""The loop of a controller: events go into the job's machine, and what it commands is done.

One thread runs it. Nothing here is called by Ray; `controller.py` is what Ray calls.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from raystream.actors.cluster.head import UNREACHABLE
from raystream.actors.control.actor_names import processes_of
from raystream.actors.control.answers import Charter
from raystream.actors.control.exporter import Exporter, Tracer
from raystream.actors.control.nodes import Nodes
from raystream.actors.control.processes import ActorPool
from raystream.actors.control.reporter import Reporter
from raystream.actors.control.requests import Requests
from raystream.controller.elastic.scaling import Scaling
from raystream.controller.elastic.thread_sharing import ThreadSharing
from raystream.controller.protocol.journal import JournalEntry
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.members import whose_turn
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.messages.events import Event
from raystream.controller.protocol.move_requests import LEAVE_AGAIN_SECONDS
from raystream.controller.reporting.report import JobReport
from raystream.controller.reporting.story import Notes
from raystream.dataflow.plan import Plan

POLL_SECONDS = 0.25
"""How often each instance is asked for its progress."""
TURNS = 3
"""The instances are asked in this many turns. To ask all of them at once would take the processors
from the flow for milliseconds."""


class JobLoop:
    """Runs the machine of one job to the job's end.

    Args:
        entry: the newest entry of the journal, after a restart; None for a job that begins.
        incarnation: the number of this controller among those of the job.
        processes: the actors of the job.
        requests: what clients ask for.
    """

    def __init__(
        self,
        charter: Charter,
        plan: Plan,
        entry: JournalEntry | None,
        incarnation: int,
        processes: ActorPool,
        requests: Requests,
    ) -> None:
        self.plan = plan
        self.machine = Machine(plan, charter.options, entry, incarnation)
        self.reporter = Reporter(plan, self.machine, processes)
        self.notes = Notes()
        self.ready = False
        """Whether clients may ask the machine."""
        self._run = charter.run
        self._options = charter.options
        self._begins_from = entry
        self._actors = processes
        self._requests = requests
        self._nodes = Nodes(charter.run, self.note)
        self._exporter = Exporter(plan.job, again=entry is not None)
        traces = charter.options.traces
        self._tracer = traces and Tracer(plan.job, charter.run, traces, self.note)
        self._scaling: Scaling | None = None
        self._sharing = ThreadSharing(plan)
        self._hires: list[do.Hire] = []
        """Processes that are to be started when the head answers again."""
        self._turn = 0
        self._asked = self._polled = 0.0

    def run(self) -> JobReport:
        """Run the job to its end.

        Raises:
            RaystreamError: the job has failed. Fenced: another controller has taken over.
        """
        todo = deque(self._begin())
        while True:
            self._do(todo)
            if self.machine.ended and not todo:
                if self._tracer:
                    self._tracer.close(self.machine)
                return self.reporter.report()
            now = time.monotonic()
            if now - self._asked >= POLL_SECONDS / TURNS:
                self._asked = now
                self._ask_some()
            if now - self._polled >= POLL_SECONDS:
                self._polled = now
                todo += self._poll()
            wait = max(0.0, self._asked + POLL_SECONDS / TURNS - time.monotonic())
            for event in self._actors.events(wait):
                todo += self._hear(event)
            for request in self._requests.heard():
                todo += self._hear(request)

    def note(self, text: str) -> None:
        """Say something in the story of the job."""
        started = self.machine.journal.started
        self.notes.say(text, time.time() - started if started else 0.0)

    def _begin(self) -> list[Command]:
        options, entry = self._options, self._begins_from
        if options.policy is not None:
            self._scaling = Scaling(self.plan, options.policy, options.bounds)
        if options.pool is not None:
            self._nodes.take_pool(options.pool, again=entry is not None)
        self.ready = True
        alive: list[str] = []
        if entry is not None:
            alive = processes_of(self._run)
            self._actors.watch_keepers({k.process: k.node for k in entry.keepers})
        self._nodes.look()
        nodes = self._nodes
        return self.machine.start(nodes.alive, alive, time.time(), nodes.for_operators, nodes.zones)

    def _poll(self) -> list[Command]:
        """Hear what has come in, take a sample, look at the nodes, have the policy decide."""
        todo: list[Command] = []
        for event in self._actors.events(0.0):  # this may be late, and those came before
            todo += self._hear(event)
        self._tell()
        self.reporter.sample()
        if self._exporter.due() and self.reporter.started:
            self._exporter.give(self.reporter.status(self._run, self.notes.said))
        if self._tracer:
            self._tracer.look(self.machine)
        if self._nodes.due():
            self._nodes.look()
            self._actors.restores.links.learn((), self._nodes.alive)
            self._actors.look_after(k.process for k in self.machine.journal.keepers)
            with suppress(*UNREACHABLE):
                todo += self._leave_nodes()
        todo += self._hear(on.Tick(self._nodes.alive, self._nodes.for_operators, self._nodes.zones))
        return todo + self._scale()

    def _tell(self) -> None:
        """Put into the story what came of restores."""
        told, self._actors.restores.told = self._actors.restores.told, []
        for text in told:
            self.note(text)

    def _ask_some(self) -> None:
        """Ask the instances whose turn it is for their progress."""
        self._turn = (self._turn + 1) % TURNS
        moving = {move.operator for move in self.machine.journal.moves}
        for process in whose_turn(self.machine.members, moving, self._turn, TURNS):
            self._actors.ask(process)

    def _hear(self, event: Event) -> list[Command]:
        if isinstance(event, on.Gone):
            self._nodes.doubt()
        return self.machine.handle(event, time.time())

    def _do(self, todo: deque[Command]) -> None:
        """Do commands in order, as long as the journal can be written.

        Raises:
            RaystreamError: the job has failed.
        """
        head_answers = self._nodes.head_answers
        if head_answers:
            todo.extendleft(self._hires[::-1])
            self._hires = []
        while todo:
            if isinstance(todo[0], do.Write):
                do.catch_up(todo)
            if isinstance(todo[0], do.Keep) and not head_answers:
                return  # what follows names the keeper
            command = todo.popleft()
            if isinstance(command, do.Hire) and not head_answers:
                self._hires.append(command)
                continue
            if isinstance(command, do.Kill) and self._is_put_off(command.process):
                continue
            if isinstance(command, do.Answer):
                self._requests.answer(command.request, command.refusal)
                continue
            if isinstance(command, do.End):
                if command.error is not None:
                    raise command.error
                return
            if isinstance(command, do.Write):
                if not self._actors.write(command):
                    todo.appendleft(command)
                    self._hear_at_once(todo)
                    return
                self.reporter.written = command.entry
            else:
                self._actors.perform(command)
            self._hear_at_once(todo)

    def _is_put_off(self, process: str) -> bool:
        """Whether a process was to be started later. It is not started any more."""
        there = len(self._hires)
        self._hires = [hire for hire in self._hires if hire.process != process]
        return len(self._hires) < there

    def _hear_at_once(self, todo: deque[Command]) -> None:
        for event in self._actors.at_once():
            todo += self._hear(event)

    def _leave_nodes(self) -> list[Command]:
        """Leave nodes that end, and those that the pool gives back."""
        asked: list[Command] = []
        for node, because in self._nodes.to_leave(self.machine).items():
            asked += self._ask_self(partial(on.Drain, node=node, because=because))
        return asked

    def _scale(self) -> list[Command]:
        """Ask for what the policy finds."""
        machine = self.machine
        if not machine.members or machine.ended:
            return []
        asked = self._ease()
        if self._scaling is None:
            return asked
        now = time.time() - self.reporter.started
        found = self._scaling.look(machine.owners, machine.journal.moves, now)
        for note in found.notes:
            self.note(note)
        for wanted in found.wanted:
            asked += self._ask_self(partial(on.Rescale, wanted=(wanted,)))
        return asked

    def _ease(self) -> list[Command]:
        """Ask for moves off shared threads, and back to them."""
        machine, now = self.machine, time.time()
        if not self._sharing.is_due(now):  # as at nearly every turn
            return []
        lately = machine.journal.given_up_since(now - LEAVE_AGAIN_SECONDS)
        asked: list[Command] = []
        for turn in self._sharing.look(machine.threads(), now, lately):
            if not machine.journal.moves:
                wanted = turn.request(machine.owners)
                asked += self._ask_self(partial(on.Rescale, wanted=(wanted,)))
        return asked

    def _ask_self(self, request: Callable[[int], Event]) -> list[Command]:
        """Hand the machine a request of the controller's own; a refusal is told in its story."""
        return self._hear(self._requests.own(request, self.note))
