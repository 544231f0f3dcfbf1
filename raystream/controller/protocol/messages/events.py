"""Events: what the controller's shell reports to its machine.

In all of them `process` is the name of the process from which or about which something was heard;
`request` is the number of a user's request; `attempt` identifies what the process was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raystream.controller.protocol.messages.calls import KeeperUse
from raystream.controller.protocol.messages.commands import Attempt
from raystream.controller.protocol.move_requests import RescaleRequest
from raystream.controller.protocol.upgrading.requests import UpgradeRequest
from raystream.dataflow.progress import Progress
from raystream.dataflow.register import Boundaries
from raystream.durable.manifest import SavedChain
from raystream.errors import OvertakenError, RaystreamError


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed, and all processes were asked for news."""

    nodes: tuple[str, ...]
    """The nodes that are alive."""
    for_operators: frozenset[str] = frozenset()
    """The nodes that are meant for operators; empty if none is."""
    zones: Mapping[str, str] = field(default_factory=dict)
    """The zones of nodes, as far as labels name them."""


@dataclass(frozen=True, slots=True)
class Hired:
    """A process has started and has loaded all that a job needs."""

    process: str
    node: str
    pid: int


@dataclass(frozen=True, slots=True)
class Became:
    """A process has its place, and the state of its range."""

    process: str
    attempt: Attempt
    address: str
    """Where its logs are served."""
    nbytes: int = 0
    """The size of the state that it was given."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """An owner has sent its changes to the processes that it was asked to bring further, or it
    could not."""

    process: str
    attempt: Attempt
    epoch: int
    """The epoch up to whose end the others have the state of their ranges."""
    why: str = ""
    """Why the owner could not deliver; empty if it could."""
    nbytes: int = 0
    """How many bytes it has sent."""


@dataclass(frozen=True, slots=True)
class Missing:
    """No keeper has the state that a process was to be given."""

    process: str
    attempt: Attempt
    again: bool = False
    """Whether a keeper died while the state was fetched from it, so that another one may have
    it."""


@dataclass(frozen=True, slots=True)
class AlreadyPlaced:
    """A controller whose time is over has given the process a place, so it is of no use."""

    process: str
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Heard:
    """An instance reported its progress."""

    process: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class Handed:
    """A place of the boundary register said what it holds, or a source instance what it knows."""

    view: int
    """The number of the view that is to be filled."""
    process: str
    content: Boundaries | None
    """What it holds or knows; None if it refused."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A place of the boundary register was filled."""

    view: int
    process: str


@dataclass(frozen=True, slots=True)
class Done:
    """The work of an instance has ended."""

    process: str
    error: RaystreamError | None = None
    """Why it could not go on; None if its work is done."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A process could not take its place, for a reason that no other process would escape."""

    process: str
    error: RaystreamError


@dataclass(frozen=True, slots=True)
class Gone:
    """A process (of an instance, a keeper, or a spare one) is dead, or does not answer."""

    process: str
    why: str
    no_memory: bool = False
    """Whether it was killed because its node had no memory left."""


@dataclass(frozen=True, slots=True)
class KeeperSaid:
    """What the images of a keeper take, and whether it can store more."""

    process: str
    use: KeeperUse


@dataclass(frozen=True, slots=True)
class Put:
    """A keeper has stored its images of a checkpoint in the durable tier, or could not."""

    process: str
    checkpoint: int
    chains: tuple[tuple[int, SavedChain], ...] = ()
    """The chains that it has stored, each with the number of its vertex."""
    why: str = ""
    """Why it could not; empty if it could."""


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A keeper has written the manifest of a checkpoint, or could not."""

    process: str
    checkpoint: int
    why: str = ""
    """Why it could not; empty if it could."""
    overtaken: OvertakenError | None = None
    """Set if the run can save nothing any more, because another run has begun since."""


@dataclass(frozen=True, slots=True)
class Save:
    """The job is asked to stop: it takes a checkpoint now, and ends once that is committed, and
    saved if there is a durable tier."""


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """A request for a checkpoint as soon as there can be one. Answered by `Answer`."""

    request: int


@dataclass(frozen=True, slots=True)
class Rescale:
    """A request to serve operators otherwise. Answered by `Answer`."""

    request: int
    wanted: tuple[RescaleRequest, ...]
    """What is asked for: all of it is taken up, or nothing."""


@dataclass(frozen=True, slots=True)
class Drain:
    """A request to leave a node and not to use it again. Answered by `Answer`."""

    request: int
    node: str
    because: str
    """Why, for people."""


@dataclass(frozen=True, slots=True)
class UpgradeTo:
    """A request to go over to other code. Answered by `Answer`."""

    request: int
    wanted: UpgradeRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    """The job is asked to end now."""


Event = (
    Tick
    | Hired
    | Became
    | Delivered
    | Missing
    | AlreadyPlaced
    | Heard
    | Handed
    | Filled
    | Done
    | Failed
    | Gone
    | KeeperSaid
    | Put
    | CheckpointSaved
    | Save
    | TakeCheckpoint
    | Rescale
    | Drain
    | UpgradeTo
    | Cancel
)
