"""The Ray actor of one instance: a shell in a process of its own.

A synchronous actor; `work` and control have concurrency groups of their own, so that a parked call
shows the death of the process at once and control is answered while data flows. An actor is made
without a role: a spare one waits, with the job's code loaded, until it is told what to be.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from raystream.actors.claiming import Claimer
from raystream.actors.fetching import RESTORE_SECONDS, fetch
from raystream.actors.late_pandas import put_off_pandas
from raystream.actors.loading import Loading
from raystream.actors.shell import Role, Shell, ours
from raystream.controller.recovery import Place
from raystream.dataflow.plan import Plan
from raystream.dataflow.register import Ask, Boundaries, Held, View
from raystream.errors import RaystreamError
from raystream.io.saves import Saves
from raystream.io.store import open_store
from raystream.schema.types import KeyRange
from raystream.state.assignment import Assignment
from raystream.state.image import Image, ImageHeader, decode
from raystream.state.partition import partition

ASK_SECONDS = 1.0
"""How long a source waits for one place of the boundary register before it asks again."""
STORE_SECONDS = 60.0
"""How long a keeper may take to store a checkpoint."""
PARTS_AHEAD = 2
"""So many parts of an image may be on their way to keepers while the next one is made."""
LOOK_SECONDS = 0.5
SWITCH_SECONDS = 0.0005
"""After so long a thread lets another one run that waits for it. Who computes waits each time when
others ship a checkpoint or answer the controller: with Python's own 5 ms, three epochs long."""
SPILL_PREFIX = "raystream-spill-"


class Hello(NamedTuple):
    """What a process says of itself: what must be equal on all nodes, or replay would not give the
    same bits; its node; its process id; whether it has a place."""

    versions: dict[str, str]
    node: str
    pid: int
    placed: bool


class Placed(NamedTuple):
    """Where the logs of an instance are served, and how many bytes its state took when it came."""

    address: str
    nbytes: int


class Brought(NamedTuple):
    """To which epoch an owner has brought others, and with how many bytes."""

    epoch: int
    nbytes: int


class Refusal(Enum):
    """Why a process does not take a place: nobody has the state; another controller gave it one."""

    MISSING = "missing"
    PLACED = "placed"


def versions() -> dict[str, str]:
    """What must be equal on all nodes, or replay would not give the same bits."""
    packages = {name: metadata.version(name) for name in ("numpy", "numba", "pyarrow")}
    return {"python": platform.python_version(), **packages}


def node_address() -> str:
    """The address by which other nodes reach this one."""
    find: Any = ray.util.get_node_ip_address
    return str(find())


def spill_folder() -> Path:
    """A folder for the logs of this process. What killed processes left behind is removed."""
    where = Path(tempfile.gettempdir())
    for left in where.glob(f"{SPILL_PREFIX}*-*"):
        pid = left.name.removeprefix(SPILL_PREFIX).partition("-")[0]
        if pid.isdecimal() and not _alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{SPILL_PREFIX}{os.getpid()}-"))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # of another user, so it is there
    return True


class InstanceActor:
    """One running copy of an operator. Methods are called by the controller only."""

    def __init__(self, token: str) -> None:
        pa.set_cpu_count(1)
        put_off_pandas()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._plan: Plan
        self._token = token
        self._folder: Path | None = None
        self._keepers: tuple[Any, ...] = ()
        self._kept = self._kept_at = self._end_kept = 0
        """The choice of its keepers, where it was when it heard of that, and the choice of those
        that hold its end."""
        self._whole: frozenset[Any] = frozenset()
        """The keepers that hold what this instance began with."""
        self._sent: list[list[Any]] = []
        self._unstored = ""
        self._claimer = Claimer(_ask)
        self._shell: Shell | None = None
        self._has_role = threading.Event()
        self._watchers = 0
        self._loading = Loading()

    def hello(self, plan: Plan) -> Hello:
        """Take the plan, and say who is there.

        Not done by the constructor: Ray hides what a constructor raised.
        """
        self._plan = plan
        node = ray.get_runtime_context().get_node_id()
        return Hello(versions(), node, os.getpid(), self._shell is not None)

    def warm(self) -> None:
        """Begin to load what any role may need, while nobody else needs the processor."""
        self._loading.begin(self._warm())

    def _warm(self) -> Iterator[None]:
        """Load compiled functions and kernels."""
        from raystream.dataflow.warming import warm

        yield
        yield from warm(self._plan)

    def become(
        self, place: Place, floor: int, holders: list[Any], ships: bool, held: bool
    ) -> Placed | Refusal:
        """Take a place.

        Args:
            holders: the keepers that may have the images of the range at `floor`.
            ships: whether it is to store checkpoints.
            held: whether an owner will bring it further (`accept`) before it can begin.

        Raises:
            RayError: an image cannot be had: its keeper died. Another may have it.
        """
        self._loading.hurry()
        with _told():
            if self._shell is not None:
                return Refusal.PLACED
            chains = self._images(holders, place, floor) if floor else ()
            if chains is None:
                return Refusal.MISSING
            nbytes = sum(i.nbytes for chain in chains for i in chain)
            self._folder = spill_folder()
            self._shell = Shell(
                self._plan,
                Role(place.vertex, place.keys, place.name, place.index, floor, chains),
                token=self._token,
                host=node_address(),
                claim=self._claimer,
                ship=self._ship if ships else None,
                folder=self._folder,
            )
            if not held:
                self._shell.open()
            self._has_role.set()
        return Placed(self._shell.address, nbytes)

    def deliver(self, floor: int, to: list[tuple[KeyRange, Any]]) -> Brought | str:
        """Bring processes that have parts of this one's range, as of the cut `floor`, to the epoch
        that it has ended; or why it could not."""
        try:
            delta = self._mine().delivery(floor)
            calls, nbytes = [], 0
            for keys, taker in to:
                part = None if delta is None else partition(delta, [keys])[0]
                array = None if part is None else np.frombuffer(part.encode(), np.uint8)
                nbytes += 0 if part is None else part.nbytes
                calls.append(taker.accept.remote(array))
            ray.get(calls, timeout=RESTORE_SECONDS)
        except (RayError, RaystreamError) as error:
            return str(error).partition("\n")[0]
        return Brought(floor if delta is None else delta.header.cut, nbytes)

    def accept(self, data: Any) -> None:
        """Take from an owner what has changed since the floor (an encoded image, None if nothing
        has), and make ready to begin."""
        with _told():
            if data is not None:
                self._mine().advance(decode(data))
            self._mine().open()

    def _images(
        self, holders: list[Any], place: Place, floor: int
    ) -> tuple[tuple[Image, ...], ...] | None:
        """The images of a range from keepers; those with which the run begins are in its store."""
        fetched = fetch(holders, place, floor)
        if fetched is not None:
            self._whole = fetched.whole
            return fetched.chains
        durable = self._plan.durable
        if durable is None or floor != self._plan.begins:
            return None
        assert durable.resumed is not None
        saves = Saves(open_store(durable.url), self._plan.job)
        name = self._plan.vertices[place.vertex].name
        return tuple(map(tuple, saves.images(durable.resumed, name, place.keys)))

    def _mine(self) -> Shell:
        assert self._shell is not None, "this actor has no role yet"
        return self._shell

    def _ship(self, header: ImageHeader, part: KeyRange, data: memoryview) -> bool:
        """Send a part of an image to every keeper of this instance, and wait for the parts before
        but a few; with the last part, True when all keepers have the image."""
        array, role = np.frombuffer(data, np.uint8), self._mine().role
        image = (role.name, role.vertex, header.keys, header.base, header.cut, header.oldest)
        ended = header.standing.ended
        ahead = 0 if part.hi == header.keys.hi else PARTS_AHEAD
        kept = self._kept  # before its keepers: they may be chosen anew meanwhile
        calls: list[Any] = []
        try:
            calls = [keeper.store.remote(*image, ended, part, array) for keeper in self._keepers]
            self._sent.append(calls)
            while len(self._sent) > ahead:
                if not all(ray.get(self._sent.pop(0), timeout=STORE_SECONDS)):
                    calls = []
        except RayActorError:
            calls = []  # a keeper died: the controller sees it, and the next cut is a full one
        except RayError as error:  # it has no room, say: tried again with the next cut
            calls, self._unstored = [], _said(error)
        if not calls:
            self._sent.clear()
        elif not ahead:
            self._unstored = ""
            self._end_kept = kept if ended else 0
        return bool(calls)

    # ------------------------------------------------------------ groups of their own

    @ray.method(concurrency_group="park")
    def watch(self) -> RaystreamError | None:
        """Returns when the work is done, with what went wrong, if anything did; or when somebody
        else watches. Its failure is the death of this process."""
        self._watchers += 1
        mine = self._watchers
        while mine == self._watchers:
            if self._shell is None:
                self._has_role.wait(LOOK_SECONDS)
            elif self._shell.done.wait(LOOK_SECONDS):
                return self._shell.error
        return None

    @ray.method(concurrency_group="control")
    def begin(
        self,
        assignment: Assignment,
        keepers: tuple[Any, ...],
        kept: int,
        run: str,
        paced_from: float | None,
    ) -> None:
        """Begin to work, if it does not yet."""
        self._keep(keepers, kept)
        self._mine().assign(assignment)
        self._mine().start(run, paced_from)

    @ray.method(concurrency_group="control")
    def begun(self) -> bool:
        """Whether it was let begin in some place."""
        return self._shell is not None and self._shell.begun

    @ray.method(concurrency_group="control")
    def assign(self, assignment: Assignment) -> None:
        """Follow a newer assignment."""
        self._mine().assign(assignment)

    @ray.method(concurrency_group="control")
    def kept_by(self, keepers: tuple[Any, ...], kept: int) -> None:
        """These keepers hold this instance's checkpoints from now on, the choice number `kept`."""
        self._keep(keepers, kept)

    def _keep(self, keepers: tuple[Any, ...], kept: int) -> None:
        if kept > self._kept:
            whole = not self._kept and bool(keepers) and self._whole.issuperset(keepers)
            self._keepers = keepers
            self._kept, self._kept_at = kept, self._mine().machine.position
            self._mine().store_with_others(whole=whole)

    @ray.method(concurrency_group="control")
    def forget(self, epoch: int) -> None:
        """All who read from this instance have what it sent up to an epoch."""
        self._mine().machine.outlets.trim(epoch)

    @ray.method(concurrency_group="control")
    def follow(self, view: View[Any], content: Boundaries) -> None:
        """These keepers are the places of the boundary register, and hold `content`."""
        self._claimer.follow(view, content)

    @ray.method(concurrency_group="control")
    def boundaries(self, view: int, least: int) -> Boundaries | None:
        """All that this source knows of the boundary register; it claims nothing under views
        before this one from now on. None: it was not told the view `least`."""
        return self._claimer.boundaries(view, least)

    @ray.method(concurrency_group="control")
    def progress(self) -> Any:
        """What it has done so far."""
        mine, view = self._mine().progress(), self._claimer.view
        kept, at = self._kept, self._kept_at
        if mine.ended and self._end_kept == kept:
            at = min(at, mine.position - 1)  # they have its end, which it stored again
        return replace(mine, kept=kept, kept_at=at, view=view, unstored=self._unstored)

    @ray.method(concurrency_group="control")
    def commit(self, epoch: int, shown: int) -> None:
        """The cut at `epoch` is the new floor; sinks may show what they wrote up to `shown`."""
        self._mine().commit(epoch, shown)
        self._claimer.trim(epoch)

    @ray.method(concurrency_group="control")
    def stop(self) -> None:
        """End all threads and remove what was spilled."""
        self._claimer.stop()
        if self._shell is not None:
            self._shell.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _ask(ask: Ask[Any], split: str, epoch: int) -> Held | None:
    """Ask a keeper; None when it refuses, is gone, or does not answer in time."""
    call = ask.place.claim.remote(ask.view, split, epoch, ask.wanted)
    try:
        held: Held | None = ray.get(call, timeout=ASK_SECONDS)
    except RayError:
        return None
    return held


def _said(error: RayError) -> str:
    """What a keeper raised, in a line."""
    raised = error.cause if isinstance(error, RayTaskError) else error
    return f"{type(raised).__name__}: {raised}".partition("\n")[0]


@contextmanager
def _told() -> Iterator[None]:
    """Errors leave with what a traceback would tell: it does not cross to another process. Ray's
    own leave as they are: a keeper that died is no fault of this process, and another may serve."""
    try:
        yield
    except RayError:
        raise
    except Exception as error:
        raise ours(error) from None
