"""The actors of one job, as its controller handles them: instances, spare ones, keepers."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raystream.actors.instance import Hello, InstanceActor, versions
from raystream.actors.keeper import Keeper
from raystream.controller.decide import behind
from raystream.controller.placing import keepers_of
from raystream.controller.recovery import ATTEMPTS_MAX, Place, checkpoint_lost
from raystream.controller.report import Progress
from raystream.dataflow.plan import Kind, Plan
from raystream.errors import ConfigError, JobError, RaystreamError
from raystream.state.assignment import Assignment, Serving

START_SECONDS = 120.0
"""How long an instance may take to start: its process, imports, compiled functions, references."""
STOP_SECONDS = 5.0
PROGRESS_SECONDS = 10.0
"""How long an instance may take to answer a control call before it counts as dead."""


class _Died(JobError):
    """An actor died while it was told something."""


class Member:
    """An instance as the controller knows it. dead: why its process is gone, if it is."""

    def __init__(self, place: Place, kind: Kind) -> None:
        self.place = place
        self.name = place.name
        self.kind = kind
        self.actor: Any = None
        self.hello: Hello | None = None
        self.park: Any = None
        self.progress: Progress | None = None
        self.dead = ""


class Crew:
    """All actors of a job.

    Args:
        copies: how many keepers hold a checkpoint. spares: how many warm actors stand by.
    """

    def __init__(self, plan: Plan, env: dict[str, str], copies: int, spares: int) -> None:
        self.plan = plan
        self.members: list[Member] = []
        self.assignment = Assignment()
        self._env = env
        self._copies = copies
        self._spares_wanted = spares
        self._spares: list[Any] = []
        self._keepers: dict[str, Any] = {}
        self._keeper_parks: dict[Any, str] = {}
        self._keeper_pids: dict[str, Any] = {}  # process ids, or calls that will say them
        self._keeper: Any = None
        self._kept = 0  # how often keepers were chosen anew
        self._token = secrets.token_hex(16)
        self._run = uuid.uuid4().hex[:12]
        self._paced_from: float | None = None
        self._plan_ref: Any = None
        self._kind: Any = None

    # ------------------------------------------------------------ start

    def gather(self) -> None:
        """Make all actors; wait until the instances are there."""
        remote: Any = ray.remote  # its stubs do not know these options
        env = {"env_vars": self._env}
        self._kind = remote(
            num_cpus=0,
            max_restarts=0,
            max_task_retries=0,
            concurrency_groups={"park": 1, "control": 1},
            scheduling_strategy="SPREAD",
            enable_task_events=False,
            runtime_env=env,
        )(InstanceActor)
        self._plan_ref = ray.put(self.plan)
        for vertex in self.plan.vertices:
            for index, keys in enumerate(self.plan.ranges[vertex.id]):
                member = Member(Place(vertex.id, vertex.name, keys, index), vertex.kind)
                member.actor = self._actor()
                self.members.append(member)
        keeper = remote(
            num_cpus=0, max_restarts=0, concurrency_groups={"park": 1}, runtime_env=env
        )(Keeper)
        self._keeper = keeper
        for node in _nodes():
            self._keep(node)
        for member, hello in zip(
            self.members, self._all("start", "hello", self._plan_ref), strict=True
        ):
            self._welcome(member, hello)

    def _actor(self) -> Any:
        return self._kind.remote(self._token)

    def _keep(self, node: str) -> None:
        here = NodeAffinitySchedulingStrategy(node, soft=False)
        actor = self._keeper.options(scheduling_strategy=here).remote()
        self._keepers[node] = actor
        self._keeper_pids[node] = actor.pid.remote()
        self._keeper_parks[actor.park.remote()] = node

    def stand_by(self) -> None:
        """Have as many warm spare actors as wanted."""
        while len(self._spares) < self._spares_wanted:
            actor = self._actor()
            actor.hello.remote(self._plan_ref)
            actor.warm.remote()
            self._spares.append(actor)

    def _welcome(self, member: Member, hello: Hello) -> None:
        if hello.versions != versions():
            raise ConfigError(
                f"{member.name} would run with {hello.versions}, the controller with {versions()}",
                hint="All nodes need the same Python, NumPy, Numba and PyArrow.",
            )
        member.hello = hello

    def take_roles(self) -> None:
        """Tell every instance what it is, and who serves what."""
        calls = [self._become(m, 0, []) for m in self.members]
        addresses = self._get("open", calls)
        serving = tuple(_serving(m, a, 1) for m, a in zip(self.members, addresses, strict=True))
        self.assignment = Assignment(1, serving)
        self._all("subscribe", "assign", self.assignment)

    def _become(self, member: Member, floor: int, images: list[Any]) -> Any:
        place = member.place
        return member.actor.become.remote(
            place.vertex,
            place.keys,
            place.name,
            place.index,
            floor,
            images,
            self._keepers_of(member),
            self._kept,
        )

    def _keepers_of(self, member: Member) -> tuple[Any, ...]:
        inputs = self.plan.vertices[member.place.vertex].inputs
        producers = {e.producer for e in inputs}
        upstream = [m.hello.node for m in self.members if m.hello and m.place.vertex in producers]
        own = member.hello.node if member.hello else ""
        source = member.kind == "source"
        nodes = keepers_of(member.place, own, upstream, self._keepers, self._copies, source=source)
        return tuple(self._keepers[n] for n in nodes)

    def start(self, paced_from: float | None) -> None:
        """Let every instance begin."""
        self._paced_from = paced_from
        for member in self.members:
            self._begin(member)

    def _begin(self, member: Member) -> None:
        member.park = member.actor.work.remote(self._run, self._paced_from)

    # ------------------------------------------------------------ watch

    def wait(self, seconds: float) -> list[tuple[Member, RaystreamError | None]]:
        """Wait at most so long for a member to end; those that did, with what went wrong.

        The members that died are marked. Keepers that died are replaced.

        Raises:
            JobError: the boundary register is lost.
        """
        parks = {m.park: m for m in self.members if m.park is not None}
        refs = [*parks, *self._keeper_parks]
        done, _ = ray.wait(refs, num_returns=1, timeout=seconds)
        if done:  # who died together is seen together
            done, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        for ref in done:
            if ref in self._keeper_parks:
                self._keeper_died(self._keeper_parks.pop(ref))
        return [(parks[ref], self._outcome(parks[ref])) for ref in done if ref in parks]

    def _keeper_died(self, node: str) -> None:
        """Put a new keeper on its node, or leave that out; instances store full images again."""
        if self.plan.clock is None and node == min(self._keepers):
            raise JobError(
                "the keeper that held the only copy of the boundary register died: where epochs end"
                " is not known any more",
                hint="Sources that are cut by time do not need it.",
            )
        del self._keepers[node], self._keeper_pids[node]
        self._kept += 1
        if node in _nodes():
            self._keep(node)
        for member in self.members:
            if not member.dead:
                self._kept_by(member)

    def _kept_by(self, member: Member) -> None:
        member.actor.kept_by.remote(self._keepers_of(member), self._kept)

    def _outcome(self, member: Member) -> RaystreamError | None:
        park, member.park = member.park, None
        try:
            error: RaystreamError | None = ray.get(park)
        except RayActorError as died:
            member.dead = f"its process died: {first_line(died)}"
            return JobError(member.dead)
        except RayError as lost:
            return JobError(f"{member.name}: {first_line(lost)}")
        return error

    def ask(self, committed: int) -> None:
        """Ask every instance for its progress; one that does not answer is dead.

        A call may be lost with a connection: who was not told what is newest is told again.
        """
        calls = {m.actor.progress.remote(): m for m in self.members if not m.dead}
        if calls:  # the limit is one for all: those that hang may be many
            ray.wait(list(calls), num_returns=len(calls), timeout=PROGRESS_SECONDS)
        for call, member in calls.items():
            try:
                member.progress = ray.get(call, timeout=0)
            except RayActorError as died:
                member.dead = f"its process died: {first_line(died)}"
            except RayError as silent:
                member.dead = f"it did not answer for {PROGRESS_SECONDS:g} s: {first_line(silent)}"
            else:
                untold = behind(member.progress, self.assignment.version, committed, self._kept)
                if untold.assignment:
                    member.actor.assign.remote(self.assignment)
                if untold.floor:
                    member.actor.commit.remote(committed)
                if untold.keepers:
                    self._kept_by(member)

    def commit(self, epoch: int) -> None:
        """Tell everybody the new floor."""
        for member in self.members:
            member.actor.commit.remote(epoch)
        for keeper in self._keepers.values():
            keeper.trim.remote(epoch)

    def processes(self) -> dict[str, int]:
        """Process ids of instances and keepers, by name."""
        pids = {m.name: m.hello.pid for m in self.members if m.hello is not None}
        for i, (node, pid) in enumerate(list(self._keeper_pids.items())):
            if isinstance(pid, int):
                pids[f"keeper/{i}"] = pid
            elif ray.wait([pid], timeout=0)[0]:
                with suppress(RayError):
                    pids[f"keeper/{i}"] = self._keeper_pids[node] = ray.get(pid)
        return pids

    # ------------------------------------------------------------ recover

    def replace(self, gone: list[Member], floor: int) -> list[Member]:
        """Put others into the place of members that died, from the cut at `floor` on.

        Raises:
            JobError: the checkpoints of a range are lost, or nobody can take it.
        """
        self._kill(m.actor for m in gone)  # who cannot be reached may still run, and write
        for _ in range(ATTEMPTS_MAX):
            try:
                new, addresses = self._substitutes(gone, floor)
                break
            except _Died as died:  # spare ones may have died with those that they are to replace
                last = died
                self._kill(self._spares)
                self._spares = []
        else:
            raise JobError(f"{ATTEMPTS_MAX} attempts to replace {_names(gone)} failed: {last}")
        serving = [_serving(m, a, floor + 1) for m, a in zip(new, addresses, strict=True)]
        self.assignment = self.assignment.replaced([m.name for m in gone], serving)
        self.members = [m for m in self.members if m not in gone] + new
        self._assign()
        for member in new:
            self._begin(member)
        self.stand_by()
        return new

    def release(self, names: Iterable[str]) -> None:
        """Leave members that died out of the assignment: others would try to reach them."""
        self.assignment = self.assignment.without(names)
        self._assign()

    def _assign(self) -> None:
        for member in self.members:
            if not member.dead:
                member.actor.assign.remote(self.assignment)

    def _substitutes(self, gone: list[Member], floor: int) -> tuple[list[Member], list[str]]:
        """New members with the state of those that are gone, and where their logs are served."""
        new = []
        for old in gone:
            member = Member(old.place.next(), old.kind)
            member.actor = self._spares.pop(0) if self._spares else self._actor()
            new.append(member)
        hellos = self._get("start", [m.actor.hello.remote(self._plan_ref) for m in new])
        for member, hello in zip(new, hellos, strict=True):
            self._welcome(member, hello)
        images = [self._images(m, floor) for m in new]
        calls = [self._become(m, floor, i) for m, i in zip(new, images, strict=True)]
        return new, self._get("restore", calls)

    def _images(self, member: Member, floor: int) -> list[Any]:
        """References of the images of a range at the floor, from whichever keeper has them."""
        if floor == 0:
            return []
        for keeper in self._keepers.values():
            try:
                call = keeper.images.remote(member.place.vertex, floor)
                found = dict(ray.get(call, timeout=PROGRESS_SECONDS))
            except RayError:
                continue
            if member.place.keys in found:
                refs: list[Any] = found[member.place.keys]
                return refs
        raise checkpoint_lost(member.place, floor)

    # ------------------------------------------------------------ end

    def dismiss(self) -> None:
        """End all actors: ask first, then kill."""
        calls = [m.actor.stop.remote() for m in self.members]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=STOP_SECONDS)
        self._kill([*(m.actor for m in self.members), *self._spares, *self._keepers.values()])
        self.members, self._spares, self._keepers = [], [], {}

    def _kill(self, actors: Iterable[Any]) -> None:
        for actor in actors:
            ray.kill(actor)

    def _all(self, doing: str, method: str, *args: Any) -> list[Any]:
        """Call every instance and wait for all answers."""
        return self._get(doing, [getattr(m.actor, method).remote(*args) for m in self.members])

    def _get(self, doing: str, calls: list[Any]) -> list[Any]:
        try:
            answers: list[Any] = ray.get(calls, timeout=START_SECONDS)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, RayError):  # what it was given died with its keeper
                raise _Died(f"an instance could not {doing}: {first_line(error.cause)}") from None
            raise cause_of(error) from None
        except ray.exceptions.GetTimeoutError:
            raise JobError(f"some instances did not {doing} within {START_SECONDS:g} s") from None
        except RayError as error:
            raise _Died(f"an instance died while it was to {doing}: {first_line(error)}") from None
        return answers


def _nodes() -> list[str]:
    nodes: Any = ray.nodes
    return sorted(n["NodeID"] for n in nodes() if n["Alive"])


def _names(members: Iterable[Member]) -> str:
    return ", ".join(m.name for m in members)


def _serving(member: Member, address: str, first: int) -> Serving:
    place = member.place
    return Serving(place.vertex, place.keys, place.name, address, first)


def cause_of(error: Any) -> RaystreamError:
    """Our error inside Ray's."""
    inner = error.cause
    if isinstance(inner, RaystreamError):
        return inner
    return JobError(f"{type(inner).__name__}: {inner}")


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return str(error).strip().partition("\n")[0]
