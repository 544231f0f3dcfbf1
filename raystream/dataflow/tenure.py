"""The tenure of an instance: its side of the protocol with the controller and the keepers.

An instance has a *machine* (`dataflow.instances`), which knows what to do with records, and a
tenure, which knows what to do with what the controller and the keepers say. Every shell drives the
same one: the process on a cluster, the simulator and the job in one process. So what is simulated
is what runs.

    is told                                              says
    assign(assignment)      a newer assignment           which logs it reads, and its readers
    commit(epoch, upto)     a committed checkpoint       `act`: trims, publishes, closes; `over`
    kept_by(keepers, n)     the n-th choice of keepers   whether its end is to be stored again
    storing.answered(...)   a checkpoint is stored       whether its end is to be stored again
    takes_checkpoint(...)   an epoch was applied         whether a checkpoint is due, and which
    refused(epoch)          a log begins later           whether to ask again
                                                         `progress`: where it stands in all of this

Invariants:

- What it was told only grows: older assignments, commits and choices of keepers are ignored. So
  messages may come twice and in any order.
- A checkpoint builds on one that all present keepers hold. After another choice of keepers, and
  after a checkpoint that was not stored, the next one is full.
- An instance that has ended takes no more checkpoints. Its last one is stored again, in full, until
  all present keepers hold it.
- Logs are trimmed up to the committed checkpoint and no further: nobody goes back behind that.
- A sink publishes what it was told that it may publish, and nothing after it was closed.
- It is over when it has ended and its last epoch is committed; a sink, when that may be published.

A tenure has no threads and no locks. Where a shell has several threads, each method belongs to one
of them: `assign`, `commit`, `kept_by` and `progress` to the one that the controller calls; `act`,
`takes_checkpoint`, `next_checkpoint`, `capture` and `changes_since` to the one that computes;
`Storing.answered` to the one that ships. What they share are single values, each of which is set by
one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from raystream.dataflow.assignment import Assignment, Serving
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.pieces import Header
from raystream.dataflow.plan import Edge
from raystream.dataflow.progress import IDLE, Progress, Spent, progress_of
from raystream.dataflow.routing import catching_up, readers, reads
from raystream.dataflow.sinks import sink_context
from raystream.dataflow.snapshot import (
    Captured,
    advance,
    capture,
    install,
    measured,
    next_wanted,
    note_rows,
    settled,
)
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.native.memory import UNKNOWN, MemoryUse
from raystream.schema.types import SinkContext
from raystream.state.images.chain import FULL, IMAGE_BYTES, Chain, CheckpointRequest, Size
from raystream.state.images.image import Image, ImageHeader, InputPosition
from raystream.state.tables.backend import NOTHING_ON_DISK

if TYPE_CHECKING:
    from raystream.state.tiers.row_folder import LeftRows

K = TypeVar("K")
"""How a shell names a keeper."""


class KeeperChoice(NamedTuple, Generic[K]):
    """The keepers that are to hold the checkpoints of an instance."""

    number: int
    """Choices are numbered; 0: none was made yet."""
    keepers: tuple[K, ...]
    since: int
    """The position of the instance when it heard of the choice: what it stores later, they hold."""


class Storing(Generic[K]):
    """Which checkpoints of an instance are stored, and by which keepers.

    Args:
        committed: the checkpoint from which the instance goes on, which is stored; 0 for none.
        ships: whether the instance stores checkpoints at all.
        holders: the keepers that hold everything with which it begins; asked when its keepers are
            chosen first, so a restore may find out meanwhile.
        image: see `Chain`.
        guard: a lock, where one thread takes checkpoints and another one ships them.
    """

    def __init__(
        self,
        committed: int = 0,
        *,
        ships: bool = True,
        holders: Collection[K] = (),
        image: int = IMAGE_BYTES,
        guard: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.ships = ships
        self.chain = Chain(committed, image=image, guard=guard)
        self.choice: KeeperChoice[K] = KeeperChoice(0, (), 0)
        self.sizes: Sequence[Size] = ()
        """The sizes of the images with which the instance began."""
        self._holders = holders
        self._end_kept = 0
        """The number of the choice of keepers that holds the end of the instance; 0: none does."""

    def restart(self) -> None:
        """The rows are in another table, and perhaps of another class: the next checkpoint is a
        full one, whoever holds that with which the instance began."""
        self._holders = ()
        self.chain.restart()

    def kept_by(self, keepers: tuple[K, ...], number: int, position: int, *, ended: bool) -> bool:
        """These keepers hold its checkpoints from now on.

        If they hold all with which the instance began, and it has stored nothing since, the next
        checkpoint is a delta on that. Otherwise it is a full one: later they may have dropped it.

        Returns whether its last checkpoint has to be taken again, because none is to come.
        """
        if number <= self.choice.number:
            return False
        first = not self.choice.number
        whole = first and bool(keepers) and {*self._holders}.issuperset(keepers)
        self.choice = KeeperChoice(number, keepers, position)
        if not self.ships:
            return False
        if whole and not ended:
            self.chain.continues(self.sizes)
            return False
        self.chain.restart()
        return ended

    def answered(self, header: ImageHeader, size: Size, by: KeeperChoice[K], *, held: bool) -> bool:
        """A checkpoint was shipped.

        Args:
            by: the keepers that its last part was sent to.
            held: whether all of them hold it.

        Returns whether it has to be taken again, because it was the last one.
        """
        ended = header.input_position.ended
        if held:
            self._end_kept = by.number if ended else 0
        self.chain.answered(header.checkpoint, size, held=held)
        return ended and not held

    def kept_at(self, position: int, *, ended: bool) -> int:
        """The present keepers hold all that was stored after this epoch: also the end, which is
        stored again without any epoch in between."""
        again = ended and self._end_kept == self.choice.number
        return min(self.choice.since, position - 1) if again else self.choice.since


@dataclass(frozen=True, slots=True)
class Routes:
    """What an assignment means for one instance. The keys are (edge, name of the other one)."""

    readers: Mapping[tuple[int, str], int]
    """The instances that read its logs, and the first epoch that each will ask for."""
    candidates: Collection[tuple[int, str]]
    """Those of its readers that catch up and slow nobody."""
    reads: Mapping[tuple[int, str], tuple[Edge, Serving]]
    """The instances whose logs it reads."""


class AfterRefusal(Enum):
    """What an instance does when a producer does not have the epoch any more that it asked for."""

    ASK_AGAIN = "ask again"
    """It has applied that epoch meanwhile, and asks for a later one."""
    LEAVE = "leave"
    """It has ended and needs nothing more."""
    FAIL = "fail"
    """It can never go on."""


class Tenure(Generic[K]):
    """The control side of one instance. It installs the images with which the instance begins.

    Args:
        name: the identity of the instance, which no other one ever has.
        index: of the instance among those of its vertex.
        committed: the checkpoint from which it goes on; 0 at the beginning.
        chains: per part of its range the images that are needed, up to that checkpoint. None: it
            begins with nothing.
        storing: its checkpoints. Unless given it takes none.
        left: rows on disk with which the table begins; then the chains have what is newer.
        settles: whether commits drop what only deltas on older checkpoints need. A caller that
            takes such deltas by itself says no, and calls `snapshot.settled`.

    Raises:
        StateError: the images are not those of this instance; see `snapshot.install`.
    """

    def __init__(
        self,
        machine: Instance,
        name: str = "",
        *,
        index: int = 0,
        committed: int = 0,
        chains: Iterable[Sequence[Image]] | None = None,
        storing: Storing[K] | None = None,
        left: LeftRows | None = None,
        settles: bool = True,
    ) -> None:
        self.machine = machine
        self.name = name
        self.index = index
        self.begun = committed
        """The checkpoint from which it went on."""
        self.input_position: InputPosition | None = None
        """Where the images with which it began stand in the input; None at the beginning."""
        for log in machine.outlets.logs.values():
            log.next = committed + 1
        sizes: list[Size] = []
        if chains is not None:
            given = chains if storing is None else measured(chains, sizes)
            since = None if left is None else left.upto
            self.input_position = install(machine, given, committed, since=since)
            if left is not None:
                sizes.insert(0, Size(left.unread, 0))
        self.storing: Storing[K] = storing or Storing(committed, ships=False)
        self.storing.sizes = sizes
        self.version = 0
        """The version of the newest assignment."""
        self.owns = False
        """Whether the newest assignment names it as the owner of its range, not as a candidate."""
        self.committed = committed
        """The newest committed checkpoint on which it has acted."""
        self.published_upto = 0
        """Up to here a sink has published. Unknown at first: the instance before it may have died
        before it heard of a commit, so the first one is published in any case."""
        self.over = False
        self._told = (committed, 0)
        """The newest committed checkpoint and the last epoch to publish, as far as it was told."""
        self.tell: Callable[[Mapping[str, tuple[Any, ...]]], None] | None = None
        """Of a source that wants to know: takes the positions before which nothing is read again,
        by split. It must not wait."""
        self.get_code: Callable[[Sequence[CodeVersion]], None] = machine.switching.tell
        """Takes the versions of the code, and tells the machine's `switching` of them once it has
        all of them at hand. It must not wait."""
        self._noted: dict[int, Mapping[str, tuple[Any, ...]]] = {}
        self._trimmed = True
        self._settles = settles
        machine.upgraded.append(self.storing.restart)

    def advance(self, delta: Image) -> None:
        """Take from the owner of the range what has changed since `begun`, before the machine is
        opened.

        Raises:
            StateError: the delta does not apply to what the machine holds.
        """
        advance(self.machine, delta)
        self.input_position = delta.header.input_position

    # ------------------------------------------------------------ told by the controller

    def assign(self, assignment: Assignment) -> Routes | None:
        """Follow a newer assignment. None: it is not newer than the one it has."""
        if assignment.version <= self.version:
            return None
        self.machine.checkpoints.ask(
            assignment.checkpoints, assignment.stop_at
        )  # before it says that it was told
        self.version = assignment.version
        if assignment.versions != self.machine.switching.told:
            self.get_code(assignment.versions)
        mine = assignment.instance(self.name)
        self.owns = mine is not None and not mine.candidate
        vertex = self.machine.vertex
        sources = [v.id for v in self.machine.plan.vertices if v.kind == "source"]
        serving = sum(len(assignment.of(source)) for source in sources)
        self.machine.checkpoints.together = serving == 1
        return Routes(
            readers(vertex, assignment, self.begun),
            catching_up(vertex, assignment),
            reads(vertex, assignment),
        )

    def commit(self, epoch: int, published_upto: int) -> None:
        """The checkpoint at `epoch` is committed, and sinks may publish what they wrote up to
        `published_upto`. Nothing is done before `act`."""
        committed, upto = self._told
        self._told = max(committed, epoch), max(upto, published_upto)

    def kept_by(self, keepers: tuple[K, ...], number: int) -> bool:
        """These keepers hold its checkpoints from now on, the choice `number`; see `Storing`."""
        machine = self.machine
        return self.storing.kept_by(keepers, number, machine.position, ended=machine.ended)

    def forget(self, epoch: int) -> None:
        """All that read from this instance have what it sent up to an epoch."""
        self.machine.outlets.trim(epoch)

    # ------------------------------------------------------------ done by the instance

    def act(self, most: int | None = None) -> bool:
        """Do what commits ask for: trim the logs, publish, close.

        Args:
            most: see `Outlets.trim`; the rest is trimmed by later calls.

        Returns whether the tenure is over by this.

        Raises:
            JobError: a sink could not publish or be closed.
        """
        machine, (committed, upto) = self.machine, self._told
        if committed > self.committed:
            self.committed, self._trimmed = committed, False
            if self._settles:
                settled(machine, committed)
        if not self._trimmed:
            self._trimmed = machine.trim(committed, most)
        if upto > self.published_upto:
            self.published_upto = upto
            if not self.over:  # otherwise its sink was closed
                machine.publish(upto)
            self._pass_on(upto)
        if self.over or not machine.finished(committed, upto):
            return False
        machine.close()
        self.over = True
        return True

    def note(self, splits: Mapping[str, tuple[Any, ...]]) -> None:
        """The splits of a source stand there after the epoch that was applied last, which is a
        checkpoint. Once that is committed and published, the source is told."""
        if self.tell is not None:
            self._noted[self.machine.position] = splits

    def _pass_on(self, published: int) -> None:
        """Tell the source what is never read again, now that this epoch is published."""
        due = [epoch for epoch in self._noted if epoch <= published]
        if due and self.tell is not None:
            self.tell(self._noted[max(due)])
            for epoch in due:
                del self._noted[epoch]

    def sink_context(self, run: str, paced_from: float | None) -> SinkContext:
        """What a sink is told before its first write. paced_from: the Unix time at which a paced
        source releases its origin."""
        machine = self.machine
        return sink_context(
            machine.plan,
            machine.vertex,
            machine.keys,
            run=run,
            paced_from=paced_from,
            committed=machine.goes_on_from(self.begun),
            generation=self.version,
        )

    def takes_checkpoint(self, header: Header) -> bool:
        """Whether a checkpoint is to be taken after the epoch of this header."""
        return (header.checkpoint or header.ended) and self.storing.ships

    def next_checkpoint(self) -> CheckpointRequest:
        """What the checkpoint is to hold that is due now; see `snapshot.next_wanted`."""
        return next_wanted(self.machine, self.storing.chain)

    def capture(
        self,
        wanted: CheckpointRequest = FULL,
        splits: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Captured:
        """A checkpoint of the epoch that was applied last. splits: see `snapshot.capture`."""
        captured = self._captured(wanted, splits)
        note_rows(self.machine)
        return captured

    def _captured(
        self, wanted: CheckpointRequest, splits: Mapping[str, tuple[int, ...]] | None
    ) -> Captured:
        table = f"{self.name}@{self.begun}"  # another run may use the name again
        if version := self.machine.switching.version:
            table += f"v{version}"
        if splits is not None:
            self.note(splits)
        return capture(self.machine, wanted, splits=splits, table=table)

    def changes_since(
        self, checkpoint: int, splits: Mapping[str, tuple[int, ...]] | None = None
    ) -> Captured | None:
        """What has changed since a checkpoint, for another instance that takes over from here; None
        if nothing has."""
        if self.machine.position <= checkpoint:
            return None
        return self._captured(CheckpointRequest(checkpoint), splits)

    def refused(self, asked: int) -> AfterRefusal:
        """A producer does not have the epoch `asked` any more, from which it was to serve."""
        if self.machine.position >= asked:
            return AfterRefusal.ASK_AGAIN
        return AfterRefusal.LEAVE if self.machine.ended else AfterRefusal.FAIL

    def progress(
        self,
        *,
        cpu: float = 0.0,
        ended_at: float | None = None,
        image: tuple[int, float] = (0, 0.0),
        view: int = 0,
        unstored: str = "",
        spent: Spent = IDLE,
        memory: MemoryUse = UNKNOWN,
        marks: bytes = b"",
    ) -> Progress:
        """Where the instance stands. The arguments are what only a shell can measure, see
        `Progress`. The machine may step meanwhile, on another thread."""
        storing = self.storing
        progress = progress_of(
            self.machine,
            self.index,
            name=self.name,
            stored=storing.chain.stored if storing.ships else None,
            version=self.version,
            committed=self.committed,
            published_upto=self.published_upto,
            closed=self.over or self.machine.vertex.kind != "sink",
            cpu=cpu,
            ended_at=ended_at,
            image=image,
            view=view,
            row_bytes=storing.chain.row_bytes,
            spent=spent,
        )
        at = storing.kept_at(progress.position, ended=progress.ended)
        table = self.machine.table
        return replace(
            progress,
            kept=storing.choice.number,
            kept_at=at,
            unstored=unstored,
            memory=memory,
            marks=marks,
            on_disk=NOTHING_ON_DISK if table is None else table.on_disk,
        )
