"""The actors of one job: what the controller's machine commands is done here, with Ray.

Nothing waits but the journal: every call to an actor is remembered with what its answer means, and
`events` hands out what has come in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raystream.actors.instance import Brought, Hello, InstanceActor, Placed, Refusal, versions
from raystream.actors.keeper import Keeper
from raystream.actors.naming import NAMESPACE, actor, actor_name, processes_of, restarts
from raystream.controller import commands as do
from raystream.controller import registering
from raystream.controller.commands import Command, Event
from raystream.controller.keeping import KEEPER
from raystream.controller.registering import Fill, Hand, Recall, Tell
from raystream.dataflow.plan import Plan
from raystream.dataflow.register import View
from raystream.errors import ConfigError, JobError, OvertakenError, RaystreamError

START_SECONDS = 120.0
"""How long a process may take to start: imports, the plan."""
PLACE_SECONDS = 900.0
"""How long an instance may take to take its place: compiled functions, references, its state, which
may come from a durable tier."""
PROGRESS_SECONDS = 10.0
"""How long an instance may take to answer a control call before it counts as dead."""
WRITE_SECONDS = 30.0
"""How long a keeper, which may be starting, may take to write the journal, or to say that it is
there; then it is dead."""
REGISTER_SECONDS = 10.0
"""How long a place of the boundary register may take to answer before it counts as dead."""
STOP_SECONDS = 5.0
"""How long an instance may take to remove what it spilled before it is killed."""
_END = "end"


class Fenced(BaseException):
    """Another controller has written the journal: this one decides nothing any more."""


class Call(NamedTuple):
    """A call that is not answered yet. due: when it counts as not answered; answered: what its
    value means."""

    process: str
    doing: str
    due: float
    answered: Callable[[Any], Event | None]


class Environment(NamedTuple):
    """Variables of a job's processes. instances: of those that run operators. others: of all
    others; none, if they find the submitter's modules without, since Ray starts a process that is
    to have some and then has it start again."""

    instances: dict[str, str]
    others: dict[str, str]


def runtime_env(variables: dict[str, str]) -> dict[str, Any]:
    """What Ray is told of them."""
    return {"env_vars": variables} if variables else {}


class Staff:
    """Does what is commanded.

    Args:
        run: of the job, the prefix of all names. ships: whether checkpoints are taken. began: the
            `restarts` of the controller when it began.
    """

    def __init__(
        self, plan: Plan, run: str, token: str, env: Environment, ships: bool, began: int | None
    ) -> None:
        self._plan = ray.put(plan)
        self._run = run
        self._token = token
        self._ships = ships
        self._began = began
        self._at: tuple[str, ...] = ()
        """The keepers that hold the journal."""
        self._paced = plan.clock is not None and plan.clock.speed is not None
        self._calls: dict[Any, Call] = {}
        self._asked: set[str] = set()
        self._retiring: set[str] = set()
        self._actors: dict[str, Any] = {}
        self._pids: dict[str, int] = {}
        self._here: list[Event] = []
        common: dict[str, Any] = {
            "num_cpus": 0,
            "max_restarts": 0,
            "max_task_retries": 0,
            "lifetime": "detached",
            "namespace": NAMESPACE,
            "enable_task_events": False,
        }
        remote: Any = ray.remote  # its stubs do not know these options
        self._instance = remote(
            **common,
            concurrency_groups={"park": 2, "control": 1},
            scheduling_strategy="SPREAD",
            runtime_env=runtime_env(env.instances),
        )(InstanceActor)
        self._keeper = remote(
            **common,
            concurrency_groups={"park": 2, "restore": 1, "register": 1, "save": 1, "journal": 1},
            runtime_env=runtime_env(env.others),
        )(Keeper)

    # ------------------------------------------------------------ commands

    def perform(self, command: Command) -> None:
        """Do a command; what comes of it is an event later.

        Raises:
            Fenced: another controller has taken over.
        """
        match command:
            case do.Hire(process, spare, node):
                self._hire(process, spare, node)
            case do.Adopt(process):
                self._greet(process)
            case do.Keep(process, node):
                self._keep(process, node)
            case do.Become(process, place, floor, holders, held):
                became = partial(self._became, process)
                args = (place, floor, [*self._keepers(holders)], self._ships, held)
                self._call(process, "take its place", PLACE_SECONDS, became, "become", *args)
            case do.Deliver(process, floor, to):
                takers = [(keys, a) for p, keys in to if (a := self._actor(p)) is not None]
                if len(takers) == len(to):  # who is gone is an event
                    delivered = partial(_delivered, process, tuple(p for p, _ in to))
                    self._watch(process, "deliver", delivered, floor, takers)
            case do.Begin(seat, assignment, started):
                self._watch(seat.process, "watch", lambda e: do.Done(seat.process, e))
                paced_from = started if self._paced else None
                keepers = self._keepers(seat.keepers)
                begin = (assignment, keepers, seat.kept, self._run, paced_from)
                self._call(seat.process, "begin", START_SECONDS, _nothing, "begin", *begin)
            case do.Assign(process, assignment):
                self._tell(process, "assign", assignment)
            case do.CommitTo(process, epoch, shown):
                self._tell(process, "commit", epoch, shown)
            case do.KeptBy(process, keepers, kept):
                self._tell(process, "kept_by", self._keepers(keepers), kept)
            case do.Forget(process, epoch):
                self._tell(process, "forget", epoch)
            case do.Trim(process, floor, places):
                self._tell(process, "trim", floor, [(p.vertex, p.keys) for p in places])
            case do.PutChains(process, cut, places):
                these = [(p.vertex, p.keys) for p in places]
                put = partial(_put, process, cut)
                self._watch(process, "put_chains", put, cut, these)
            case do.SaveCut(process, saved):
                done = partial(_saved, process, saved.cut)
                self._watch(process, "save_cut", done, saved)
            case Hand() | Recall() | Fill() | Tell():
                self._register(command)
            case do.Kill(process, _, gently):
                self._retire(process) if gently else self.kill([process])
            case do.Write() | do.Answer() | do.End():
                raise AssertionError(f"{command} is the controller's own")

    def _register(self, command: registering.Command) -> None:
        seconds = REGISTER_SECONDS
        match command:
            case Hand(view, place):
                handed = partial(do.Handed, view, place)
                self._call(place, "hand over", seconds, handed, "hand", view)
            case Recall(view, source, least):
                handed = partial(do.Handed, view, source)
                self._call(source, "say what it knows", seconds, handed, "boundaries", view, least)
            case Fill(view, place, content):
                filled = partial(_filled, view, place)
                self._call(place, "be filled", seconds, filled, "fill", view, content)
            case Tell(view=View(number, places), source=source, content=content):
                keepers = self._keepers(places)
                if len(keepers) == len(places):  # who is gone is an event, and makes a newer view
                    self._tell(source, "follow", View(number, keepers), content)

    def _hire(self, process: str, spare: bool, node: str) -> None:
        options: dict[str, Any] = {"name": self._name(process)}
        if node:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)
        self._actors[process] = self._instance.options(**options).remote(self._token)
        self._greet(process)
        if spare:
            self._tell(process, "warm")

    def _greet(self, process: str) -> None:
        hired = partial(self._hired, process)
        self._call(process, "start", START_SECONDS, hired, "hello", self._plan)

    def _hired(self, process: str, hello: Hello) -> Event:
        if hello.placed:
            return do.Gone(process, "it has a place that nobody knows")
        if hello.versions != versions():
            different = ConfigError(
                f"a process on node {hello.node[:8]} would run with {hello.versions}, the"
                f" controller with {versions()}",
                hint="All nodes need the same Python, NumPy, Numba and PyArrow.",
            )
            return do.Failed(process, different)
        self._watch(process, "watch", lambda e: None if e is None else do.Done(process, e))
        return do.Hired(process, hello.node, hello.pid)

    def _keep(self, process: str, node: str) -> None:
        here = NodeAffinitySchedulingStrategy(node, soft=False)
        keeper = self._keeper.options(name=self._name(process), scheduling_strategy=here)
        self._actors[process] = keeper.remote(self._plan)
        self.watch_keepers([process])

    def watch_keepers(self, processes: Iterable[str]) -> None:
        """Hear of the death of keepers."""
        for process in processes:
            self._watch(process, "watch", _nothing)
            self._call(process, "start", START_SECONDS, partial(self._pid, process), "pid")

    def _pid(self, process: str, pid: int) -> None:
        self._pids[process] = pid

    def _became(self, process: str, answer: Placed | Refusal) -> Event:
        if answer is Refusal.PLACED:
            return do.Taken(process)
        return do.Became(process, *answer) if isinstance(answer, Placed) else do.Missing(process)

    def write(self, command: do.Write) -> bool:
        """Write the journal; whether anybody has it now. Who does not take it counts as dead.

        Raises:
            Fenced: another controller has taken over.
        """
        if command.at != self._at and not self._decides():
            return False
        actors = {p: a for p in command.at if (a := self._actor(p)) is not None}
        calls = {a.write.remote(command.entry): p for p, a in actors.items()}
        if calls:
            ray.wait(list(calls), num_returns=len(calls), timeout=WRITE_SECONDS)
        written = False
        for call, process in calls.items():
            try:
                if not ray.get(call, timeout=0):
                    raise Fenced
                written = True
            except RayError as error:
                self._here.append(do.Gone(process, f"it did not write: {first_line(error)}"))
        if written:
            self._at = command.at
            self._leave(command)
        return written

    def _decides(self) -> bool:
        """Whether this controller is the newest, which keepers that are all new do not know. False
        if that cannot be known now. A newer one that begins after this knows of these keepers.

        Raises:
            Fenced: it is not.
        """
        now = restarts()
        if now is not None and now != self._began:
            raise Fenced
        return now is not None

    def _leave(self, command: do.Write) -> None:
        """Who does not forget what others hold now counts as dead.

        Raises:
            Fenced: another controller has taken over.
        """
        actors = {p: a for p in command.left if (a := self._actor(p)) is not None}
        calls = {a.leave_journal.remote(command.entry.order): p for p, a in actors.items()}
        if calls:
            ray.wait(list(calls), num_returns=len(calls), timeout=WRITE_SECONDS)
        for call, process in calls.items():
            try:
                if not ray.get(call, timeout=0):
                    raise Fenced
            except RayError as error:
                self._here.append(do.Gone(process, f"it did not answer: {first_line(error)}"))

    def ask(self, process: str) -> None:
        """Ask an instance for its progress, unless it still owes an answer."""
        if process not in self._asked:
            self._asked.add(process)
            heard = partial(self._heard, process)
            self._call(process, "answer", PROGRESS_SECONDS, heard, "progress")

    def look_after(self, keepers: Iterable[str]) -> None:
        """Ask keepers that have begun whether they are there, unless they still owe an answer: one
        that hangs is as bad as a dead one."""
        for process in keepers:
            if process in self._pids and process not in self._asked:
                self._asked.add(process)
                self._call(process, "answer", WRITE_SECONDS, partial(self._there, process), "pid")

    def _there(self, process: str, _: int) -> None:
        self._asked.discard(process)

    def _heard(self, process: str, progress: Any) -> Event:
        self._asked.discard(process)
        return do.Heard(process, progress)

    # ------------------------------------------------------------ calls

    def _watch(
        self, process: str, method: str, answered: Callable[[Any], Event | None], *args: Any
    ) -> None:
        """A call that may take as long as it does: nobody counts as dead for it."""
        self._call(process, "live", float("inf"), answered, method, *args)

    def _call(
        self,
        process: str,
        doing: str,
        seconds: float,
        answered: Callable[[Any], Event | None],
        method: str,
        *args: Any,
    ) -> None:
        handle = self._actor(process)
        if handle is not None:
            call = getattr(handle, method).remote(*args)
            self._calls[call] = Call(process, doing, time.monotonic() + seconds, answered)

    def _tell(self, process: str, method: str, *args: Any) -> None:
        """A call may be lost with its connection: the machine tells again who was not told."""
        handle = self._actor(process)
        if handle is not None:
            getattr(handle, method).remote(*args)

    def _actor(self, process: str) -> Any:
        """The handle of a process. When there is none, its death is an event."""
        if process not in self._actors:
            found = actor(self._run, process)
            if found is None:
                self._here.append(do.Gone(process, "its process is gone"))
                return None
            self._actors[process] = found
        return self._actors[process]

    def _keepers(self, processes: Iterable[str]) -> tuple[Any, ...]:
        return tuple(k for p in processes if (k := self._actor(p)) is not None)

    def _name(self, process: str) -> str:
        return actor_name(self._run, process)

    # ------------------------------------------------------------ events

    def events(self, seconds: float) -> list[Event]:
        """What has come in; waits at most so long for something."""
        refs = list(self._calls)
        if refs:
            done, _ = ray.wait(refs, num_returns=1, timeout=seconds)
            if done:  # who died together is seen together
                done, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        else:
            time.sleep(seconds)
            done = []
        answers = [self._event(self._calls.pop(ref), ref) for ref in done]
        return [*(e for e in answers if e is not None), *self._overdue()]

    def at_once(self) -> list[Event]:
        """What came of a command while it was done: it goes before all other commands."""
        here, self._here = self._here, []
        return here

    def _event(self, call: Call, ref: Any) -> Event | None:
        try:
            return call.answered(ray.get(ref))
        except (RayActorError, RayTaskError) as error:
            return self._failed(call, error)
        except RayError as error:
            return do.Gone(call.process, f"it could not {call.doing}: {first_line(error)}")

    def _failed(self, call: Call, error: RayActorError | RayTaskError) -> Event:
        if isinstance(error, RayTaskError):
            if isinstance(error.cause, RayError):  # what it was given died with its keeper
                return do.Missing(call.process, again=True)
            if call.process.startswith(KEEPER):
                return do.Gone(call.process, f"it could not {call.doing}: {cause_of(error)}")
            return do.Failed(call.process, cause_of(error))
        self._asked.discard(call.process)
        return do.Gone(call.process, f"its process died: {first_line(error)}")

    def _overdue(self) -> list[Event]:
        now = time.monotonic()
        late = [(ref, call) for ref, call in self._calls.items() if call.due < now]
        for ref, call in late:
            del self._calls[ref]
            self._asked.discard(call.process)
            if call.doing == _END:
                self.kill([call.process])
        return [do.Gone(c.process, f"it did not {c.doing} in time") for _, c in late]

    # ------------------------------------------------------------ end

    def pids(self) -> dict[str, int]:
        """The process ids of keepers, as far as they are known."""
        return dict(self._pids)

    def _retire(self, process: str) -> None:
        """Ask a process to end, once, and end it when it has tidied up or not in time."""
        if process not in self._retiring:
            self._retiring.add(process)
            self._call(process, _END, STOP_SECONDS, partial(self._retired, process), "stop")

    def _retired(self, process: str, _: Any) -> Event:
        self.kill([process])
        return do.Gone(process, "it was ended")

    def kill(self, processes: Iterable[str]) -> None:
        """End processes at once."""
        for process in processes:
            self._retiring.discard(process)
            handle = self._actors.pop(process, None) or actor(self._run, process)
            self._pids.pop(process, None)
            if handle is not None:
                ray.kill(handle)

    def dismiss(self, instances: Iterable[str]) -> None:
        """End everything: ask instances first, so that they remove what they spilled."""
        asked = (*instances, *self._retiring)
        calls = [a.stop.remote() for p in asked if (a := self._actors.get(p)) is not None]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=STOP_SECONDS)
        self._calls.clear()
        self.kill({*self._actors, *processes_of(self._run)})


def _filled(view: int, place: str, taken: bool) -> Event | None:
    return do.Filled(view, place) if taken else None


def _delivered(process: str, takers: tuple[str, ...], answer: Brought | str) -> Event:
    if isinstance(answer, str):
        return do.Delivered(process, takers, 0, answer)
    return do.Delivered(process, takers, answer.epoch, nbytes=answer.nbytes)


def _put(process: str, cut: int, answer: Any) -> Event:
    if isinstance(answer, str):
        return do.Put(process, cut, why=answer)
    return do.Put(process, cut, tuple(answer))


def _saved(process: str, cut: int, answer: str | OvertakenError) -> Event:
    if isinstance(answer, OvertakenError):
        return do.CutSaved(process, cut, answer.message, answer)
    return do.CutSaved(process, cut, answer)


def _nothing(_: Any) -> None:
    """An answer that says nothing new."""


def cause_of(error: Any) -> RaystreamError:
    """Our error inside Ray's."""
    inner = error.cause
    if isinstance(inner, RaystreamError):
        return inner
    return JobError(f"{type(inner).__name__}: {inner}")


def first_line(error: BaseException) -> str:
    """The line of an error's text that says what happened. Of an actor's death that is the last
    one, behind a list of what the actor was; then Ray guesses."""
    text = str(error).strip()
    if isinstance(error, ActorDiedError):
        text = [line for line in text.split("\n") if not line.startswith("\t")][-1]
    return text.partition("\n")[0].partition(" Some common root causes")[0]
