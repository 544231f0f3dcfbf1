"""`state_memory` and `state_folder` as a user sets them, and the error if the disk refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import raystream as rs
from raystream.errors import ConfigError, StateError
from raystream.state.segments import cold_rows
from raystream.testing import Collect
from tests.flows import Line, Running


class Seen(rs.State):
    n: int = 0
    times: list[int] = rs.field(factory=list)


@rs.operator(key="text")
def count(line: Line, seen: Seen) -> Iterator[Running]:
    seen.n += 1
    seen.times.append(line.time)
    yield Running(line.text, seen.n * 1000 + len(seen.times))


def flow_of(sink: Collect) -> rs.Flow:
    flow = rs.Flow("words")
    words = [Line(time, f"w{(time * 7) % 50}") for time in range(300)]
    source = flow.source(rs.io.iterable(words, Line), epochs=rs.by_time(seconds=10))
    source.through(count).to(sink)
    return flow


def test_a_run_says_what_is_on_disk(tmp_path: Path) -> None:
    plain, tiered = Collect(), Collect()
    flow_of(plain).run()
    report = flow_of(tiered).run(state_memory=1, state_folder=tmp_path)
    assert tiered.records() == plain.records() != []
    (said,) = [o for o in report.operators if o.name == "count"]
    assert said.state_rows == 50
    assert 0 < said.rows_on_disk <= 50
    assert said.disk_bytes > 0
    assert said.rows_brought > 100
    (roomy,) = [
        o for o in flow_of(Collect()).run(state_memory="1GiB").operators if o.name == "count"
    ]
    assert (roomy.rows_on_disk, roomy.disk_bytes, roomy.rows_brought) == (0, 0, 0)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="count: rows that memory has no room for") as error:
        flow_of(Collect()).run(state_memory=1, state_folder=tmp_path / "gone")
    assert str(tmp_path / "gone") in str(error.value)
    assert "test_state_memory.py" in str(error.value)


@pytest.mark.parametrize(("used", "ends"), [(89, False), (91, True)])
def test_a_disk_that_fills_up_ends_the_job_before_it_is_full(
    used: int, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs of the node need some of it, too."""
    disk = SimpleNamespace(disk_usage=lambda _: (200, used, 100 - used))  # some is for root alone
    monkeypatch.setattr(cold_rows, "shutil", disk)
    flow = flow_of(Collect())
    if not ends:
        flow.run(state_memory=1, state_folder=tmp_path)
        return
    with pytest.raises(StateError, match=r"count: the disk of .* is 91% full") as error:
        flow.run(state_memory=1, state_folder=tmp_path)
    assert "test_state_memory.py" in str(error.value)


def test_a_folder_alone_has_no_effect_here(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="state_folder needs a cluster"):
        flow_of(Collect()).run(state_folder=tmp_path)


@pytest.mark.parametrize("size", [0, "many", -1])
def test_a_size_that_is_none(size: object) -> None:
    with pytest.raises(ConfigError, match="state_memory"):
        flow_of(Collect()).run(state_memory=size)  # type: ignore[arg-type]
