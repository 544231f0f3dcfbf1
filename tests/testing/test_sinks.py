"""`check_sink` passes sinks that write each record once, and finds those that do not."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import raystream as rs


class Row(NamedTuple):
    key: int
    n: int


ROWS = [Row(i % 5, i) for i in range(30)]


class Parts(rs.Sink[Any]):
    """Keeps parts by epoch and range, as files do: what comes again replaces itself."""

    def __init__(self, there: dict[Any, list[Any]]) -> None:
        self.there = there

    def open(self, context: rs.SinkContext) -> None:
        for at in [at for at in self.there if at[0] > context.committed]:
            if at[1].overlaps(context.keys):
                del self.there[at]

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
        self.there[epoch, keys] = list(batch.records())


def test_a_sink_that_adds_at_once_is_found() -> None:
    there: list[Row] = []

    class Adds(rs.Sink[Any]):
        def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
            there.extend(batch.records())

    with pytest.raises(
        AssertionError, match=r"the job whose call \d+ is the last of a process: lacks \[\]"
    ):
        rs.testing.check_sink(Adds, ROWS, read=lambda: there, clear=there.clear)


def test_a_sink_without_a_fence_is_found() -> None:
    there: dict[Any, list[Any]] = {}
    with pytest.raises(AssertionError, match=r"check_sink, .*: lacks"):
        rs.testing.check_sink(
            lambda: Parts(there),
            ROWS,
            read=lambda: [r for rows in there.values() for r in rows],
            clear=there.clear,
            examples=300,
        )


def test_a_failure_is_played_again_by_its_seed() -> None:
    class Fails(rs.Sink[Any]):
        def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
            raise ValueError("no room")

    with pytest.raises(AssertionError, match="seed=7: raised ValueError"):
        rs.testing.check_sink(Fails, ROWS, read=list, clear=lambda: None, seed=7)
