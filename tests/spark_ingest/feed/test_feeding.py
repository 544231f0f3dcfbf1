"""A query that fails is started again, until it has failed too often."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from raystream.errors import JobError
from spark_ingest.feed import feeding
from spark_ingest.feed.state import State

WHY = "raystream.errors.InputError: it is not staged any more"


class Query:
    """Commits some seconds, and then fails or goes on."""

    def __init__(self, state: State, upto: int | None, fails: bool) -> None:
        if upto is not None:
            for name, text in (("commits", "v1"), ("offsets", json.dumps({"second": upto}))):
                folder = state.query / name
                folder.mkdir(parents=True, exist_ok=True)
                (folder / str(upto)).write_text(text)
        self.isActive = not fails
        self.stopped = False

    def awaitTermination(self) -> None:
        raise PySparkException(
            "Traceback\nraystream.errors.InputError: it is not staged any more\n"
        )

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "PAUSE_SECONDS", 0.0)


def test_it_goes_on_while_something_is_committed_between_failures(tmp_path: Path) -> None:
    state, said, asked = State(tmp_path), [], []
    steps: list[Any] = [n for second in (10, 20) for n in [None] * 9 + [second]]
    queries: list[Query] = []

    def start() -> Any:
        upto = steps.pop(0) if steps else 30
        queries.append(Query(state, upto, fails=upto != 30))
        return queries[-1]

    feeding.until_fed(start, state, 30, said.append, there=lambda: asked.append(1))
    assert state.committed() == 30 and len(queries) == 21
    assert all(query.stopped for query in queries)
    assert len(asked) == 20
    assert said[0].endswith(WHY)


class Unseen(Py4JJavaError):
    """An error of the JVM's that PySpark leaves as it is."""

    def __init__(self) -> None:
        Exception.__init__(self, WHY)

    def __str__(self) -> str:
        return WHY


def test_a_query_that_cannot_be_planned_is_planned_again(tmp_path: Path) -> None:
    """A Python process of Spark's was killed that plans it."""
    state, said, failed = State(tmp_path), list[str](), list[int]()

    def start() -> Any:
        if not failed:
            failed.append(1)
            raise Unseen
        return Query(state, 30, fails=False)

    feeding.until_fed(start, state, 30, said.append)
    assert state.committed() == 30 and said[0].endswith(WHY)


def test_it_ends_when_nothing_is_committed_any_more(tmp_path: Path) -> None:
    state = State(tmp_path)
    with pytest.raises(JobError, match=f"failed 10 times in a row: {WHY}"):
        feeding.until_fed(lambda: Query(state, None, True), state, 30, print)  # type: ignore[arg-type, return-value]


def test_a_feed_that_has_committed_all_starts_nothing(tmp_path: Path) -> None:
    state = State(tmp_path)
    Query(state, 30, fails=False)
    feeding.until_fed(lambda: pytest.fail("started"), state, 30, print)
