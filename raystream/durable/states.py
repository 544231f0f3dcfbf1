"""Reading and editing the state in a saved checkpoint, as Arrow tables: without the job, its code
or a cluster.

The images of a range, each a delta on the one before, are folded to one; the ranges of an operator
follow each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import pyarrow as pa

from raystream.durable.editing import difference_of, edited_images
from raystream.durable.manifest import Saved
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from raystream.errors import ConfigError, RaystreamError, StateError, placed
from raystream.schema.records import caller
from raystream.schema.types import KeyRange
from raystream.state.images.image import Image
from raystream.state.images.partition import fold, without_slots
from raystream.state.images.readable import plain_name, readable


class SavedStates:
    """The state of all operators of a job at a saved checkpoint. Tables are read when asked for:
    `states["count"]`."""

    def __init__(self, saves: Saves, saved: Saved) -> None:
        self._saves, self._saved = saves, saved
        self.job: str = saved.job
        """The name of the job."""
        self.run: int = saved.number
        """The number of the run that saved it."""
        self.checkpoint: int = saved.checkpoint
        """The epoch at whose end the state was so."""

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators that keep state."""
        return tuple(name for name, shape in self._saved.layout.shapes.items() if shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.operators)

    def __contains__(self, operator: object) -> bool:
        return operator in self.operators

    def __getitem__(self, operator: str) -> pa.Table:
        """The rows of an operator as an Arrow table: its key, then the fields of its state, in
        order of key groups and keys.

        Raises:
            StateError: there is no such operator, or an image is damaged.
        """
        return self._readable(operator, self._images(operator))

    def _readable(self, operator: str, images: list[Image]) -> pa.Table:
        stored = pa.Table.from_batches([image.rows for image in images])
        return readable(stored, self._saved.layout.shapes[operator])

    def _images(self, operator: str) -> list[Image]:
        """A full image of each range of an operator.

        Raises:
            StateError: there is no such operator, or an image is damaged.
        """
        if operator not in self.operators:
            raise StateError(
                f"{self!r} has no state of {operator!r}",
                where=caller(3)[0],
                hint=f"There is state of {', '.join(self.operators) or 'no operator'}.",
            )
        whole = KeyRange(0, self._saved.layout.groups)
        chains = self._saves.images(self._saved, operator, whole)
        return [without_slots(fold(c[0], c[1:]) if c[1:] else c[0]) for c in chains]

    @property
    def kept(self) -> tuple[tuple[int, int], ...]:
        """The run and the epoch of each whole checkpoint of the job, the newest first. There are as
        many as `keep` of `Flow.run` says, and more for a moment."""
        return tuple((saved.number, saved.checkpoint) for saved in self._saves.kept())

    def diff(self, before: SavedStates, operator: str) -> pa.Table:
        """The rows of an operator that differ from an earlier state: their keys; `change`, which is
        "new", "gone" or "changed"; and each field as it is here and, as `NAME_before`, as it was.

        Args:
            before: the state at another checkpoint, or of another job, of the same operator.

        Raises:
            StateError: one of the two has no such operator, or their keys differ.
        """
        mine, other = self._images(operator), before._images(operator)
        keys = [plain_name(name) for name in mine[0].gone.schema.names]
        if mine[0].gone.schema.names != other[0].gone.schema.names:
            raise StateError(
                f"{operator} of {self!r} and of {before!r} have different keys",
                where=caller(2)[0],
            )
        then, now = before._readable(operator, other), self._readable(operator, mine)
        return difference_of(then, now, keys)

    def edited(self, tables: Mapping[str, pa.Table]) -> SavedStates:
        """Save this state with other rows of some operators, as the newest checkpoint of the job:
        `--resume` goes on from it. Input positions, and operators that are not named, stay.

        A job that is running with this durable tier can save nothing after that, and ends. So stop
        it first (`raystream stop --save`).

        Args:
            tables: all rows of each edited operator, by its name, with the columns of
                `states[operator]`. Rows may be left out, added and changed.

        Returns the state that was saved.

        Raises:
            StateError: rows do not fit: a column is missing or of another type, a key is there
            twice or has no value, the operator is unknown, or its input has ended. Then nothing is
            saved.
        """
        where = caller(2)[0]
        try:
            if not self._saves.is_newest(self._saved):
                raise StateError(
                    f"{self!r} is not the newest checkpoint any more",
                    hint="Read the state again, and edit that: rs.states(path, job).",
                )
            made = {
                name: edited_images(self._images(name), table, name)
                for name, table in tables.items()
            }
            saved = self._saves.put_edited(self._saved, made)
        except RaystreamError as error:
            raise type(error)(error.message, where=error.where or where, hint=error.hint) from None
        return SavedStates(self._saves, saved)

    def __repr__(self) -> str:
        return f"<the state of {self._saved}>"


@placed
def states(path: str | os.PathLike[str], job: str, *, checkpoint: int | None = None) -> SavedStates:
    """The state in the newest whole checkpoint that a job has saved, or in an older one.

    Args:
        path: the folder or `s3://bucket/prefix` that was `durable` of the job. It may be running.
        job: the name of its flow.
        checkpoint: the epoch of a checkpoint that is kept; the newest unless given.

    Raises:
        ConfigError, StateError: there is no such place, no such job, or no whole checkpoint.
    """
    where = caller(2)[0]
    if not isinstance(job, str) or not isinstance(path, str | os.PathLike):
        raise ConfigError(
            f"states({path!r:.80}, {job!r:.80}): a path or URL, and the name of a job", where=where
        )
    try:
        saves = Saves(open_store(path, make=False), job)
        if checkpoint is not None:
            whole = saves.kept()
            for saved in whole:
                if saved.checkpoint == checkpoint:
                    return SavedStates(saves, saved)
            there = ", ".join(str(saved.checkpoint) for saved in whole)
            raise StateError(
                f"{path} has no whole checkpoint {checkpoint!r:.40} of {job}",
                hint=f"There is {there or 'none'}.",
            )
        found = saves.newest()
        if found.saved is None:
            why = "; ".join(found.refused)
            raise StateError(f"{path} has no whole checkpoint of {job}{why and ': '}{why}")
    except RaystreamError as error:
        if error.where is not None:
            raise
        raise type(error)(error.message, where=where, hint=error.hint) from None
    return SavedStates(saves, found.saved)
