"""`check_source` passes sources whose records come once, and finds those of which they do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

import raystream as rs


class Row(NamedTuple):
    n: int


ROWS = [Row(n) for n in range(12)]


class Twelve(rs.Source[Row]):
    """Twelve rows in batches of three; subclasses read them otherwise."""

    record = Row

    def splits(self) -> list[rs.Split]:
        return [rs.Split("one"), rs.Split("two")]

    def read(self, split: rs.Split, position: int) -> Iterator[Any]:
        for n in range(position, 6, 3):
            yield n + 3, rs.Batch(Row, {"n": [*range(n, n + 3)]})


class Forgets(Twelve):
    """Begins anew, wherever it is asked to begin."""

    def read(self, split: rs.Split, position: int) -> Iterator[Any]:
        return super().read(split, 0)


class Counts(Twelve):
    """Holds what it has read."""

    at = 0

    def read(self, split: rs.Split, position: int) -> Iterator[Any]:
        for at, _ in super().read(split, position):
            type(self).at += 1
            yield at, rs.Batch(Row, {"n": [type(self).at] * 3})


class Fails(Twelve):
    """Cannot be read."""

    def read(self, split: rs.Split, position: int) -> Iterator[Any]:
        raise ValueError("no such place")


class Log(rs.Source[Row]):
    """A log that forgets what was stored, and is read by whoever comes."""

    record = Row
    recorded = True
    forgotten = 0
    forgets_at = "stored"

    def __init__(self) -> None:
        self.known = 0

    def splits(self) -> list[rs.Split]:
        return [rs.Split("log")]

    def knows(self, split: rs.Split, sequences: Mapping[str, int]) -> None:
        self.known = max(self.known, sequences.get("log", 0))

    def read(self, split: rs.Split, position: int) -> Iterator[Any]:
        number, at = 0, max(self.known, type(self).forgotten)
        while True:
            number += 1
            upto = min(at + 1 + number % 4, len(ROWS))
            rows = [*range(at, upto)]
            if rows:
                yield number, rs.Batch(Row, {"n": rows}), ("log", np.array(rows) + 1)
            yield number, rs.Batch(Row, {"n": []})
            at = upto

    def acknowledge(self, split: rs.Split, number: int) -> None:
        if self.forgets_at == "acknowledge":
            type(self).forgotten = len(ROWS)

    def stored(self, split: rs.Split, sequences: Mapping[str, int]) -> None:
        if self.forgets_at == "stored":
            type(self).forgotten = sequences["log"]

    @classmethod
    def begin(cls) -> None:
        cls.forgotten = 0


class Early(Log):
    """Forgets when something is acknowledged, which is not stored."""

    forgets_at = "acknowledge"


def test_a_source_that_reads_again_passes() -> None:
    rs.testing.check_source(Twelve)
    rs.testing.check_source(Twelve, expected=[Row(n) for n in range(6)] * 2, examples=3)


def test_one_that_begins_anew_is_found() -> None:
    with pytest.raises(AssertionError, match=r"check_source, .*came|before it was"):
        rs.testing.check_source(Forgets)


def test_one_that_reads_other_records_is_found() -> None:
    with pytest.raises(AssertionError, match=r"the job whose call \d+ .*(before it was|came)"):
        rs.testing.check_source(Counts)


def test_a_log_that_is_recorded_passes() -> None:
    rs.testing.check_source(Log, expected=ROWS, begin=Log.begin, examples=100)


def test_one_that_forgets_too_early_is_found() -> None:
    with pytest.raises(AssertionError, match=r"lacks|no more do"):
        rs.testing.check_source(Early, expected=ROWS, begin=Early.begin, examples=100)


def test_what_comes_once_has_to_be_told() -> None:
    with pytest.raises(AssertionError, match="needs expected="):
        rs.testing.check_source(Log)


def test_a_failure_is_played_again_by_its_seed() -> None:
    with pytest.raises(AssertionError, match=r"seed=7: raised .*no such place"):
        rs.testing.check_source(Fails, expected=ROWS, seed=7)
