"""Sources that are cut by arrival on real Ray, while those die who know where epochs end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import raystream as rs
from tests.actors import parts
from tests.flows import Line, running, split

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]

ROWS = 1800


@dataclass(frozen=True)
class Drip:
    """A source that takes its time; a position is a row number."""

    record: type = Line

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a"), rs.Split("b")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        for at in range(position, ROWS):
            time.sleep(0.015)
            text = "to be" if at % 3 else "or not"
            yield at + 1, rs.Batch(Line, {"time": [at], "text": [text]})


def test_the_register_outlives_its_place_and_its_sources(tmp_path: Path) -> None:
    """The only place dies, so that sources say what they know; then a source."""
    kill = parts.Killer("keeper/0", "lines/0", samples=2)
    flow = rs.Flow("drip")
    lines = flow.source(Drip(), epochs=rs.by_arrival(seconds=0.05), name="lines")
    lines.through(split).through(running).to(parts.Files(tmp_path))
    report = flow.run(
        cluster="auto",
        on_progress=kill,
        cut_every=4,
        instances={"lines": 2, "running": 2},
        spares=1,
    )
    assert not kill.victims
    assert [name for recovery in report.recoveries for name in recovery.gone] == ["lines/0"]
    words = Counter({"to": 2 * ROWS * 2 // 3, "be": 2 * ROWS * 2 // 3})
    words += Counter({"or": 2 * ROWS // 3, "not": 2 * ROWS // 3})
    found = sorted(tuple(r) for _, _, r in parts.records(tmp_path))
    assert found == sorted((word, n) for word, count in words.items() for n in range(1, count + 1))
