"""The controller actor: runs a job's machine, does what it says, reports.

A detached actor that Ray restarts: it then goes on from its journal, while data flows.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError

from raystream.actors.asking import Requests
from raystream.actors.naming import actor, kill, processes_of, restarts
from raystream.actors.pool import NodePool, ending, release
from raystream.actors.staff import Environment, Fenced, Staff
from raystream.controller import commands as do
from raystream.controller.commands import Command, Event
from raystream.controller.journal import Entry, newest
from raystream.controller.keeping import KEEPER
from raystream.controller.machine import Machine
from raystream.controller.members import Options, whose_turn
from raystream.controller.moves import Mode, Move, Wanted, elsewhere, evenly
from raystream.controller.pool import OPERATOR_NODE, PoolOptions, told
from raystream.controller.report import (
    Floor,
    JobReport,
    Moved,
    OperatorReport,
    Progress,
    Sample,
    Samples,
    totals,
)
from raystream.controller.scaling import Scaling
from raystream.controller.status import Status, status_of
from raystream.controller.story import Notes
from raystream.dataflow.plan import Plan
from raystream.errors import ConfigError, InternalError, JobError, RaystreamError, Stopped, lost

POLL_SECONDS = 0.25
"""How often each instance is asked for its progress."""
TURNS = 3
"""In so many turns: to ask all at once would take the processors from the flow for milliseconds."""
NODES_SECONDS = 1.0
"""How often Ray is asked which nodes are alive."""
ORPHAN_SECONDS = 60.0
"""How long a job that has ended, or has not begun, waits for somebody who wants it."""
HEAR_SECONDS = 1.0
"""How long who stopped a job may take to hear of its end: who submitted it then ends this process.
"""
UNREACHABLE = (RayError, OSError, RuntimeError)
"""What Ray raises while its cluster does not answer."""
FIND_SECONDS = 60.0
"""How long a keeper, which may be starting, may take to show its journal; then it is dead."""


class Charter(NamedTuple):
    """What a controller is made with, also when Ray makes it again. run: a name that no other run
    of any job has."""

    run: str
    token: str
    env: Environment
    options: Options


class Standing(NamedTuple):
    """How a job stands. ended: how it ended; empty while it runs. unsaved: why the newest cut that
    was to be in the durable tier is not, if it is not."""

    ended: str
    unsaved: str


class Moves(NamedTuple):
    """Moves of a job: those under way, and those that have ended. over: so has the job."""

    under_way: tuple[Move, ...]
    ended: tuple[Moved, ...]
    over: bool = False


class Controller:
    """Runs one job; `run` returns when the job has ended."""

    def __init__(self, charter: Charter) -> None:
        self._charter = charter
        self._machine: Machine
        self._staff: Staff
        self._plan: Plan
        self._requests = Requests()
        self._samples = Samples()
        self._known: dict[str, OperatorReport] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._over = threading.Event()
        self._result: JobReport | RaystreamError
        self._nodes: tuple[str, ...] = ()
        self._for_operators: frozenset[str] = frozenset()
        self._looked = 0.0  # at the nodes
        self._turn = 0
        self._scaling: Scaling | None = None
        self._pool: NodePool | None = None
        self._notes = Notes()
        self._incarnation = 1
        self._restarts = restarts()
        context: Any = ray.get_runtime_context()
        self._again: bool = context.was_current_actor_reconstructed
        try:
            if self._again:
                self._go_on()
        except Exception as error:  # an actor that raises here is not begun again, and tells nobody
            self._lost(str(error))
        # Only now: to find the journal takes as long when a keeper is late.
        self._leave_after(ORPHAN_SECONDS, unless=lambda: self._thread is not None)

    # ------------------------------------------------------------ calls

    def run(self, plan: Plan) -> JobReport | RaystreamError:
        """Run a job to its end. Errors are returned, not raised: Ray would wrap them.

        Called again after a restart: it then waits for the job that goes on.
        """
        with self._lock:
            if self._thread is None and self._again and plan.durable is not None:
                self._lost("the controller died with all keepers")
            elif self._thread is None:
                self._begin(plan, None)
        self._over.wait()
        if isinstance(self._result, Stopped):
            time.sleep(HEAR_SECONDS)
        return self._result

    @ray.method(concurrency_group="control")
    def samples(self, since: float) -> list[Sample]:
        """The samples later than `since` seconds after the start."""
        with self._lock:
            return self._samples.after(since)

    @ray.method(concurrency_group="control")
    def progress(self) -> list[Progress]:
        """What every instance said last."""
        return self._machine.progress() if self._ready.is_set() else []

    @ray.method(concurrency_group="control")
    def status(self) -> Status | None:
        """How the job stands; None if it has not begun yet, or has ended (see `standing`)."""
        if not self._ready.is_set() or self._over.is_set():
            return None
        machine, entry = self._machine, self._machine.journal
        members = list(machine.members)
        run, floor = self._charter.run, self._floor()
        return status_of(self._plan, run, entry, members, floor, time.time(), self._notes.said)

    @ray.method(concurrency_group="control")
    def cancel(self) -> None:
        """End the job as soon as possible."""
        self._requests.put(do.Cancel())

    @ray.method(concurrency_group="control")
    def stop_saved(self) -> str:
        """End the job once a cut is saved that is taken now; why not, if that cannot be."""
        if not self._ready.is_set():
            return "the job has not begun yet"
        if self._plan.durable is None:
            return "the job has no durable tier: it was started without --durable"
        self._requests.put(do.Save())
        return ""

    @ray.method(concurrency_group="control")
    def scale(self, instances: dict[str, int], because: str, mode: Mode = "replay") -> str:
        """Have operators served by so many instances that share their key groups evenly; why not,
        if that cannot be."""
        if not self._ready.is_set():
            return "the job has not begun yet"
        try:
            ranges = {o: evenly(self._plan, o, n) for o, n in instances.items()}
        except ConfigError as error:
            return str(error)
        wanted = tuple(Wanted(o, r, because, mode=mode) for o, r in ranges.items())
        return self._requests.ask(lambda number: do.Rescale(number, wanted))

    @ray.method(concurrency_group="control")
    def move(self, instance: str, node: str, because: str, mode: Mode = "replay") -> str:
        """Replace an instance by one on another node ("" for any); why not, if that cannot be."""
        if not self._ready.is_set():
            return "the job has not begun yet"
        seats = {m.name: m.seat.place for m in self._machine.owners}
        owned = {name: (place.operator, place.keys) for name, place in seats.items()}
        try:
            wanted = elsewhere(instance, node, owned, because, mode)
        except ConfigError as error:
            return str(error)
        return self._requests.ask(lambda number: do.Rescale(number, (wanted,)))

    @ray.method(concurrency_group="control")
    def drain(self, node: str, because: str) -> str:
        """Have a node left by all instances and not used again; why not, if that cannot be."""
        if not self._ready.is_set():
            return "the job has not begun yet"
        return self._requests.ask(lambda number: do.Drain(number, node, because))

    @ray.method(concurrency_group="control")
    def moves(self) -> Moves | None:
        """All moves; None if the job has not begun yet, or its controller has not."""
        if not self._ready.is_set():
            return Moves((), (), True) if self._over.is_set() else None
        entry = self._machine.journal
        return Moves(entry.moves, entry.moved, self._machine.ended)

    @ray.method(concurrency_group="control")
    def standing(self) -> Standing:
        """How the job stands."""
        unsaved = self._machine.unsaved if self._ready.is_set() else ""
        if not self._over.is_set():
            return Standing("", unsaved)
        error = self._result if isinstance(self._result, RaystreamError) else None
        return Standing("all its input was processed" if error is None else str(error), unsaved)

    # ------------------------------------------------------------ life

    def _go_on(self) -> None:
        """After a restart: from the journal; anew, when asked to run, if the job had not begun."""
        run = self._charter.run
        processes = [(p, a) for p in processes_of(run) if (a := actor(run, p)) is not None]
        keepers = [a for p, a in processes if p.startswith(KEEPER)]
        self._incarnation, found = claim(keepers, int(time.time()))
        entry = newest(found)
        if entry is not None:
            self._begin(self._kept_plan(keepers), entry)
        elif any(_begun(a) for p, a in processes if not p.startswith(KEEPER)):
            self._lost("the controller died with all keepers that held it")
        else:
            for process, _ in processes:
                kill(run, process)

    def _lost(self, why: str) -> None:
        self._result = lost(f"the job is lost, it cannot go on from its journal: {why}")
        for process in processes_of(self._charter.run):
            kill(self._charter.run, process)
        self._leave_pool()
        self._thread = threading.current_thread()
        self._over.set()
        self._leave_after(ORPHAN_SECONDS)

    def _kept_plan(self, keepers: list[Any]) -> Plan:
        for keeper in keepers:
            with suppress(RayError):
                plan: Plan = ray.get(keeper.plan.remote(), timeout=FIND_SECONDS)
                return plan
        raise JobError("the plan of the job is lost with the keepers that held it")

    def _begin(self, plan: Plan, entry: Entry | None) -> None:
        self._thread = threading.Thread(target=self._live, args=(plan, entry), daemon=True)
        self._thread.start()

    def _live(self, plan: Plan, entry: Entry | None) -> None:
        try:
            self._result = self._drive(plan, entry)
        except RaystreamError as error:
            self._result = error
        except Fenced:
            os._exit(1)  # what this process holds is another's now
        except BaseException as error:
            self._result = InternalError(f"the controller: {type(error).__name__}: {error}")
        try:
            self._leave_pool()
            self._requests.close()
            if hasattr(self, "_staff"):
                members = self._machine.members if hasattr(self, "_machine") else []
                with suppress(*UNREACHABLE):
                    self._staff.dismiss([m.seat.process for m in members])
        finally:  # somebody waits for the result
            self._over.set()
            self._leave_after(ORPHAN_SECONDS)  # whoever asked for the result ends this process

    def _leave_pool(self) -> None:
        """Ask for no nodes any more, also for those that an earlier process of this actor did."""
        if self._charter.options.pool is not None:
            with suppress(Exception):  # Ray itself may be going down
                release(self._charter.run)

    def _leave_after(self, seconds: float, unless: Callable[[], bool] = lambda: False) -> None:
        """End this process some time later, if nobody else has and it has nothing to do."""
        me: Any = ray.get_runtime_context()
        myself = me.current_actor

        def leave() -> None:
            time.sleep(seconds)
            if not unless():
                ray.kill(myself)

        threading.Thread(target=leave, daemon=True).start()

    def _drive(self, plan: Plan, entry: Entry | None) -> JobReport:
        charter = self._charter
        self._plan = plan
        ships = charter.options.recovery == "state"
        self._staff = Staff(plan, charter.run, charter.token, charter.env, ships, self._restarts)
        self._machine = Machine(plan, charter.options, entry, self._incarnation)
        if charter.options.policy is not None:
            self._scaling = Scaling(plan, charter.options.policy, charter.options.bounds)
        if charter.options.pool is not None:
            self._take_pool(charter.options.pool, again=entry is not None)
        self._ready.set()
        alive = processes_of(charter.run) if entry is not None else []
        if entry is not None:
            self._staff.watch_keepers([p.process for p in entry.posts])
        self._look_at_nodes()
        begin = self._machine.start(self._nodes, alive, time.time(), self._for_operators)
        todo = deque(begin)
        polled = asked = 0.0
        while True:
            self._do(todo)
            if self._machine.ended and not todo:
                break
            now = time.monotonic()
            if now - asked >= POLL_SECONDS / TURNS:
                asked = now
                self._ask_some()
            if now - polled >= POLL_SECONDS:
                polled = now
                for event in self._staff.events(0.0):  # it may be late, and those came before
                    todo += self._hear(event)
                self._sample()
                if now - self._looked > NODES_SECONDS:
                    self._look_at_nodes()
                    self._staff.look_after(p.process for p in self._machine.journal.posts)
                    with suppress(*UNREACHABLE):
                        todo += self._leave_nodes()
                todo += self._hear(do.Tick(self._nodes, self._for_operators))
                todo += self._scale()
            wait = max(0.0, asked + POLL_SECONDS / TURNS - time.monotonic())
            for event in self._staff.events(wait):
                todo += self._hear(event)
            for request in self._requests.heard():
                todo += self._hear(request)
        return self._report()

    def _ask_some(self) -> None:
        """Ask those instances for their progress whose turn it is."""
        self._turn = (self._turn + 1) % TURNS
        moving = {move.operator for move in self._machine.journal.moves}
        for process in whose_turn(self._machine.members, moving, self._turn, TURNS):
            self._staff.ask(process)

    def _hear(self, event: Event) -> list[Command]:
        if isinstance(event, do.Gone):
            self._looked = 0.0  # its node may be gone, too
        return self._machine.handle(event, time.time())

    def _do(self, todo: deque[Command]) -> None:
        """Do commands in order, as long as the journal can be written.

        Raises:
            RaystreamError: the job has failed.
        """
        while todo:
            if isinstance(todo[0], do.Write):
                do.catch_up(todo)
            command = todo.popleft()
            if isinstance(command, do.Answer):
                self._requests.answer(command.request, command.refusal)
                continue
            if isinstance(command, do.End):
                if command.error is not None:
                    raise command.error
                return
            if isinstance(command, do.Write):
                if not self._staff.write(command):
                    todo.appendleft(command)
                    self._heard_at_once(todo)
                    return
            else:
                self._staff.perform(command)
            self._heard_at_once(todo)

    def _heard_at_once(self, todo: deque[Command]) -> None:
        for event in self._staff.at_once():
            todo += self._hear(event)

    # ------------------------------------------------------------ scaling by itself

    def _look_at_nodes(self) -> None:
        """See which nodes there are; while Ray cannot say, those that there were."""
        self._looked = time.monotonic()
        listed: Any = ray.nodes
        with suppress(*UNREACHABLE):
            alive = {n["NodeID"]: n["Resources"] for n in listed() if n["Alive"]}
            self._nodes = tuple(sorted(alive))
            self._for_operators = frozenset(n for n, has in alive.items() if has.get(OPERATOR_NODE))

    def _leave_nodes(self) -> list[Command]:
        """Leave nodes that end, and those that the pool gives back; have it filled up."""
        machine = self._machine
        left = machine.journal.drained
        leave = dict.fromkeys(ending(), "it is about to be taken away") if self._nodes[1:] else {}
        if self._pool is not None:
            before = self._pool.pool
            pool = self._pool.look(machine.used, left, machine.waiting)
            if note := told(before, pool, self._pool.options):
                self._note(note)
            leave |= dict.fromkeys(pool.returned, "it was one too many")
        asked: list[Command] = []
        if not machine.members:
            return asked  # nobody is there yet who could leave
        for node in sorted(leave.keys() & set(self._nodes) - left):
            asked += self._ask_self(partial(do.Drain, node=node, because=leave[node]))
        return asked

    def _take_pool(self, options: PoolOptions, *, again: bool) -> None:
        """Take the pool of the cluster; a job that goes on does so without, if it is another's.

        Raises:
            ConfigError: another job has it.
        """
        try:
            self._pool = NodePool(self._charter.run, options)
        except ConfigError as error:
            if not again:
                raise
            self._note(str(error))

    def _scale(self) -> list[Command]:
        """Do what the policy finds."""
        machine = self._machine
        if self._scaling is None or not machine.members or machine.ended:
            return []
        now = time.time() - self._started
        found = self._scaling.look(machine.owners, machine.journal.moves, now)
        for note in found.notes:
            self._note(note)
        asked: list[Command] = []
        for wanted in found.wanted:
            asked += self._ask_self(partial(do.Rescale, wanted=(wanted,)))
        return asked

    def _ask_self(self, request: Callable[[int], Event]) -> list[Command]:
        """Hand the machine a request of the controller's own; a refusal is told in its story."""
        return self._hear(self._requests.own(request, self._note))

    def _note(self, text: str) -> None:
        """Say something in the story of the job."""
        self._notes.say(text, time.time() - self._started if self._started else 0.0)

    # ------------------------------------------------------------ report

    @property
    def _started(self) -> float:
        return self._machine.journal.started

    def _sample(self) -> None:
        t = time.time() - self._started
        operators = self._totals()
        if self._started and self._samples.due(t) and len(operators) == len(self._plan.vertices):
            with self._lock:
                self._samples.add(Sample(t, operators, self._processes(), self._floor()))

    def _floor(self) -> Floor | None:
        machine = self._machine
        if machine.options.recovery != "state" or not machine.journal.started:
            return None
        age = time.time() - max(machine.committed_at, machine.journal.started)
        entry = machine.journal
        return Floor(
            entry.committed,
            age,
            machine.bare,
            saved=None if self._plan.durable is None else entry.saved,
            unsaved=machine.unsaved,
            unstored=machine.unstored,
            stopping=entry.stop_after >= 0,
        )

    def _totals(self) -> dict[str, OperatorReport]:
        """By operator, those nobody was heard of yet left out; while a new instance has not said
        anything, what was known before it."""
        self._known |= {o.name: o for o in totals(self._machine.progress())}
        return {v.name: self._known[v.name] for v in self._plan.vertices if v.name in self._known}

    def _processes(self) -> dict[str, int]:
        """Process ids by name."""
        pids = {m.name: m.seat.pid for m in self._machine.members}
        for i, pid in enumerate(self._staff.pids().values()):
            pids[f"keeper/{i}"] = pid
        return {**pids, "controller": os.getpid()}

    def _report(self) -> JobReport:
        operators = self._totals()
        ended = [p.ended_at for p in self._machine.progress() if p.ended_at]
        elapsed = max(ended, default=time.time()) - self._started
        last = Sample(elapsed, operators, self._processes(), self._floor())
        return JobReport(
            self._plan.job,
            "ray",
            self._started,
            elapsed,
            tuple(operators.values()),
            self._samples.ended(last),
            self._machine.journal.recoveries,
            self._machine.journal.moved,
            saved=self._machine.journal.saved,
            unsaved=self._machine.unsaved,
        )


def claim(keepers: list[Any], least: int) -> tuple[int, list[tuple[tuple[int, int], Entry | None]]]:
    """Claim the journal, wherever it is kept: the incarnation, and all newest entries.

    Args:
        least: the first number to try. It grows with time, so that processes whose names hold it
            are not called as earlier ones were, also when there is no journal yet.
    """
    for incarnation in itertools.count(least):
        calls = [k.claim_journal.remote(incarnation) for k in keepers]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=FIND_SECONDS)
        found = []
        in_time = True
        for call in calls:
            with suppress(RayError):
                mine, order, entry = ray.get(call, timeout=0)
                in_time = in_time and mine
                found.append((order, entry))
        if in_time:
            return incarnation, found
    raise AssertionError("numbers do not end")


def _begun(instance: Any) -> bool:
    """Whether an instance works in a place; who does not say so does not."""
    try:
        return bool(ray.get(instance.begun.remote(), timeout=FIND_SECONDS))
    except RayError:
        return False
