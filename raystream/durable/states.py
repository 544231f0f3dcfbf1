"""Reading the state in a saved checkpoint, as Arrow tables: without the job, its code or a cluster.

The images of a range, each a delta on the one before, are folded to one; the ranges of an operator
follow each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa

from raystream.durable.manifest import Saved
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from raystream.errors import ConfigError, RaystreamError, StateError
from raystream.schema.records import caller
from raystream.schema.types import KeyRange
from raystream.state.images.partition import fold, without_slots
from raystream.state.images.readable import readable


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
        if operator not in self.operators:
            raise StateError(
                f"{self!r} has no state of {operator!r}",
                where=caller(2)[0],
                hint=f"There is state of {', '.join(self.operators) or 'no operator'}.",
            )
        whole = KeyRange(0, self._saved.layout.groups)
        chains = self._saves.images(self._saved, operator, whole)
        batches = [without_slots(fold(c[0], c[1:]) if c[1:] else c[0]).rows for c in chains]
        return readable(pa.Table.from_batches(batches), self._saved.layout.shapes[operator])

    def __repr__(self) -> str:
        return f"<the state of {self._saved}>"


def states(path: str | os.PathLike[str], job: str) -> SavedStates:
    """The state in the newest whole checkpoint that a job has saved.

    Args:
        path: the folder or `s3://bucket/prefix` that was `durable` of the job. It may be running.
        job: the name of its flow.

    Raises:
        ConfigError, StateError: there is no such place, no such job, or no whole checkpoint.
    """
    where = caller(2)[0]
    if not isinstance(job, str) or not isinstance(path, str | os.PathLike):
        raise ConfigError(
            f"states({path!r:.80}, {job!r:.80}): a path or URL, and the name of a job", where=where
        )
    try:
        saves = Saves(open_store(path), job)
        found = saves.newest()
        if found.saved is None:
            why = "; ".join(found.refused)
            raise StateError(f"{path} has no whole checkpoint of {job}{why and ': '}{why}")
    except RaystreamError as error:
        if error.where is not None:
            raise
        raise type(error)(error.message, where=where, hint=error.hint) from None
    return SavedStates(saves, found.saved)
