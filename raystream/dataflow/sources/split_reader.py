"""One split of a source: its batches, read in order from a position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from raystream.api.batch import Batch
from raystream.api.connectors import Source
from raystream.errors import (
    InputError,
    OperatorError,
    RaystreamError,
    StateError,
    Where,
    leaves,
    left_by,
    user_frame,
    what_was_raised,
)
from raystream.schema.columns import Columns
from raystream.schema.records import RecordSchema, apart
from raystream.schema.types import Split

Read = Callable[[Split, int], Iterator[tuple[int, Batch[Any]]]]
"""The `read` of a source: (split, position) to pairs of the next position and a batch."""


class SplitReader:
    """Reads the batches of one split from a position on, and remembers where each ends.

    Args:
        name: of the split.
        source: the name of its source.
        read: the method of the source.
        recorded: the source itself, if it cannot be read again.
        ahead: how many batches may wait where a thread reads ahead.
    """

    _END = object()
    """Marks the end. It is not None, because a source may yield None by mistake."""

    def __init__(
        self,
        name: str,
        source: str,
        schema: RecordSchema,
        read: Read,
        position: int = 0,
        recorded: Source[Any] | None = None,
        *,
        ahead: int = 1,
        where: Where | None = None,
    ) -> None:
        """
        Args:
            where: where the source joins the flow, for errors that name no other place.
        """
        self.split = Split(name)
        self.source = source
        self.schema = schema
        self.position = position
        self.ahead = ahead
        self.where = where
        self.sent: tuple[str, int, np.ndarray | None] | None = None
        """The sender and sequence of the batch that was read last, if it has them, and the sequence
        of each row, if they have such."""
        self.ends: np.ndarray | None = None
        """The positions after each row of the batch that was read last, if the source says so."""
        self._recorded = recorded
        with told(self.source, "read", self.split, self.where):
            self._batches = read(self.split, position)
        if not isinstance(self._batches, Iterator):
            raise self._unlike("returned", self._batches)

    def next(self, *, empty: bool = False) -> Columns | None:
        """The next batch that has rows, or None at the end of the split.

        Args:
            empty: return a batch without rows, too: a source that waits for something to come may
                yield one, so that its reader can see to other things.

        Raises:
            InputError: the source cannot read on.
            OperatorError: the source's code raised.
        """
        while True:
            with told(self.source, "read", self.split, self.where):
                found = next(self._batches, self._END)
            if found is self._END:
                return None
            before = self.position
            match found:
                case (position, Batch() as batch) if hasattr(position, "__index__"):
                    self.position, columns, self.sent = int(position), batch._columns, None
                    self.ends = None
                case (position, Batch() as batch, np.ndarray() as ends) if (
                    self._recorded is None and hasattr(position, "__index__")
                ):
                    self.position, columns, self.ends = int(position), batch._columns, ends
                    self._check_ends(before, len(batch))
                case (position, Batch() as batch, (str() as sender, int() as sequence)) if (
                    self._recorded is not None and hasattr(position, "__index__")
                ):
                    self.position, columns = int(position), batch._columns
                    self.sent = (sender, sequence, None)
                case (position, Batch() as batch, (str() as sender, np.ndarray() as each)) if (
                    self._recorded is not None and hasattr(position, "__index__")
                ):
                    self.position, columns = int(position), batch._columns
                    self.sent = (sender, *self._sequences(each, len(columns)))
                case _:
                    raise self._unlike("yields", found)
            if columns.schema is not self.schema:
                yields, declared = apart(columns.schema.cls, self.schema.cls)
                raise InputError(f"{self.source} yields {yields}, but declared {declared}")
            if len(columns):
                if self.position == before:
                    raise self._stays()
                return columns
            if empty:
                return columns

    def _sequences(self, each: np.ndarray, rows: int) -> tuple[int, np.ndarray]:
        """The sequences of the rows of a batch, the last one first by itself."""
        rising = each.dtype.kind in "iu" and len(each) == rows > 0 and (np.diff(each) >= 0).all()
        if not rising:
            raise InputError(
                f"{self.source}.read({self.split.name!r}) yields {rows} rows with {len(each)}"
                " sequences",
                hint="Each row has one, an integer, and it is not below the one before.",
            )
        return int(each[-1]), each

    def acknowledge(self, number: int) -> None:
        """Tell a source that everything is recorded up to the batch with this number.

        Raises:
            OperatorError: the source's code raised.
        """
        if self._recorded is not None:
            with told(self.source, "acknowledge", self.split, self.where):
                self._recorded.acknowledge(self.split, number)

    def knows(self, sequences: Mapping[str, int]) -> None:
        """Tell a source by sender the last sequences that others have recorded.

        Raises:
            OperatorError: the source's code raised.
        """
        if self._recorded is not None:
            with told(self.source, "knows", self.split, self.where):
                self._recorded.knows(self.split, sequences)

    @property
    def more(self) -> tuple[np.ndarray, ...]:
        """What `ArrivalSplit.add` takes besides the position and rows of a batch."""
        return () if self.ends is None else (self.ends,)

    def _check_ends(self, before: int, rows: int) -> None:
        ends = self.ends
        assert ends is not None
        if ends.dtype not in (np.int64, np.object_) or ends.shape != (rows,):
            wrong = f"{ends.dtype} of shape {ends.shape} for {rows} records"
        elif rows and not (before < ends[0] and ends[-1] <= self.position):
            wrong = f"{ends[0]} to {ends[-1]} for a batch from {before} to {self.position}"
        elif (np.diff(ends) <= 0).any():
            wrong = "positions that do not rise"
        else:
            return
        raise InputError(
            f"{self.source}.read({self.split.name!r}) yields as positions of records {wrong}",
            hint="An int64 array beside a batch has the position after each of its records; where"
            " 64 bits do not suffice, an array of Python's ints.",
        )

    def _stays(self) -> InputError:
        return InputError(
            f"{self.source}.read({self.split.name!r}) yields a batch with the position at which it"
            f" begins, {self.position}: a reader that goes on there would get its records again",
            hint="With each batch it is to yield where the next one begins: (n + 1, batch), not"
            " (n, batch).",
        )

    def _unlike(self, does: str, found: Any) -> InputError:
        kinds = [type(x).__name__ for x in found] if type(found) is tuple else []
        got = f"({', '.join(kinds)})" if kinds else f"a {type(found).__name__}"
        return InputError(
            f"{self.source}.read({self.split.name!r}) {does} {got}",
            hint="It is to yield pairs: the next position, an int, and an rs.Batch of records.",
        )

    def close(self) -> None:
        """Let the source release what it holds. Nothing is read after this."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


def tell_end(source: Source[Any], name: str, split: str) -> None:
    """Tell a source that cannot be read again that the end of a split is recorded.

    Args:
        name: of the source.

    Raises:
        OperatorError: the source's code raised.
    """
    with told(name, "ended", Split(split)):
        source.ended(Split(split))


@contextmanager
def told(source: str, method: str, split: Split, where: Where | None = None) -> Iterator[None]:
    """Turn what a source's code raises into errors that name the source, the split and a place."""
    try:
        yield
    except StateError as error:  # what it wanted to put into a batch
        raise InputError(
            f"{source}.{method}({split.name!r}): {error.message}",
            where=error.where or user_frame(error),
            hint=error.hint,
            bare=f"{source}.{method}({split.name!r}) yields a value that does not fit",
        ) from error
    except InputError as error:
        error.bare = error.bare or f"{source}: {split.name} holds what was not declared"
        error.where = error.where or where
        raise
    except RaystreamError as error:
        error.where = error.where or where
        raise
    except OSError as error:
        could_not = f"{source}: cannot read {split.name}"
        raise InputError(
            f"{could_not}: {what_was_raised(error)}",
            where=user_frame(error) or where,
            bare=f"{could_not}: {type(error).__name__}",
        ) from error
    except Exception as error:
        raised = f"{source}.{method}({split.name!r}) raised"
        raise OperatorError(
            f"{raised} {what_was_raised(error)}",
            where=user_frame(error) or where,
            bare=f"{raised} {type(error).__name__}",
        ) from error
    except BaseException as error:
        if leaves(error):
            raise left_by(error) from None
        raise
