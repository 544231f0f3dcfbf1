"""Sources and sinks in flows: what goes in by one comes out by the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import InputError
from raystream.testing import run_local
from tests.io.kinds import Counted


class Event(NamedTuple):
    time: int
    key: int


class Tally(rs.State):
    n: int = 0


@rs.operator(key="key")
def count(event: Event, tally: Tally) -> Iterator[Counted]:
    tally.n += 1
    yield Counted(event.key, tally.n)


def flow(source: Any, sink: Any) -> rs.Flow:
    made = rs.Flow("count")
    events = made.source(source, epochs=rs.by_time(seconds=5), name="events")
    events.through(count).to(sink, name="out")
    return made


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
@pytest.mark.parametrize("instances", [1, 3])
def test_files_to_files(kind: str, instances: int, tmp_path: Path) -> None:
    events = [Event(t, t * 7 % 5) for t in range(100)]
    for i in range(3):
        lines = "".join(f"{e.time},{e.key}\n" for e in events[i::3])
        (tmp_path / f"{i}.csv").write_text(f"time,key\n{lines}")
    out = tmp_path / "out"
    run_local(
        flow(rs.io.csv(tmp_path / "*.csv", Event), getattr(rs.io, kind)(out)),
        seed=7,
        instances={"events": instances, "count": instances, "out": instances},
        checkpoint_every=3,
    )
    found = [r for b in rs.io.read_parts(out, Counted) for r in b.records()]
    assert sorted(found) == sorted((k, n) for k in range(5) for n in range(1, 21))
    for key in range(5):
        assert [r.n for r in found if r.key == key] == list(range(1, 21))
    assert len({p.keys for p in rs.io.parts(out)}) == instances


def test_bad_input_ends_the_job_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,key\n1,2\n3,x\n")
    with pytest.raises(InputError, match=r"a\.csv, line 3: 'key' is 'x'"):
        run_local(flow(rs.io.csv(tmp_path / "a.csv", Event), rs.io.parquet(tmp_path / "out")))


def test_a_list_to_a_function() -> None:
    seen: list[Counted] = []
    run_local(
        flow(
            rs.io.iterable([Event(t, 0) for t in range(9)], Event, splits=2),
            rs.io.callable(seen.append, each=True),
        )
    )
    assert seen == [Counted(0, n) for n in range(1, 10)]
