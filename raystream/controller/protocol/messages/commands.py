"""Commands: what the controller's machine wants done. Each says by which event it is answered.

In all of them `process` is the name of the process that has to do something, or from which or about
which something was heard; `request` is the number of a user's request; `attempt` identifies what a
process is asked, and comes back with its answer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import NamedTuple

from raystream.controller.protocol import register_views as registering
from raystream.controller.protocol.journal import InstanceRecord, JournalEntry
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.assignment import Assignment
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.durable.manifest import Saved
from raystream.errors import RaystreamError
from raystream.schema.types import KeyRange


class Attempt(NamedTuple):
    """Identifies a request that a process answers later. The answer brings it back, so that one
    which nobody waits for any more is known as such."""

    incarnation: int
    """The controller that made the request."""
    placement: int
    """The number of the placement for which it was made."""
    number: int
    """The number of the request among those of the placement."""


@dataclass(frozen=True, slots=True)
class Hire:
    """Start a process that can take any place. Answered by `Hired`."""

    process: str
    spare: bool = False
    """Whether it has time to load what a place may need."""
    node: str = ""
    """The node where it is to run, "" for any."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Take over a process that another controller has started. Answered by `Hired` if it has no
    place."""

    process: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Start a keeper on a node."""

    process: str
    node: str


@dataclass(frozen=True, slots=True)
class Become:
    """Give a process a place, and the state of its range. Answered by `Became`, `Missing`,
    `AlreadyPlaced` or `Failed`."""

    process: str
    place: Place
    committed: int
    """The checkpoint whose state it is given; 0 for none."""
    holders: tuple[str, ...]
    """The keepers that may have the checkpoint of its range, or of parts of it."""
    held: bool
    """Whether an owner will bring it further before it begins."""
    attempt: Attempt
    versions: tuple[CodeVersion, ...] = ()
    """The versions of the code that are settled: one of them has made that checkpoint, or the one
    that the job began with."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Let an owner bring processes that have the state of parts of its range to the epoch that it
    has ended. Answered by `Delivered`."""

    process: str
    committed: int
    """The checkpoint whose state the others have."""
    to: tuple[tuple[str, KeyRange], ...]
    """These processes, with their ranges."""
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Begin:
    """Let a process begin to work in its place; if it works already, only wait for its end.
    Answered by `Done`."""

    record: InstanceRecord
    """The instance that it becomes."""
    assignment: Assignment
    """The newest assignment."""
    started: float
    """The Unix time at which the job began."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Tell an instance the newest assignment."""

    process: str
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class CommitTo:
    """Tell an instance the committed checkpoint."""

    process: str
    epoch: int
    """The committed checkpoint."""
    published_upto: int
    """The epoch up to which sinks may publish what they wrote."""


@dataclass(frozen=True, slots=True)
class KeptBy:
    """Tell an instance which keepers hold its checkpoints from now on."""

    process: str
    keepers: tuple[str, ...]
    """The processes of the keepers."""
    kept: int
    """The number of this choice of keepers."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Let an instance drop the log entries that all its consumers have applied."""

    process: str
    epoch: int
    """The epoch up to which they have."""


@dataclass(frozen=True, slots=True)
class Trim:
    """Let a keeper drop all images but those that a restore of these places needs, at `committed`
    or later."""

    process: str
    committed: int
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class PutChains:
    """Let a keeper store its images of these places at a checkpoint in the durable tier. Answered
    by `Put`."""

    process: str
    checkpoint: int
    places: tuple[Place, ...]
    versions: tuple[tuple[int, int], ...] = ()
    """See `ImageStore.images`."""


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Let a keeper write the manifest of a checkpoint, all of whose images are in the durable tier.
    Answered by `CheckpointSaved`."""

    process: str
    saved: Saved


@dataclass(frozen=True, slots=True)
class Write:
    """Write the journal. Later commands are done only when every keeper in `at` that is alive has
    the entry, and at least one has it: see `catch_up`."""

    entry: JournalEntry
    at: tuple[str, ...]
    """The processes of the keepers that hold the journal."""
    left: tuple[str, ...] = ()
    """Set when the keepers that hold the journal change: the processes of the others. Once those in
    `at` have the entry, these forget theirs, so that no controller goes on from an old one. They
    are also asked because they may know of a newer controller, of which a new keeper in `at` knows
    nothing."""


@dataclass(frozen=True, slots=True)
class Kill:
    """End a process that has no place any more."""

    process: str
    because: str
    """Why, for people."""
    gently: bool = False
    """Whether it is alive and gets time to tidy up. Then it is answered by `Gone`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a user's request."""

    request: int
    refusal: str
    """Why it was refused; empty if it was taken up."""


@dataclass(frozen=True, slots=True)
class End:
    """End the job."""

    error: RaystreamError | None
    """Why it could not go on; None if it has done its work."""


Command = (
    Hire
    | Adopt
    | Keep
    | Become
    | Deliver
    | Begin
    | Assign
    | CommitTo
    | KeptBy
    | Forget
    | Trim
    | PutChains
    | SaveCheckpoint
    | Write
    | Kill
    | Answer
    | End
    | registering.RegisterCommand
)


def catch_up(todo: deque[Command]) -> None:
    """Shorten a queue that begins with a `Write`. Of all its writes only the newest stays and comes
    first: its entry holds all that the older ones do. Only the starts of keepers come before it,
    since these may be the keepers that are to hold it."""
    writes = [c for c in todo if isinstance(c, Write)]
    if len(writes) > 1:
        keeps = [c for c in todo if isinstance(c, Keep)]
        others = [c for c in todo if not isinstance(c, Keep | Write)]
        newest = writes[-1]
        left = dict.fromkeys(p for w in writes for p in w.left if p not in newest.at)
        todo.clear()
        todo.extend([*keeps, replace(newest, left=tuple(left)), *others])
