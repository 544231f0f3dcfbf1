"""The processes of one job: what its machine commands is done here, with Ray.

Nothing here waits for an answer but the journal (`journal_writer.py`): what comes of a command is
an event later (`calls.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, assert_never

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raystream.actors.cluster.environment import Environment, runtime_env
from raystream.actors.control.actor_names import NAMESPACE, processes_of
from raystream.actors.control.calls import OpenCalls, asked
from raystream.actors.control.handles import ActorHandles
from raystream.actors.control.journal_writer import WRITE_SECONDS, JournalWriter
from raystream.actors.keepers.keeper import Keeper
from raystream.actors.worker.instance import InstanceActor, versions
from raystream.controller.options import Options
from raystream.controller.protocol import register_views as registering
from raystream.controller.protocol.gathering.links import LinkMeter, Links, Ways
from raystream.controller.protocol.members import process_of
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.calls import (
    Brought,
    Hello,
    KeeperActorCalls,
    KeeperUse,
    ProcessCalls,
    Refusal,
    ServesAt,
)
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.messages.events import Event
from raystream.controller.protocol.parts.replication import KEEPER
from raystream.controller.protocol.register_views import AskContent, Fill, Recall, Tell
from raystream.controller.protocol.strategies import strategy_of
from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Progress
from raystream.dataflow.register import PlaceSet
from raystream.durable.manifest import SavedChain
from raystream.errors import ConfigError, OvertakenError, RaystreamError
from raystream.security.credentials import Credentials

START_SECONDS = 120.0
"""How long a process may take to start: imports, the plan."""
PLACE_SECONDS = 900.0
"""How long an instance may take until it has its range: compiled functions, references, its state,
which may come from a durable tier."""
PROGRESS_SECONDS = 10.0
"""How long an instance may take to answer a control call. Then it counts as dead."""
REGISTER_SECONDS = 10.0
"""How long a place of the boundary register may take to answer. Then it counts as dead."""
STOP_SECONDS = 5.0
"""How long an instance may take to remove what it spilled. Then it is killed."""

KEEPER_GROUPS = ("restore", "register", "save", "journal", "trim")
"""What a keeper does at the same time as it stores images, each one after the other."""
PASSING = 4
"""How many parts a keeper passes on at the same time."""


class Restores:
    """What is known of links, and what came of restores."""

    def __init__(self) -> None:
        self.at: dict[str, str] = {}
        """The nodes of keepers."""
        self.links = LinkMeter()
        """What keepers have said of links."""
        self.told: list[str] = []
        """How states came, in words, for the story."""

    def ways(self, holders: Iterable[str]) -> Ways | None:
        """What a restore from these keepers plans with; None while no link was measured."""
        if not self.links.pairs:
            return None
        nodes = tuple(self.at.get(h, "") for h in holders)
        return Ways(Links(pairs=dict(self.links.pairs)), nodes)

    def became(self, process: str, attempt: do.Attempt, answer: ServesAt | Refusal) -> Event:
        """The event for the answer of a process that was asked to become an instance."""
        if isinstance(answer, ServesAt):
            if answer.gathered:
                self.told.append(answer.gathered)
            return on.Became(process, attempt, answer.address, answer.nbytes)
        if answer is Refusal.PLACED:
            return on.AlreadyPlaced(process, attempt)
        return on.Missing(process, attempt)

    def said(self, process: str, use: KeeperUse) -> Event:
        """The event for what a keeper has told of itself."""
        self.links.learn(use.links)
        return on.KeeperSaid(process, use)


class ActorPool:
    """Does what the machine of a job commands.

    Args:
        run: the name of the run, the prefix of all names of its actors.
        credentials: what the instances of the job show each other.
        env: the variables of the processes.
        options: how the job is run.
        began: the `restarts` of the controller when it began.
    """

    def __init__(
        self,
        plan: Plan,
        run: str,
        credentials: Credentials,
        env: Environment,
        options: Options,
        began: int | None,
    ) -> None:
        self._plan: Any = ray.put(plan)  # Ray replaces the reference by the plan
        self._run = run
        self._credentials = credentials
        self._ships = strategy_of(options.recovery).stores_checkpoints
        self._kept = (options.checkpoint_memory, options.state_folder)
        self._paced = plan.clock is not None and plan.clock.speed is not None
        self._handles = ActorHandles(run)
        self._calls = OpenCalls(self._handles)
        self._journal = JournalWriter(self._handles, began)
        self._retiring: set[str] = set()
        self._killed: set[str] = set()
        self._pids: dict[str, int] = {}
        self.restores = Restores()
        common: dict[str, Any] = {
            "num_cpus": 0,
            "max_restarts": 0,
            "max_task_retries": 0,
            "lifetime": "detached",
            "namespace": NAMESPACE,
            "enable_task_events": False,
        }
        remote: Any = ray.remote  # its stubs do not know these options
        self._seats = seats = len(plan.vertices) if options.together else 1
        self._instance = remote(
            **common,
            max_concurrency=seats,
            concurrency_groups={"park": 2 * seats, "control": 1},
            scheduling_strategy="SPREAD",
            runtime_env=runtime_env(env.instances),
        )(InstanceActor)
        self._keeper = remote(
            **common,
            concurrency_groups=dict.fromkeys(KEEPER_GROUPS, 1) | {"park": 2, "pass on": PASSING},
            runtime_env=runtime_env(env.others),
        )(Keeper)

    # ------------------------------------------------------------ commands

    def perform(self, command: Command) -> None:
        """Do a command; what comes of it is an event later."""
        match command:
            case do.Hire(process, spare, node):
                self._hire(process, spare, node)
            case do.Adopt(process):
                self._greet(process)
            case do.Keep(process, node):
                self._keep(process, node)
            case AskContent() | Recall() | Fill() | Tell():
                self._ask_register(command)
            case do.Kill(process, _, gently):
                self._retire(process) if gently else self.kill([process])
            case do.Trim() | do.PutChains() | do.SaveCheckpoint():
                self._ask_keeper(command)
            case do.Write() | do.Answer() | do.End():
                raise AssertionError(f"{command} is the controller's own")
            case _:
                self._ask_instance(command)

    def _ask_instance(
        self,
        command: do.Become
        | do.Deliver
        | do.Begin
        | do.Assign
        | do.CommitTo
        | do.KeptBy
        | do.Forget,
    ) -> None:
        calls, asked = self._calls, ProcessCalls
        match command:
            case do.Become(process, place, committed, holders, held, attempt, versions):
                became = partial(self.restores.became, process, attempt)
                there = {h: k for h in holders if (k := self._handles[h]) is not None}
                ways = self.restores.ways(there)
                what = (place, committed, [*there.values()], self._ships, held, ways, versions)
                calls.place(process, attempt, PLACE_SECONDS, became, asked.become, *what)
            case do.Deliver(process, committed, to, attempt):
                takers = [(keys, a) for p, keys in to if (a := self._handles[p]) is not None]
                if len(takers) == len(to):  # the death of a taker is an event
                    delivered = partial(_delivered, process, attempt)
                    calls.watch(process, delivered, asked.deliver, committed, takers)
            case do.Begin(record, assignment, started):
                process = record.process
                calls.watch(process, partial(_done, process), asked.watch)
                paced_from = started if self._paced else None
                keepers_of_it = self._handles.of(record.keepers)
                begin = (assignment, keepers_of_it, record.kept, self._run, paced_from)
                calls.call(process, "begin", START_SECONDS, _nothing, asked.begin, *begin)
            case do.Assign(process, assignment):
                calls.tell(process, asked.assign, assignment)
            case do.CommitTo(process, epoch, published_upto):
                calls.tell(process, asked.commit, epoch, published_upto)
            case do.KeptBy(process, holders, kept):
                calls.tell(process, asked.kept_by, self._handles.of(holders), kept)
            case do.Forget(process, epoch):
                calls.tell(process, asked.forget, epoch)
            case _:
                assert_never(command)

    def _ask_keeper(self, command: do.Trim | do.PutChains | do.SaveCheckpoint) -> None:
        calls, asked = self._calls, KeeperActorCalls
        match command:
            case do.Trim(process, committed, places):
                calls.tell(process, asked.trim, committed, [(p.vertex, p.keys) for p in places])
            case do.PutChains(process, checkpoint, places, versions):
                these = [(p.vertex, p.keys) for p in places]
                put = partial(_put, process, checkpoint)
                calls.watch(process, put, asked.put_chains, checkpoint, these, versions)
            case do.SaveCheckpoint(process, saved):
                done = partial(_saved, process, saved.checkpoint)
                calls.watch(process, done, asked.save_checkpoint, saved)
            case _:
                assert_never(command)

    def _ask_register(self, command: registering.RegisterCommand) -> None:
        """Ask places of the boundary register, which are keepers, and sources."""
        call, seconds = self._calls.call, REGISTER_SECONDS
        match command:
            case AskContent(view, place):
                handed = partial(on.Handed, view, place)
                call(place, "hand over", seconds, handed, KeeperActorCalls.hand, view)
            case Recall(view, source, least):
                handed = partial(on.Handed, view, source)
                what = (view, least)
                call(source, "say what it knows", seconds, handed, ProcessCalls.boundaries, *what)
            case Fill(view, place, content):
                filled = partial(_filled, view, place)
                call(place, "be filled", seconds, filled, KeeperActorCalls.fill, view, content)
            case Tell(view=PlaceSet(number, places), source=source, content=content):
                keepers = self._handles.of(places)
                if len(keepers) == len(places):  # the death of one makes a newer view
                    told = PlaceSet(number, keepers)
                    self._calls.tell(source, ProcessCalls.follow, told, content)

    # ------------------------------------------------------------ new processes

    def _hire(self, process: str, spare: bool, node: str) -> None:
        options: dict[str, Any] = {"name": self._handles.name(process)}
        if node:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)
        actor = self._instance.options(**options).remote(self._credentials, self._seats)
        self._handles.started(process, actor)
        self._greet(process)
        if spare:
            self._calls.tell(process, ProcessCalls.warm)

    def _greet(self, process: str) -> None:
        hired, hello = partial(self._hired, process), ProcessCalls.hello
        self._calls.call(process, "start", START_SECONDS, hired, hello, self._plan)

    def _hired(self, process: str, hello: Hello) -> Event:
        if hello.placed:
            return on.Gone(process, "it has a place that nobody knows")
        if hello.versions != versions():
            different = ConfigError(
                f"a process on node {hello.node[:8]} would run with {hello.versions}, the"
                f" controller with {versions()}",
                hint="All nodes need the same Python, NumPy, Numba and PyArrow.",
            )
            return on.Failed(process, different)
        self._calls.watch(process, partial(_failed, process), ProcessCalls.watch)
        return on.Hired(process, hello.node, hello.pid)

    def _keep(self, process: str, node: str) -> None:
        here = NodeAffinitySchedulingStrategy(node, soft=False)
        name = self._handles.name(process)
        keeper = self._keeper.options(name=name, scheduling_strategy=here)
        self._handles.started(process, keeper.remote(self._plan, self._credentials, *self._kept))
        self.watch_keepers({process: node})

    def watch_keepers(self, nodes: Mapping[str, str]) -> None:
        """Hear of the death of keepers.

        Args:
            nodes: by keeper its node.
        """
        self.restores.at.update(nodes)
        for process in nodes:
            self._calls.watch(process, _nothing, KeeperActorCalls.watch)
            began = partial(self._pid, process)
            self._calls.call(process, "start", START_SECONDS, began, KeeperActorCalls.pid)

    def _pid(self, process: str, pid: int) -> None:
        if process not in self._killed:  # it may have answered just before
            self._pids[process] = pid

    # ------------------------------------------------------------ journal and questions

    def write(self, command: do.Write) -> bool:
        """Write the journal; whether any keeper has it now. See `JournalWriter`.

        Raises:
            Fenced: another controller has taken over.
        """
        return self._journal.write(command)

    def ask(self, process: str) -> None:
        """Ask an instance for its progress, unless it still owes an answer."""
        heard = partial(_heard, process)
        self._calls.poll(process, PROGRESS_SECONDS, heard, ProcessCalls.progress)

    def look_after(self, keepers: Iterable[str]) -> None:
        """Ask keepers that have begun what they hold, unless they still owe an answer. One that
        hangs is as bad as a dead one."""
        for process in keepers:
            if process in self._pids:
                said = partial(self.restores.said, process)
                self._calls.poll(process, WRITE_SECONDS, said, KeeperActorCalls.use)

    def events(self, seconds: float) -> list[Event]:
        """What has come in; waits up to `seconds` for something."""
        return self._calls.events(seconds)

    def at_once(self) -> list[Event]:
        """What came of a command while it was done: it goes before all other commands."""
        noticed, self._handles.noticed = self._handles.noticed, []
        return noticed

    # ------------------------------------------------------------ end

    def pids(self) -> dict[str, int]:
        """The process ids of keepers, as far as they are known."""
        return dict(self._pids)

    def _retire(self, process: str) -> None:
        """Ask a process to end, once. It is killed when it has tidied up, or has not in time."""
        if process not in self._retiring:
            self._retiring.add(process)
            retired, kill = partial(self._retired, process), partial(self.kill, [process])
            self._calls.end(process, STOP_SECONDS, retired, kill, ProcessCalls.stop)

    def _retired(self, process: str, goes_on: bool) -> Event:
        if goes_on:  # other instances share the process
            self._retiring.discard(process)
        else:
            self.kill([process])
        return on.Gone(process, "it was ended")

    def kill(self, processes: Iterable[str]) -> None:
        """End processes at once."""
        for process in processes:
            self._retiring.discard(process)
            self._killed.add(process)
            self._pids.pop(process, None)
            self._handles.kill(process)

    def dismiss(self, instances: Iterable[str]) -> None:
        """End everything. Instances and keepers are asked first, so that they remove their
        files."""
        known = self._handles.known()
        ours = [p for p in (*instances, *self._retiring) if process_of(p) in known]
        calls = [asked(self._handles[process], ProcessCalls.stop) for process in ours]
        keepers = [process for process in known if process.startswith(KEEPER)]
        calls += [asked(self._handles[keeper], KeeperActorCalls.stop) for keeper in keepers]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=STOP_SECONDS)
        self._calls.drop()
        self.kill({*known, *processes_of(self._run)})


# What answers mean.


def _nothing(_: Any) -> None:
    """An answer that says nothing new."""


def _done(process: str, error: RaystreamError | None) -> Event:
    return on.Done(process, error)


def _failed(process: str, error: RaystreamError | None) -> Event | None:
    """A process without a range ends only with an error, or because another call watches it."""
    return None if error is None else on.Done(process, error)


def _heard(process: str, progress: Progress) -> Event:
    return on.Heard(process, progress)


def _filled(view: int, place: str, taken: bool) -> Event | None:
    return on.Filled(view, place) if taken else None


def _delivered(process: str, attempt: do.Attempt, answer: Brought | str) -> Event:
    if isinstance(answer, str):
        return on.Delivered(process, attempt, 0, answer)
    return on.Delivered(process, attempt, answer.epoch, nbytes=answer.nbytes)


def _put(process: str, checkpoint: int, answer: list[tuple[int, SavedChain]] | str) -> Event:
    if isinstance(answer, str):
        return on.Put(process, checkpoint, why=answer)
    return on.Put(process, checkpoint, tuple(answer))


def _saved(process: str, checkpoint: int, answer: str | OvertakenError) -> Event:
    if isinstance(answer, OvertakenError):
        return on.CheckpointSaved(process, checkpoint, answer.message, answer)
    return on.CheckpointSaved(process, checkpoint, answer)
