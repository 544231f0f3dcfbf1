"""One of the instances of a process, from the time that the process is told what it is to be.

A seat without a role waits until it is told. What a process has but one of is in `instance`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray
from ray.exceptions import RayError

from raystream.actors.cluster.directory import SharedDirectory
from raystream.actors.cluster.environment import node_address, node_id
from raystream.actors.cluster.log_lines import LineWriter
from raystream.actors.keepers.fetching import RESTORE_SECONDS, Fetched, NotHeldError, fetch
from raystream.actors.network.connections import Joining
from raystream.actors.worker.driving.shared_thread import SharedThread
from raystream.actors.worker.fate import ours
from raystream.actors.worker.register_client import Claimer
from raystream.actors.worker.register_places import RegisterPlaces
from raystream.actors.worker.row_files import row_folder
from raystream.actors.worker.shell import Role, Shell
from raystream.actors.worker.shipping import Ship
from raystream.actors.worker.uploads import Uploads
from raystream.controller.protocol.gathering.links import Ways
from raystream.controller.protocol.messages.calls import Brought, Refusal, ServesAt
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.assignment import Assignment
from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Progress
from raystream.dataflow.register import Boundaries, PlaceSet
from raystream.dataflow.upgrading.versions import CodeVersion, begins_of, version_at
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from raystream.errors import RaystreamError
from raystream.schema.types import KeyRange
from raystream.security.credentials import Credentials
from raystream.state.images.image import decode
from raystream.state.images.partition import partition
from raystream.state.keeping.files import sweep
from raystream.state.tiers.row_folder import RowFolder

OF_ACTOR = ("hello", "warm")
"""What is asked of the actor itself."""
PLACING = ("become", "deliver", "accept")
"""What gives a seat its place, or another one: it may take long."""
LOOK_SECONDS = 0.5
SPILL_PREFIX = "raystream-spill-"


def spill_folder() -> Path:
    """Create a folder for the logs of this process, and remove those of dead processes."""
    sweep(None, SPILL_PREFIX)
    return Path(tempfile.mkdtemp(prefix=f"{SPILL_PREFIX}{os.getpid()}-"))


class SeatHandle(NamedTuple):
    """By which others call a seat of an actor."""

    actor: Any
    seat: int

    def ask(self, method: str, *args: Any) -> Any:
        """Call a method of the seat, or of the actor itself; the reference of its answer."""
        if method in OF_ACTOR:
            return getattr(self.actor, method).remote(*args)
        group = "watch" if method == "watch" else "place" if method in PLACING else "control"
        return getattr(self.actor, group).remote(self.seat, method, args)


class Seat:
    """One running copy of an operator. Methods are called by the controller only.

    Args:
        number: which of the seats of its process it is.
        shared: the thread that works for all of them; None where there is one only.
        goes_on: whether some instance of the process has work to do.
    """

    def __init__(
        self,
        credentials: Credentials,
        number: int = 0,
        shared: SharedThread | None = None,
        goes_on: Callable[[], bool] = lambda: False,
    ) -> None:
        self.plan: Plan
        """What is run."""
        self.writer: LineWriter | None = None
        """By whom its lines of log are; None without a role."""
        self._ended = False
        self._last: Progress | None = None
        """What it had done when it was told to end."""
        self._number, self._shared, self._goes_on = number, shared, goes_on
        self._credentials = credentials
        self._folder: Path | None = None
        self._files: RowFolder | None = None
        self._uploads: Uploads | None = None
        self._places = RegisterPlaces(Joining(credentials))
        self._claimer = Claimer(self._places.claim, self._places.look)
        self._shell: Shell | None = None
        self._has_role = threading.Event()
        self._watchers = 0
        self._placing = threading.Lock()

    @property
    def placed(self) -> bool:
        """Whether it has, or had, a role."""
        return self._shell is not None or self._last is not None

    @property
    def at_work(self) -> bool:
        """Whether it has a role, and was not told to end."""
        return self.placed and not self._ended

    def become(
        self,
        place: Place,
        committed: int,
        holders: list[Any],
        ships: bool,
        held: bool,
        ways: Ways | None = None,
        versions: tuple[CodeVersion, ...] = (),
    ) -> ServesAt | Refusal:
        """See `ProcessCalls.become`.

        Raises:
            RayError: an image cannot be had: its keeper died. Another may have it.
        """
        with self._placing, _told():
            if self._shell is not None or self._ended:
                return Refusal.PLACED
            began, begins = time.monotonic(), begins_of(versions)
            version = version_at(versions, committed)
            files = row_folder(self.plan, place, committed, self._number, version)
            self._files = files
            found: Fetched | None = Fetched(())
            if committed:
                found = self._images(holders, place, committed, files, ways, begins)
            if found is None:
                return Refusal.MISSING
            role = Role(
                vertex=place.vertex,
                keys=place.keys,
                name=place.name,
                index=place.index,
                committed=committed,
                images=found.images() if committed else (),
                holders=found.whole,
                files=files,
                version=version,
            )
            vertex = self.plan.vertices[place.vertex]
            self.writer = LineWriter(self.plan.job, vertex.name, place.name)
            self._folder = self._folder or spill_folder()
            self._uploads = Uploads(place.name, place.vertex, node_id())
            try:
                shell = self._made(role, self._uploads.store if ships else None)
            except NotHeldError:
                return Refusal.MISSING
            self._shell = shell
            if not held:
                shell.open()
            self._has_role.set()
            if self._ended:  # it was told so meanwhile
                shell.stop()
                return Refusal.PLACED
        told = found.told(time.monotonic() - began)
        gathered = f"{place.name}: {told}" if told else ""
        return ServesAt(shell.address, found.nbytes, gathered)

    def _made(self, role: Role, ship: Ship | None) -> Shell:
        return Shell(
            self.plan,
            role,
            credentials=self._credentials,
            host=node_address(),
            claim=self._claimer,
            directory=SharedDirectory(),
            ship=ship,
            folder=self._folder,
            shared=self._shared,
        )

    def deliver(self, committed: int, to: list[tuple[KeyRange, Any]]) -> Brought | str:
        """Send this instance's changes since the checkpoint `committed`, up to the last epoch
        applied, to processes that have parts of its range as of that checkpoint. Returns why, if
        that cannot be done."""
        try:
            delta = self._mine().delivery(committed)
            calls, nbytes = [], 0
            for keys, taker in to:
                part = None if delta is None else partition(delta, [keys])[0]
                array = None if part is None else np.frombuffer(part.encode(), np.uint8)
                nbytes += 0 if part is None else part.nbytes
                calls.append(taker.ask("accept", array))
            ray.get(calls, timeout=RESTORE_SECONDS)
        except (RayError, RaystreamError) as error:
            return str(error).partition("\n")[0]
        return Brought(committed if delta is None else delta.header.checkpoint, nbytes)

    def accept(self, data: Any) -> None:
        """Take from an owner its changes since the committed checkpoint (an encoded image, None if
        there are none), and prepare to begin."""
        with self._placing, _told():
            if data is not None:
                self._mine().advance(decode(data))
            self._mine().open()

    def _images(
        self,
        holders: list[Any],
        place: Place,
        committed: int,
        files: RowFolder | None,
        ways: Ways | None,
        begins: Sequence[tuple[int, int]],
    ) -> Fetched | None:
        """The images of a range: from keepers, or from the durable tier if the run resumes. Where
        `files` has rows that were left, only newer images, if that is enough."""
        left = None if files is None else files.left
        after = None if left is None else left.upto
        fetched = fetch(holders, place, committed, after, ways, node_id(), begins)
        if files is not None and left is not None:
            if fetched is not None and fetched.newer:
                left.unread = fetched.unread
            else:
                files.left = None
        if fetched is not None:
            return fetched
        durable = self.plan.durable
        if durable is None or committed != self.plan.begins:
            return None
        assert durable.resumed is not None
        saves = Saves(open_store(durable.url), self.plan.job)
        name = self.plan.vertices[place.vertex].name
        chains = saves.images(durable.resumed, name, place.keys)
        return Fetched(chains)

    def _mine(self) -> Shell:
        assert self._shell is not None, "this actor has no role yet"
        return self._shell

    @property
    def inbox(self) -> Any:
        """The inbox of its shell."""
        return None if self._shell is None else self._shell.inbox

    # ------------------------------------------------------------ watched and controlled

    def watch(self) -> RaystreamError | None:
        """Returns when the work is done, with the error if it failed, when there is a newer call,
        or when it is to end. If the call itself fails, this process is dead."""
        self._watchers += 1
        mine = self._watchers
        while mine == self._watchers and not self._ended:
            shell = self._shell
            if shell is None:
                self._has_role.wait(LOOK_SECONDS)
            elif shell.done.wait(LOOK_SECONDS):
                return shell.error
        return None

    def begin(
        self,
        assignment: Assignment,
        keepers: tuple[Any, ...],
        kept: int,
        run: str,
        paced_from: float | None,
    ) -> None:
        """Begin to work, if it has not begun yet."""
        self._mine().kept_by(keepers, kept)
        self._mine().assign(assignment)
        self._mine().start(run, paced_from)

    def begun(self) -> bool:
        """Whether it has begun to work in some place."""
        return self._shell is not None and self._shell.begun

    def assign(self, assignment: Assignment) -> None:
        """Follow a newer assignment."""
        self._mine().assign(assignment)

    def kept_by(self, keepers: tuple[Any, ...], kept: int) -> None:
        """Store checkpoints with these keepers from now on. kept: the number of the choice."""
        self._mine().kept_by(keepers, kept)

    def forget(self, epoch: int) -> None:
        """Drop the logs up to an epoch, which all consumers have received."""
        self._mine().tenure.forget(epoch)

    def follow(self, view: PlaceSet[Any], content: Boundaries) -> None:
        """Claim under a new view of the boundary register, whose places hold `content`."""
        self._claimer.follow(view, content)
        self._places.keep(view.places)

    def boundaries(self, view: int, least: int) -> Boundaries | None:
        """All boundaries that this source knows. It claims nothing under views before this one from
        now on. None: it was not told the view `least`."""
        return self._claimer.boundaries(view, least)

    def progress(self) -> Progress:
        """What the instance has done so far."""
        if self._last is not None:
            return self._last
        unstored = "" if self._uploads is None else self._uploads.unstored
        return self._mine().progress(view=self._claimer.view, unstored=unstored)

    def commit(self, epoch: int, published_upto: int) -> None:
        """Take a commit: the checkpoint at `epoch`. A sink may publish up to `published_upto`."""
        self._mine().commit(epoch, published_upto)
        self._claimer.trim(epoch)

    def stop(self) -> bool:
        """End all threads and remove what was spilled. Returns whether other instances of the
        process go on."""
        self._ended = True
        self._claimer.stop()
        self._places.keep(())
        if self._shell is not None:
            self._shell.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._files is not None:
            self._files.remove()
        goes_on = self._goes_on()
        if goes_on and self._shell is not None:  # the process no longer needs its state
            self._last, self._shell, self.writer = self.progress(), None, None
        return goes_on


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
