"""The state in a saved checkpoint as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import raystream as rs
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from raystream.errors import ConfigError, OperatorError, StateError
from raystream.testing import Collect
from tests.durable.test_durable_runs import Fragile
from tests.flows import Line


class Seen(rs.State):
    n: int = 0
    total: float = 0.0
    raw: bytes = b""
    last: list[int] = rs.field(factory=list)


@rs.operator(key="text")
def count(line: Line, seen: Seen) -> Iterator[Line]:
    seen.n += 1
    seen.total += line.time
    seen.raw = line.text.encode()
    seen.last = [*seen.last, line.time][-2:]
    yield line


SECONDS = 5


def saved(folder: Path) -> None:
    """A job that breaks off; one that comes to its end leaves no rows."""
    flow = rs.Flow("trips")
    epochs = rs.by_time(seconds=SECONDS, origin=0)
    lines = flow.source(Fragile(breaks=40), epochs=epochs)
    lines.through(count, name="count").to(Collect())
    with pytest.raises(OperatorError, match="Broken"):
        flow.run(durable=folder, checkpoint_every=3)


def test_state_is_read_without_the_job(tmp_path: Path) -> None:
    saved(tmp_path)
    states = rs.states(tmp_path, "trips")
    newest = Saves(open_store(tmp_path), "trips").newest().saved
    assert newest is not None
    assert (states.job, states.run, states.checkpoint) == ("trips", 1, newest.checkpoint)
    assert states.operators == ("count",) and "count" in states
    table = states["count"]
    assert table.column_names == ["text", "n", "total", "raw", "last"]
    times: dict[str, list[int]] = {}
    for name in "abc":
        for t in range(SECONDS * states.checkpoint):
            times.setdefault(f"{name}{t % 7} w{t % 5}", []).append(t)
    assert states.checkpoint == 6 and len(times) > 50
    assert {r["text"]: r for r in table.to_pylist()} == {
        text: {
            "text": text,
            "n": len(at),
            "total": float(sum(at)),
            "raw": text.encode(),
            "last": at[-2:],
        }
        for text, at in times.items()
    }


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no whole checkpoint of three") as caught:
        rs.states(tmp_path, "three")
    assert caught.value.where is not None and caught.value.where.file == __file__
    with pytest.raises(ConfigError, match="not a place to store to"):
        rs.states("nowhere://x", "trips")
    saved(tmp_path)
    with pytest.raises(StateError, match="no state of 'other'"):
        rs.states(tmp_path, "trips")["other"]
