"""What a range of an operator has done so far, key group by key group.

A checkpoint is restored from any images that tile a range: its own, or those of ranges that overlap
it (while a range moves, its owner and its candidate store the same checkpoints). So what is counted
goes with its key group, as rows of state do: the counts of any tiling add up to the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raystream.schema.types import KeyRange

EncodedCounts = Mapping[str, bytes]
"""By name what was counted in each key group of a range, as int64."""

IN, OUT, LATE, LEFT, AHEAD = "in", "out", "late", "left", "ahead"
"""Names: records that came in, went out and were late; rows that were left at the end, which are
not stored; records that a source has set aside, because their times were far ahead."""
CUT_OFF = "cut off"
"""The name of rows whose alarms would have rung on after the end."""
_TIME = "time "
_BYTES = np.dtype(np.int64).itemsize


def at_port(name: str) -> str:
    """The name of what is emitted at a port."""
    return f"port {name}"


def at_time(name: str) -> str:
    """The name under which the greatest event times are stored that were emitted. They are no
    counts, but go with their key groups as counts do; 0 stands for none."""
    return f"{_TIME}{name}"


class Counts:
    """Counts of one range, by name; another thread may ask for totals.

    Args:
        groups: how many key groups it has.
    """

    def __init__(self, groups: int, counted: EncodedCounts | None = None) -> None:
        self._groups = groups
        self._upto = {IN: np.zeros(groups + 1, np.int64)}  # the sum of all offsets
        for name, counts in (counted or {}).items():
            if name.startswith(_TIME):
                continue
            np.cumsum(np.frombuffer(counts, np.int64), out=self._of(name)[1:])

    def _of(self, name: str) -> np.ndarray:
        upto = self._upto.get(name)
        if upto is None:
            upto = self._upto[name] = np.zeros(self._groups + 1, np.int64)
        return upto

    def add(self, name: str, offsets: np.ndarray) -> None:
        """Count records. offsets: int64 [groups + 1], theirs by key group."""
        upto = self._upto.get(name)
        if upto is None:
            upto = self._of(name)
        upto += offsets

    def total(self, name: str) -> int:
        """How many there were in all."""
        upto = self._upto.get(name)
        return 0 if upto is None else int(upto[-1])

    def by_group(self, name: str) -> np.ndarray:
        """int64 [groups]: how many there were in each key group."""
        upto = self._of(name)
        return upto[1:] - upto[:-1]

    def stored(self) -> dict[str, bytes]:
        """As it is stored."""
        return {name: self.by_group(name).tobytes() for name in self._upto}

    def __contains__(self, name: str) -> bool:
        return name in self._upto


def part_of_counts(counted: EncodedCounts, keys: KeyRange, part: KeyRange) -> EncodedCounts:
    """What was counted in a part of a range."""
    lo, hi = (_BYTES * (group - keys.lo) for group in part)
    return {name: counts[lo:hi] for name, counts in counted.items()}


def joined(one: EncodedCounts, two: EncodedCounts) -> EncodedCounts:
    """What was counted in two ranges that follow each other."""
    no_one, no_two = bytes(len(one.get(IN, b""))), bytes(len(two.get(IN, b"")))
    return {n: one.get(n, no_one) + two.get(n, no_two) for n in {*one, *two}}
