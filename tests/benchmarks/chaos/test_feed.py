"""Who is killed while Spark feeds a job, and when."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

from benchmarks.chaos.feed import OF_FEED, OF_JOB, Striker, order


def test_each_kind_is_killed_so_often_and_one_after_the_other() -> None:
    due = order((*OF_FEED, *OF_JOB), 3, random.Random(1))
    assert Counter(due) == dict.fromkeys((*OF_FEED, *OF_JOB), 3)
    assert {*due[:6]} == {*OF_FEED, *OF_JOB}


class Feed:
    """A feed that has committed up to a second; nobody dies of what it says."""

    def __init__(self) -> None:
        self.second = 0
        self.kept = 0
        self.state = SimpleNamespace(committed=lambda: self.second)
        self.family = lambda kind: [SimpleNamespace(kill=lambda: None)]

    def keep(self) -> None:
        self.kept += 1


def sample(epoch: int, lacking: int = 0) -> Any:
    committed = SimpleNamespace(epoch=epoch, under_replicated=lacking)
    return SimpleNamespace(t=1.0, committed=committed, processes={})


def test_nobody_is_killed_before_what_was_lost_is_whole_and_rows_have_come_again() -> None:
    feed: Any = Feed()
    strike = Striker(feed, ["driver", "query", "driver"], 0.0, random.Random(1), lambda text: None)
    strike(sample(1))  # no rows have come yet
    feed.second = 10
    strike(sample(1))
    assert strike.made == {"driver": 1}
    strike(sample(2))  # no more rows
    feed.second = 20
    strike(sample(1))  # no checkpoint since
    strike(sample(2, lacking=1))
    assert strike.made == {"driver": 1}
    strike(sample(2))
    assert strike.made == {"driver": 1, "query": 1}
    assert feed.kept == 6
