"""What the controller has done, and what it hears: the words between its machine and its shell."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from raystream.controller import registering
from raystream.controller.journal import Entry, Seat
from raystream.controller.moves import Wanted
from raystream.controller.recovery import Place
from raystream.controller.report import Progress
from raystream.dataflow.register import Boundaries
from raystream.errors import OvertakenError, RaystreamError
from raystream.schema.types import KeyRange
from raystream.state.assignment import Assignment
from raystream.state.saved import Saved, SavedChain

# ---------------------------------------------------------------- commands


@dataclass(frozen=True, slots=True)
class Hire:
    """Start a process that can take any place. Answered by `Hired`. spare: it has time to load what
    a place may need. node: where, "" for anywhere."""

    process: str
    spare: bool = False
    node: str = ""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Ask a process that another controller started. Answered by `Hired` if it has no place."""

    process: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Start a keeper on a node."""

    process: str
    node: str


@dataclass(frozen=True, slots=True)
class Become:
    """Give a process a place, with the state that its range had at the cut `floor`, from whichever
    of `holders` have it. Answered by `Became`, `Missing` or `Failed`. held: its owner will bring it
    further before it begins."""

    process: str
    place: Place
    floor: int
    holders: tuple[str, ...]
    held: bool = False


@dataclass(frozen=True, slots=True)
class Deliver:
    """Let an owner bring processes that have the state of parts of its range at the cut `floor` to
    the epoch that it has ended. Answered by `Delivered`."""

    process: str
    floor: int
    to: tuple[tuple[str, KeyRange], ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """Let a process work in its place, or, where it does, hear of its end. Answered by `Done`."""

    seat: Seat
    assignment: Assignment
    started: float


@dataclass(frozen=True, slots=True)
class Assign:
    """Tell an instance the newest assignment."""

    process: str
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class CommitTo:
    """Tell an instance the newest floor, and up to which epoch sinks may show what they wrote."""

    process: str
    epoch: int
    shown: int


@dataclass(frozen=True, slots=True)
class KeptBy:
    """Tell an instance who holds its checkpoints from now on."""

    process: str
    keepers: tuple[str, ...]
    kept: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Let an instance drop what all have that read from it."""

    process: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Let a keeper drop what no restore at `floor` or later of these ranges needs."""

    process: str
    floor: int
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class PutChains:
    """Let a keeper store its images of these ranges at a cut in the durable tier. Answered by
    `Put`."""

    process: str
    cut: int
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class SaveCut:
    """Let a keeper write the manifest of a cut, all of whose images are stored. Answered by
    `CutSaved`."""

    process: str
    saved: Saved


@dataclass(frozen=True, slots=True)
class Write:
    """Write the journal at these keepers. What is commanded later is done when all of them that
    live have it, and not before one has: see `catch_up`. left: when its places change, the other
    keepers: once the places have it they forget what they hold, so that nobody goes on from what is
    old; and they know of a newer controller, of which a new place knows nothing."""

    entry: Entry
    at: tuple[str, ...]
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kill:
    """End a process that has no place any more. gently: it lives, and has time to tidy up; of it
    `Gone` is heard."""

    process: str
    because: str
    gently: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Say what became of a request: empty if it was taken up, else why it was refused."""

    request: int
    refusal: str


@dataclass(frozen=True, slots=True)
class End:
    """End the job; with an error, if it could not go on."""

    error: RaystreamError | None


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
    | SaveCut
    | Write
    | Kill
    | Answer
    | End
    | registering.Command
)

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed, and everybody was asked. nodes: those that are alive; for_operators: those
    of them that are meant for operators, if some are."""

    nodes: tuple[str, ...]
    for_operators: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Hired:
    """A process is there, with all that a job needs."""

    process: str
    node: str
    pid: int


@dataclass(frozen=True, slots=True)
class Became:
    """A process has its place and its state, of so many bytes; its logs are served at `address`."""

    process: str
    address: str
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Delivered:
    """Whom an owner was to bring to where it is has the state of its range at the end of `epoch`,
    for which it was given so many bytes more; or why it has not. takers: who that are. What it
    answers late is not said of those whom it was asked to bring next."""

    process: str
    takers: tuple[str, ...]
    epoch: int
    why: str = ""
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Missing:
    """Nobody has the state that a process was to be given. again: because a keeper died while it
    was fetched, so another may have it."""

    process: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """Another controller, whose time is over, has given a process a place: it is of no use."""

    process: str


@dataclass(frozen=True, slots=True)
class Heard:
    """What an instance says of itself."""

    process: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class Handed:
    """What a place of the boundary register holds, or a source knows of it; None: it refused."""

    view: int
    process: str
    content: Boundaries | None


@dataclass(frozen=True, slots=True)
class Filled:
    """A place of the boundary register was filled."""

    view: int
    process: str


@dataclass(frozen=True, slots=True)
class Done:
    """The work of an instance is done; or it could not go on."""

    process: str
    error: RaystreamError | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A process could not take its place, and no other could."""

    process: str
    error: RaystreamError


@dataclass(frozen=True, slots=True)
class Gone:
    """A process (of an instance, a keeper, a spare one) is dead, or does not answer."""

    process: str
    why: str


@dataclass(frozen=True, slots=True)
class Put:
    """What a keeper holds of a cut is in the durable tier: chains by vertex; or why it is not."""

    process: str
    cut: int
    chains: tuple[tuple[int, SavedChain], ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class CutSaved:
    """A cut is saved in the durable tier; or why it is not. overtaken: it never will be."""

    process: str
    cut: int
    why: str = ""
    overtaken: OvertakenError | None = None


@dataclass(frozen=True, slots=True)
class Save:
    """Somebody wants a cut now, and the job to end once it is committed, and saved if there is a
    durable tier."""


@dataclass(frozen=True, slots=True)
class Rescale:
    """Somebody wants operators to be served otherwise: all of it, or none. Answered by `Answer`."""

    request: int
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """Somebody wants a node to be left, and not to be used again. Answered by `Answer`."""

    request: int
    node: str
    because: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody wants the job to end now."""


Event = (
    Tick
    | Hired
    | Became
    | Delivered
    | Missing
    | Taken
    | Heard
    | Handed
    | Filled
    | Done
    | Failed
    | Gone
    | Put
    | CutSaved
    | Save
    | Rescale
    | Drain
    | Cancel
)


def catch_up(todo: deque[Command]) -> None:
    """Before a `Write` that comes first: the newest one goes instead, since it holds all that the
    others do. Keepers that are to hold it are started before."""
    writes = [c for c in todo if isinstance(c, Write)]
    if len(writes) > 1:
        keeps = [c for c in todo if isinstance(c, Keep)]
        others = [c for c in todo if not isinstance(c, Keep | Write)]
        newest = writes[-1]
        left = dict.fromkeys(p for w in writes for p in w.left if p not in newest.at)
        todo.clear()
        todo.extend([*keeps, replace(newest, left=tuple(left)), *others])
