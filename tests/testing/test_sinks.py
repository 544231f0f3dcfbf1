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


class Place:
    """Where sinks keep what they wrote. Of instances with the same key groups the newest counts."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, rs.KeyRange, Any]] = []
        self.newest: dict[int, tuple[int, int]] = {}

    def clear(self) -> None:
        self.parts, self.newest = [], {}

    def counts(self, context: rs.SinkContext) -> bool:
        at = (context.number, context.generation)
        groups = range(context.keys.lo, context.keys.hi)
        if any(self.newest.get(group, at) > at for group in groups):
            return False
        self.newest |= dict.fromkeys(groups, at)
        return True

    def read(self) -> list[Any]:
        return [row for _, _, row in self.parts]


class Prepared(rs.Sink[Any]):
    """Keeps in `prepare` what was written since the checkpoint before."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def open(self, context: rs.SinkContext) -> None:
        self.context = context
        self.written: list[tuple[int, rs.KeyRange, Any]] = []
        if self.place.counts(context):
            upto, keys = context.committed, context.keys
            parts = self.place.parts
            self.place.parts = [p for p in parts if p[0] <= upto or not p[1].overlaps(keys)]

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
        self.written += [(epoch, keys, row) for row in batch.records()]

    def prepare(self, epoch: int) -> None:
        if self.place.counts(self.context):
            self.place.parts += self.written
        self.written = []


def test_a_sink_that_keeps_its_output_at_each_checkpoint_has_each_record_once() -> None:
    place = Place()
    rs.testing.check_sink(lambda: Prepared(place), ROWS, read=place.read, clear=place.clear)


def test_each_saved_checkpoint_is_that_of_one_run() -> None:
    """A run that goes on from a checkpoint and is lost before all its instances are there has saved
    nothing: files of a range would be looked for under its name, and there are none."""
    place, went_on = Place(), set[tuple[int, str]]()
    runs: dict[str, tuple[int, str]] = {}

    class Notes(Prepared):
        def open(self, context: rs.SinkContext) -> None:
            if context.resumed:
                at = min(context.committed, runs.get(context.run, (context.committed, ""))[0])
                runs[context.run] = at, context.resumed
            super().open(context)

    def clear() -> None:
        went_on.update(runs.values())
        assert len({at for at, _ in runs.values()}) == len(set(runs.values()))
        runs.clear()
        place.clear()

    for seed in range(1, 401):
        rs.testing.check_sink(lambda: Notes(place), ROWS, read=place.read, clear=clear, seed=seed)
    clear()  # looks at the last one
    assert {resumed for _, resumed in went_on} == {"run", "run-2"}


def test_a_sink_that_keeps_it_only_when_it_is_committed_is_found() -> None:
    """An instance that dies between a checkpoint and its commit takes it along."""
    place = Place()

    class Late(Prepared):
        def prepare(self, epoch: int) -> None: ...

        def commit(self, epoch: int) -> None:
            super().prepare(epoch)

    with pytest.raises(AssertionError, match=r"lacks \[Row"):
        rs.testing.check_sink(lambda: Late(place), ROWS, read=place.read, clear=place.clear)


def test_without_prepare_no_record_is_lost_and_what_comes_again_is_of_the_same_epoch() -> None:
    there: dict[Any, list[Any]] = {}
    again: list[Any] = []

    class Least(rs.Sink[Any]):
        def open(self, context: rs.SinkContext) -> None:
            self.run = context.run

        def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None:
            rows, part = list(batch.records()), (self.run, epoch, keys)
            if part in there:
                again.append(part)
            assert there.setdefault(part, rows) == rows

    def read() -> set[Any]:
        return {row for rows in there.values() for row in rows}

    rs.testing.check_sink(Least, ROWS, read=read, clear=there.clear)
    assert again


@pytest.mark.parametrize("each", [False, True])
def test_a_function_is_given_each_record_at_least_once(each: bool) -> None:
    given: list[Any] = []
    take = given.append if each else lambda batch: given.extend(batch.records())
    rs.testing.check_sink(
        lambda: rs.io.callable(take, each=each), ROWS, read=lambda: set(given), clear=given.clear
    )


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
