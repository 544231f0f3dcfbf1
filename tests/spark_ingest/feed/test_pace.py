"""When rows are due, and how batches are cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ingest.feed.pace import NOT_DUE, Pace, Part, parts

PACE = Pace(first=10, end=16, per_second=(5, 5, 50, 5, 5, 5), speed=2.0, started=100.0)


def test_whole_seconds_are_released_when_they_are_over() -> None:
    moments = (0.0, 100.0, 100.4, 100.5, 101.0, 102.9, 103.0, 500.0)
    assert [PACE.released(now) for now in moments] == [10, 10, 10, 11, 12, 15, 16, 16]
    assert replace(PACE, started=None).released(500.0) == 10
    assert replace(PACE, speed=None, started=None).released(0.0) == 16


def test_a_batch_has_all_that_is_released_but_not_too_many_rows() -> None:
    assert PACE.upto(10, 500.0) == 16
    assert PACE.upto(10, 500.0, rows=12) == 12
    assert PACE.upto(12, 500.0, rows=12) == 13  # a second is never cut
    assert PACE.upto(13, 500.0, rows=12) == 15
    assert PACE.upto(13, 101.0) == 13  # nothing is released
    assert PACE.upto(16, 500.0) == 16
    assert [PACE.upto(begin, 0.0) for begin in (8, 9, 10)] == [9, 10, 10]


def test_a_second_is_due_when_it_begins() -> None:
    assert [PACE.due(second) for second in (10, 11, 14)] == [100_000_000, 100_500_000, 102_000_000]
    assert replace(PACE, speed=None).due(10) == replace(PACE, started=None).due(10) == NOT_DUE


@pytest.mark.parametrize("tasks", [1, 2, 3, 4, 9, 100])
@pytest.mark.parametrize("seconds", [1, 2, 7])
def test_parts_have_each_second_of_each_split_once_and_in_order(tasks: int, seconds: int) -> None:
    found: dict[int, list[Part]] = {split: [] for split in range(4)}
    for part in parts(4, 20, 20 + seconds, tasks):
        for split in part.splits:
            found[split].append(part)
    for those in found.values():
        cuts = [20, *(part.end for part in those)]
        assert [part.begin for part in those] == cuts[:-1] and cuts[-1] == 20 + seconds
        assert [part.last for part in those] == [False] * (len(those) - 1) + [True]
    assert len(parts(4, 20, 20 + seconds, tasks)) <= max(tasks, 1)
