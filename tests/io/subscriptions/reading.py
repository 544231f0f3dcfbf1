"""Reads a source as a job does: on one thread, and acknowledges on another."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.gates import LIMIT_SECONDS


class Reading(NamedTuple):
    time: int
    room: str


class Text(NamedTuple):
    """The one field of a message that is no JSON."""

    text: str


class Reader:
    """A process that owns the first split of a source."""

    def __init__(self, source: Any, known: int | None = None) -> None:
        self.source = source
        self.split = source.splits()[0]
        if known is not None:
            source.knows(self.split, {"at": known})
        self._read: Iterator[Any] = source.read(self.split, 0)
        self.batches: list[Any] = []

    def take(self, records: int) -> list[Any]:
        """The next records, at least so many."""
        until, found = time.monotonic() + LIMIT_SECONDS, list[Any]()
        for batch in self._read:
            if len(batch[1]):
                self.batches.append(batch)
                found += batch[1].records()
            if len(found) >= records:
                return found
            assert time.monotonic() < until, f"{found} of {records}"
        return found

    def silent(self, looks: int = 3) -> bool:
        """Whether nothing comes for a while."""
        return not any(len(batch[1]) for batch in itertools.islice(self._read, looks))

    def acknowledge(self) -> None:
        """All that was taken is recorded."""
        self.source.acknowledge(self.split, self.batches[-1][0])

    def numbers(self) -> list[Any]:
        """What the batches say of their place, as far as they do."""
        return [batch[2] for batch in self.batches if len(batch) > 2]

    def stop(self) -> None:
        self._read.close()  # type: ignore[attr-defined]
