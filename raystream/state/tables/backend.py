"""What a state backend is: the table that an instance keeps its rows in.

    capture(wanted, upto)  after a step, on the thread that computes: the first half of a checkpoint
        .copy(), .parts()  later, on any thread: the second half, as columns
    look_up(keys)          between two steps: the rows of some keys
    settle(checkpoint)     a checkpoint is stored: what only older deltas would say is forgotten
    fill(chains)           before the first epoch: all that the images of a checkpoint hold
    apply(image)           before the first epoch: one more delta

A checkpoint has two halves, so that the computing thread waits for little. The first half copies
what could still change, or opens a view of it. The second half makes Arrow columns of it, while the
table goes on changing. Rows that are put back count as touched at the checkpoint of their image.

How a logic gets at single rows is no part of the protocol: one that works record by record has
Python rows (`ObjectTable`), one that works on columns has slots (`StructuredTable`). A table whose
rows do not all lie in memory brings those of an epoch into a table of one of these two kinds before
the logic sees the epoch, and answers for the others here.

`tests/state/tables/test_backend.py` holds every backend to what is said here.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from raystream.schema.types import KeyRange
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import Image
from raystream.state.images.row_shape import RowShape

if TYPE_CHECKING:
    from raystream.state.tiers.row_folder import RowFolder

WHOLE = sys.maxsize
"""Bytes of an image in one part."""
COUNTED = 1 << 18
"""Rows whose keys are hashed at a time, to count them."""

Guard = AbstractContextManager[Callable[[], bool]]
"""A lock. What it hands out tells its holder whether it may go on, as nobody waits for the lock."""


class OnDisk(NamedTuple):
    """What a table has on disk."""

    rows: int = 0
    """How many of its rows are there alone."""
    nbytes: int = 0
    """The bytes of its files."""
    brought: int = 0
    """How many rows were brought from there so far."""
    reads: int = 0
    """How many pages of 4 KiB the disk had to be asked for, as memory did not have them."""
    full: float = 0.0
    """Which share of the disk was in use when rows were written there last, by whatever."""


NOTHING_ON_DISK = OnDisk()


class MadePart(NamedTuple):
    """A part of an image."""

    end: int
    """The key group after its last one. It begins where the part before ends."""
    rows: Any
    """The Arrow batch of rows, by key group and key."""
    gone: Any
    """The Arrow batch of the keys of removed rows, by key group and key."""


class PendingRows(ABC):
    """The first half of a checkpoint: rows that are copied, or in view."""

    @abstractmethod
    def parts(self, nbytes: int) -> Iterator[MadePart]:
        """The second half, once: the parts of the image, each made when it is asked for.

        Args:
            nbytes: about how many bytes of rows a part has; it has a key group at least.

        Raises:
            StateError: a value does not fit its field.
        """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """About how many bytes of memory it takes until the parts are made. Any thread may ask."""

    def copy(self) -> None:  # noqa: B027  a default
        """Copy what is in view, on the thread that will ask for the parts. Until that is done the
        computing thread has to put aside each row that it changes."""


class FoundRows(NamedTuple):
    """The rows of some keys: copied, or what cannot change."""

    at: np.ndarray
    """int64: the positions, among the keys that were looked up, of those that have a row."""
    batch: Callable[[], Any]
    """Makes the Arrow batch of these rows, as an image holds them and in this order. On any thread;
    it raises a StateError where a value does not fit its field."""


class NoRows(PendingRows):
    """No rows, of any table."""

    def __init__(self, shape: RowShape, groups: int) -> None:
        self._part = MadePart(groups, shape.no_rows, shape.nothing_gone)

    def parts(self, nbytes: int) -> Iterator[MadePart]:
        """One part."""
        yield self._part

    @property
    def nbytes(self) -> int:
        """Nothing."""
        return 0


class Table(ABC):
    """The rows of one instance of an operator. Not thread-safe, but for what says so."""

    shape: RowShape
    """What the rows hold."""
    groups: int
    """The number of key groups of the job."""
    names_slots: ClassVar[bool] = False
    """Whether images can name the slots that rows lie in, and `sample` finds rows to refresh."""

    @abstractmethod
    def __len__(self) -> int:
        """How many rows there are. Any thread may ask."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use; 0 where that is not known. Any thread may ask."""
        return 0

    @property
    def on_disk(self) -> OnDisk:
        """What it has on disk. Any thread may ask."""
        return NOTHING_ON_DISK

    def make_room(self, rows: int, keys: KeyRange) -> None:  # noqa: B027  a default
        """Make an empty table ready for that many rows of a range of key groups."""

    def warm(self) -> None:  # noqa: B027  a default
        """Load the code that is called only now and then. Not of a table in use."""

    def use_guard(self, guard: Guard) -> None:  # noqa: B027  a default
        """Hold this lock while captured rows are copied. From now on the caller holds it whenever
        it changes the table, and captured rows may be copied on another thread."""

    @abstractmethod
    def look_up(self, keys: Any) -> FoundRows:
        """The rows of some keys as they are now. Nothing changes by that, and no row is touched.

        Args:
            keys: an Arrow batch of key columns, as `shape.gone` says.

        Raises:
            StateError: a key is none that rows can have.
        """

    # ------------------------------------------------------------ checkpoints

    @abstractmethod
    def capture(self, wanted: CheckpointRequest, upto: int, *, named: bool = False) -> PendingRows:
        """The first half of a checkpoint at the end of epoch `upto`, the last that was applied.

        Args:
            wanted: what it is to hold.
            named: name the slots of rows, see `names_slots`.

        Raises:
            StateError: a value has no stored form.
        """

    def check(self, since: int) -> None:  # noqa: B027  a default
        """Check that what changed after the checkpoint `since` could be stored.

        Raises:
            StateError: a value does not fit its field.
        """

    def keep_in(self, folder: RowFolder) -> None:  # noqa: B027  a default
        """Write rows that memory has no room for into this folder, where a successor can open them,
        and go on from the rows that were left there. The table is empty.

        Raises:
            StateError: what was left is of other rows.
        """

    def keep_beside(self, before: Table, code: int) -> None:  # noqa: B027  a default
        """As `keep_in`, into the folder of the table whose rows this one gets; that one writes no
        more. code: the number of the version of the code that goes on with them."""

    def note(self, operator: str, keys: KeyRange, upto: int) -> None:  # noqa: B027  a default
        """A checkpoint is taken at the end of epoch `upto`: note what a successor on this node can
        open of the rows on disk, where there are some. keys: the range of the instance."""

    @abstractmethod
    def settle(self, checkpoint: int) -> None:
        """A checkpoint is stored, and no delta is asked for against an older one: removals up to it
        need not be remembered."""

    def sample(self) -> np.ndarray:
        """int64 [n, 2]: of some rows the epoch that touched them last, and their slot, in order.
        The rows are spread evenly over the table. Empty where no row can be refreshed just now."""
        return np.zeros((0, 2), np.int64)

    @abstractmethod
    def count_by_group(self) -> np.ndarray:
        """int64 [groups]: how many rows there are of each key group."""

    # ------------------------------------------------------------ restore

    def fill(self, chains: Iterable[Sequence[Image]]) -> None:
        """Put the rows of images into an empty table.

        Args:
            chains: of each part of the range, which are apart, its images: each a delta on the one
                before, the first with all that the others need. They are gone through once, and are
                not kept.

        Raises:
            StateError: an image holds a value that the state class has no place for any more.
        """
        for chain in chains:
            for image in chain:
                self.apply(image)

    @abstractmethod
    def apply(self, image: Image) -> None:
        """Put the rows of a delta into the table, and take out those that it says are gone.

        Raises:
            StateError: as `fill`.
        """
