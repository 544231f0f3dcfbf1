"""What a source says of itself without a job: the default of `Source.check`.

`raystream check` asks each source and sink of a flow. An answer is a few words for people, and
holds no values of records.
"""

from __future__ import annotations

from typing import Any

from raystream.errors import InputError

EMPTY_MOST = 10
"""After this many batches without records a source has nothing now: it waits for something."""


def look_at(source: Any) -> str:
    """Ask a source for its splits, and read up to the first record.

    Raises:
        InputError: it has no splits, or yields something that is no batch.
    """
    splits = list(source.splits())
    if not splits:
        raise InputError("it has no splits, so there is nothing to read")
    there = counted(len(splits), "split")
    if source.recorded:
        return f"{there}; not read, because what is read of it cannot be read again"
    for split in splits:
        reading = source.read(split, 0)
        try:
            for empty, (_, batch, *_) in enumerate(reading):
                if len(batch):
                    return f"{there}; read a record ({batch.record.__name__}) of {split.name}"
                if empty == EMPTY_MOST:
                    return f"{there}; nothing to read in {split.name} now"
        finally:
            if hasattr(reading, "close"):
                reading.close()
    return f"{there}; no records"


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
