"""What a run shows while it lasts."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from lrb.query.flow import OPERATORS
from lrb.query.source import Prepared, look_through
from lrb.reporting import progress
from tests.lrb.rows import report
from tests.lrb.running import prepare


@pytest.fixture
def data(tmp_path: Path) -> Prepared:
    """Two minutes of which a run with speed 20 makes 120 epochs."""
    return look_through(prepare(tmp_path, [report(t, 1, 3) for t in range(0, 120)]))


def sample(t: float, rows: int, epoch: int) -> SimpleNamespace:
    totals = SimpleNamespace(
        instances=2, position=epoch, records_in=rows, records_out=rows, cpu=t / 2, state_rows=7
    )
    return SimpleNamespace(t=t, operators=dict.fromkeys(OPERATORS, totals))


def test_plain_lines_come_now_and_then(data: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_SECONDS", 0.0)
    screen = Console(file=StringIO(), width=200)
    with progress.shown(screen, data, 20.0) as told:
        told(sample(1.0, 20, 20), None)
        told(sample(3.0, 70, 65), 0.25)
    assert screen.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "00:00:04 of 00:02:00 simulated, 20 of 120 rows, 20 rows/s",
        "00:00:13 of 00:02:00 simulated, 70 of 120 rows, 25 rows/s, p99 latency 0.250 s",
    ]
    with progress.shown(screen, data, 20.0, 5.0) as told:
        told(sample(1.0, 20, 20), None)
    assert "00:01:40 of 00:02:00" in screen.file.getvalue()  # type: ignore[attr-defined]


def test_rates_of_lines_are_those_since_the_line_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are pushed come in bursts: between two samples there are often none."""
    screen = Console(file=StringIO(), width=200)
    with progress.shown(screen, None, None) as told:
        for t, rows, every in [(1.0, 0, 0.0), (2.0, 60, 1e9), (3.0, 60, 0.0)]:
            monkeypatch.setattr(progress, "LINE_EVERY_SECONDS", every)
            told(sample(t, rows, 0), None)
    assert screen.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "no rows have come yet",
        "60 rows have come, 30 rows/s",
    ]


def test_a_terminal_has_a_table_of_operators(data: Prepared) -> None:
    screen = Console(file=StringIO(), width=100, force_terminal=True, color_system=None)
    with progress.shown(screen, data, 20.0) as told:
        told(sample(1.0, 20, 20), None)
        told(sample(3.0, 70, 65), 0.25)
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "starting" in shown
    assert "70 of 120 rows, 25 rows/s, p99 latency 0.250 s" in shown
    assert all(name in shown for name in OPERATORS)
    assert "0.50" in shown  # cores in use
