"""A sink that keeps what it is given, for tests."""

from __future__ import annotations

from typing import Any

from raystream.api.batch import Batch
from raystream.api.connectors import Sink
from raystream.schema.types import KeyRange, SinkContext


class Collect(Sink[Any]):
    """Keeps records by (epoch, range, type), those of the newest run. Copies of it share what they
    keep, within a process.

    `records()` are in canonical order: by epoch, then range, then as they came.
    """

    def __init__(self) -> None:
        self.parts: dict[tuple[int, KeyRange, str], Batch[Any]] = {}

    def open(self, context: SinkContext) -> None:
        """Forget what comes again: all of an earlier run, or what came to an instance after the
        checkpoint from which this one goes on."""
        mine = context.keys
        for at in [at for at in self.parts if at[0] > context.committed]:
            if at[1].lo < mine.hi and mine.lo < at[1].hi:
                del self.parts[at]

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any]) -> None:
        self.parts[epoch, keys, batch.record.__name__] = batch

    def records(self, record: type | None = None) -> list[Any]:
        """All records, or those of one type."""
        return [r for _, r in self.by_epoch() if record is None or type(r) is record]

    def by_epoch(self) -> list[tuple[int, Any]]:
        """(epoch, record) in canonical order, type by type within an epoch."""
        ordered = sorted(self.parts, key=lambda k: (k[0], k[2], k[1].lo))
        return [(k[0], r) for k in ordered for r in self.parts[k].records()]
