"""What the cell of a notebook shows."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import raystream as rs
from raystream.page import notebook
from raystream.testing import Collect
from tests.flows import Line, split


class Handle:
    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, html: str) -> None:
        self.shown.append(html)


def jupyter(monkeypatch: pytest.MonkeyPatch, *, kernel: bool) -> Handle:
    handle = Handle()
    shell = SimpleNamespace(**({"kernel": object()} if kernel else {}))
    display = SimpleNamespace(HTML=str, display=lambda html, display_id: handle)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return handle


def run(**options: Any) -> None:
    flow = rs.Flow("<shown>")
    lines = [Line(time, "to be") for time in range(1000)]
    source = flow.source(rs.io.iterable(lines, Line), epochs=rs.by_time(seconds=1))
    source.through(split).to(Collect(), name="out")
    flow.run(**options)


def test_a_cell_shows_the_totals_of_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = jupyter(monkeypatch, kernel=True)
    run()
    last = re.sub(r"<[^>]+>", " ", handle.shown[-1])
    assert "&lt;shown&gt;: for" in last
    assert re.search(r"out +1 +2,000 ", last), last
    assert "<shown>" not in handle.shown[-1]


def test_rates_are_those_since_the_sample_before() -> None:
    def sample(t: float, n: int) -> Any:
        totals = SimpleNamespace(instances=2, records_in=n, records_out=0, state_rows=7, late=1)
        committed = SimpleNamespace(epoch=5)
        return SimpleNamespace(t=t, operators={"a": totals}, committed=committed)

    first = notebook.sample_table("job", sample(1, 100), None)
    assert "<td>100</td><td>-</td>" in first and "checkpoint 5 committed" in first
    second = notebook.sample_table("job", sample(3, 4100), sample(1, 100))
    assert "<td>4,100</td><td>2,000</td>" in second


def test_who_follows_a_job_or_has_no_notebook_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notebook.live("job") is None or "IPython" in sys.modules
    jupyter(monkeypatch, kernel=False)  # IPython in a terminal
    assert notebook.live("job") is None
    handle = jupyter(monkeypatch, kernel=True)
    seen: list[Any] = []
    run(on_progress=seen.append)
    assert not handle.shown
