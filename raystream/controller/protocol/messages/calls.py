"""What the controller's side calls of instances and keepers, as typed protocols.

    InstanceCalls      an instance that has a place; the process on a cluster and the simulated one
    SeatCalls          these, and what a seat of a process on a cluster is asked before and after
    ProcessCalls       these, and what the process itself is asked
    KeeperCalls        a keeper; the process on a cluster and the simulated one
    KeeperActorCalls   these, and what only a keeper on a cluster is asked

A caller names a method as `InstanceCalls.commit`, so that a type checker sees its arguments, and
sends the call its own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from raystream.controller.protocol.gathering.links import Hop, Pair, Ways
from raystream.controller.protocol.journal import JournalEntry
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.assignment import Assignment
from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Progress
from raystream.dataflow.register import Boundaries, PlaceSet
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.durable.manifest import Saved, SavedChain
from raystream.errors import OvertakenError, RaystreamError
from raystream.schema.types import KeyRange
from raystream.state.images.image_store import Stored
from raystream.state.keeping.kept_images import KeptPart


class Hello(NamedTuple):
    """What a process says of itself."""

    versions: dict[str, str]
    """The versions of what must be equal on all nodes: otherwise replay would not give the same
    bits."""
    node: str
    """The id of its node."""
    pid: int
    """Its process id."""
    placed: bool
    """Whether it has a place."""


class ServesAt(NamedTuple):
    """A process has taken a place."""

    address: str
    """Where the logs of the instance are served."""
    nbytes: int
    """How many bytes its state took when it came."""
    gathered: str = ""
    """How they came, in words, if that was planned."""


class Brought(NamedTuple):
    """An owner has sent its changes to others."""

    epoch: int
    """The epoch up to which they have its state now."""
    nbytes: int
    """How many bytes it sent."""


class KeeperUse(NamedTuple):
    """What the images take that a keeper holds."""

    memory: int
    """Bytes in the object store."""
    disk: int
    """Bytes in files."""
    why: str = ""
    """Why it cannot write files; empty if it can."""
    links: tuple[tuple[Pair, float], ...] = ()
    """What it knows of links: bytes a second by sender and receiver."""


class Refusal(Enum):
    """Why a process does not take a place."""

    MISSING = "missing"
    """No keeper has the state."""
    PLACED = "placed"
    """Another controller gave it a place already."""


class InstanceCalls(Protocol):
    """An instance that has a place."""

    def begin(
        self,
        assignment: Assignment,
        keepers: tuple[Any, ...],
        kept: int,
        run: str,
        paced_from: float | None,
    ) -> None:
        """Begin to work, if it does not yet.

        Args:
            keepers: they hold its checkpoints, the choice number `kept`.
            run: the name of the run. paced_from: the Unix time at which a paced source releases its
                origin.
        """

    def assign(self, assignment: Assignment) -> None:
        """Follow a newer assignment."""

    def kept_by(self, keepers: tuple[Any, ...], kept: int) -> None:
        """These keepers hold its checkpoints from now on, the choice number `kept`."""

    def commit(self, epoch: int, published_upto: int) -> None:
        """The checkpoint at `epoch` is committed; a sink may publish what it wrote up to
        `published_upto`."""

    def forget(self, epoch: int) -> None:
        """All that read from it have what it sent up to an epoch."""

    def follow(self, view: PlaceSet[Any], content: Boundaries) -> None:
        """These keepers are the places of the boundary register, and hold `content`."""

    def boundaries(self, view: int, least: int) -> Boundaries | None:
        """All that a source knows of the boundary register; it claims nothing under views before
        this one from now on. None: it was not told the view `least`."""

    def progress(self) -> Progress:
        """What it has done so far."""
        ...


class SeatCalls(InstanceCalls, Protocol):
    """A seat of a process on a cluster: it may have, or get, a place."""

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
        """Take a place.

        Args:
            holders: the keepers that may have the images of the range at `committed`.
            ships: whether it is to store checkpoints.
            held: whether an owner will send it more (`accept`) before it can begin.
            ways: what it plans with by what ways its state comes; None for no plan.
            versions: the versions of the code that are settled.
        """
        ...

    def deliver(self, committed: int, to: list[tuple[KeyRange, Any]]) -> Brought | str:
        """Send processes that have parts of this one's range, as of the checkpoint `committed`,
        what has changed since then; or say why that cannot be."""
        ...

    def accept(self, data: Any) -> None:
        """Take from an owner what has changed since the committed checkpoint (an encoded image,
        None if nothing has), and make ready to begin."""

    def watch(self) -> RaystreamError | None:
        """Returns when the work is done, with what went wrong, if anything did."""

    def begun(self) -> bool:
        """Whether it was let begin in some place."""
        ...

    def stop(self) -> bool:
        """End all threads and remove what was spilled. Returns whether other instances of the
        process go on."""
        ...


class ProcessCalls(SeatCalls, Protocol):
    """A process on a cluster, and the seats in it."""

    def hello(self, plan: Plan) -> Hello:
        """Take the plan, and say what this process is."""
        ...

    def warm(self) -> None:
        """Begin to load what any instance may need, while no other process needs the processor."""


class KeeperCalls(Protocol):
    """A keeper: holds images and the journal, and may be a place of the boundary register."""

    def trim(self, committed: int, assigned: list[tuple[int, KeyRange]]) -> int:
        """Drop what no restore of these ranges from `committed` on needs; the bytes that are
        left."""
        ...

    def hand(self, view: int) -> Boundaries | None:
        """See `Register.hand`."""

    def fill(self, view: int, content: Boundaries) -> bool:
        """See `Register.fill`."""
        ...

    def write(self, entry: JournalEntry) -> bool:
        """Keep an entry of the journal; False when its writer is not the controller any more."""
        ...

    def leave_journal(self, order: tuple[int, int]) -> bool:
        """Others keep the journal; see `Shelf.leave`."""
        ...

    def claim_journal(self, incarnation: int) -> tuple[bool, tuple[int, int], JournalEntry | None]:
        """A controller begins; see `Shelf.claim`."""
        ...


class KeeperActorCalls(KeeperCalls, Protocol):
    """A keeper on a cluster. An image comes to it in parts, and leaves it as references."""

    def register_address(self) -> str:
        """Where instances claim boundaries, "HOST:PORT"."""
        ...

    def store(
        self,
        vertex: int,
        keys: KeyRange,
        part: KeyRange,
        image: Stored[Any],
        others: Sequence[Any] = (),
        before: Hop | None = None,
    ) -> tuple[bool, Any]:
        """Keep a part of an image, and pass it on to these keepers. Returns whether all of the
        image is held, if it was the last part, and the call of the next keeper.

        Args:
            before: how long the last part took that its sender sent here.
        """
        ...

    def images(
        self,
        vertex: int,
        checkpoint: int,
        wanted: KeyRange,
        versions: Sequence[tuple[int, int]] = (),
    ) -> list[tuple[KeyRange, list[tuple[KeptPart[Any], ...]]]]:
        """By range that has something of the wanted one, the parts of its images."""
        ...

    def read(self, number: int, keys: KeyRange | None = None) -> Any | None:
        """A part of an image, or what it has of a range; None if it is not held any more."""
        ...

    def pass_on(self, way: Sequence[Any], number: int, keys: KeyRange | None = None) -> Any | None:
        """A part, or what it has of a range, that the last of these keepers holds. It comes over
        the others, and over this one."""
        ...

    def use(self) -> KeeperUse:
        """What its images take, and whether it can store more."""
        ...

    def put_chains(
        self,
        checkpoint: int,
        places: list[tuple[int, KeyRange]],
        versions: Sequence[tuple[int, int]] = (),
    ) -> list[tuple[int, SavedChain]] | str:
        """Store the images of these ranges in the durable tier; or why that cannot be. versions:
        see `ImageStore.images`."""
        ...

    def save_checkpoint(self, saved: Saved) -> str | OvertakenError:
        """Write the manifest of a checkpoint all of whose images are stored. Why that cannot be, or
        "" when it is done."""
        ...

    def plan(self) -> Plan:
        """The plan of the job."""
        ...

    def pid(self) -> int:
        """The process id."""
        ...

    def stop(self) -> None:
        """Remove all files."""

    def watch(self) -> None:
        """Returns when another caller watches. It fails when this process dies."""
