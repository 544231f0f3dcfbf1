"""What a cell of a notebook shows while the job that it runs goes on."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from html import escape
from typing import Any

from raystream.controller.reporting.report import Sample

HEADINGS = ("operator", "instances", "in", "in/s", "out", "out/s", "state rows", "late")


def live(job: str) -> Callable[[Sample], None] | None:
    """Shows the samples of a job below the cell that runs it; None where there is no notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:  # a terminal has a shell, too
        return None
    shown: Any = importlib.import_module("IPython.display")
    handle = shown.display(shown.HTML(f"<p>{escape(job)}: starting</p>"), display_id=True)
    before: Sample | None = None

    def show(sample: Sample) -> None:
        nonlocal before
        handle.update(shown.HTML(sample_table(job, sample, before)))
        before = sample

    return show


def sample_table(job: str, sample: Sample, before: Sample | None) -> str:
    """A sample as a table of HTML, with the rates since the sample before; the first has none."""
    seconds = 0.0 if before is None else sample.t - before.t
    rows = [f"<tr>{''.join(f'<th>{heading}</th>' for heading in HEADINGS)}</tr>"]
    for name, now in sample.operators.items():
        then = None if before is None else before.operators.get(name)
        cells = [escape(name), f"{now.instances:,}"]
        for field in ("records_in", "records_out"):
            total = getattr(now, field)
            cells.append(f"{total:,}")
            known = then is not None and seconds > 0
            cells.append(f"{(total - getattr(then, field)) / seconds:,.0f}" if known else "-")
        cells += [f"{now.state_rows:,}", f"{now.late:,}"]
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    committed = sample.committed.epoch if sample.committed is not None else 0
    said = f", checkpoint {committed:,} committed" if committed else ""
    head = f"<p>{escape(job)}: for {sample.t:.1f} s{said}</p>"
    return f"{head}<table>{''.join(rows)}</table>"
