"""Sources that are cut by arrival on real Ray, while those die who know where epochs end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import raystream as rs
from tests.actors.helpers import parts
from tests.flows import running, split
from tests.gates import Gate, Slow

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]


def test_the_register_outlives_its_place_and_its_sources(tmp_path: Path) -> None:
    """The only place dies, so that sources say what they know; then a source."""
    (tmp_path / "out").mkdir()
    drip = Slow(0, Gate(tmp_path / "gate"))
    assert drip.gate is not None
    kill = parts.Killer(drip.gate, "keeper/0", "lines/0", samples=2)
    flow = rs.Flow("drip")
    lines = flow.source(drip, epochs=rs.by_arrival(seconds=0.05), name="lines")
    lines.through(split).through(running).to(parts.Files(tmp_path / "out"))
    report = flow.run(
        cluster="auto",
        on_progress=kill,
        checkpoint_every=4,
        instances={"lines": 2, "running": 2},
        spares=1,
    )
    assert not kill.victims
    assert [name for recovery in report.recoveries for name in recovery.gone] == ["lines/0"]
    found = sorted(tuple(r) for _, _, r in parts.records(tmp_path / "out"))
    words = Counter(drip.words())
    assert found == sorted((word, n) for word, count in words.items() for n in range(1, count + 1))
