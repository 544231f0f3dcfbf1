"""How long a job takes to start: from `raystream run` to the first record at the sink.

The command is run in a process of its own, as on a terminal, against a cluster that is running
already. The first run finds no compiled code, since the cluster has a folder of its own for it; all
later runs find what the first one compiled. Beside it, what `import raystream` costs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.jobs.start_flow import FOLDER, SOURCE
from benchmarks.shared import w1
from raystream.errors import JobError

LIMIT_SECONDS = 170.0
"""How long a run may take; the first one compiles."""
HEAVY = ("numpy", "pyarrow", "numba", "pandas", "ray")
"""Packages that `import raystream` is not to import."""
FIRST, LATER, IMPORT = "run, cold code cache", "run, warm code cache", "import raystream"

Results = dict[str, list[dict[str, Any]]]


# ---------------------------------------------------------------- what is measured


@contextmanager
def running() -> Iterator[str]:
    """The address of a cluster on this machine, which has no compiled code yet."""
    import ray

    with tempfile.TemporaryDirectory() as folder:
        quiet = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
        with mock.patch.dict(os.environ, {"RAYSTREAM_CACHE": folder, **quiet}):
            ray.init(
                "local", include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False
            )
            try:
                yield ray.get_runtime_context().gcs_address
            finally:
                ray.shutdown()


def run(address: str) -> dict[str, float]:
    """One run of the command: seconds from its start to the first record, and to its end.

    Raises:
        JobError: it failed, or an answer is wrong.
    """
    line = ["run", "benchmarks.jobs.start_flow:flow", "--address", address]
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        told = _python("-m", "raystream", *line, environment={FOLDER: folder})
        ended = time.time()
        if (got := w1.totals(Path(folder))) != (right := w1.expected(SOURCE)):
            raise JobError(f"wrong answers: {got} instead of {right}", hint=told)
        first = float(Path(folder, "first").read_text())
    return {"seconds": first - began, "end_seconds": ended - began}


def importing() -> dict[str, Any]:
    """Seconds that `import raystream` takes in a fresh interpreter, and what heavy it imports."""
    code = (
        "import time; began = time.perf_counter(); import raystream;"
        "took = time.perf_counter() - began; import json, sys;"
        f"print(json.dumps([took, [m for m in {HEAVY} if m in sys.modules]]))"
    )
    seconds, heavy = json.loads(_python("-c", code))
    return {"seconds": seconds, "heavy": heavy}


def _python(*line: str, environment: Mapping[str, str] | None = None) -> str:
    """What a fresh interpreter prints.

    Raises:
        JobError: it failed.
    """
    done = subprocess.run(
        [sys.executable, *line],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode:
        raise JobError(f"python {' '.join(line[:2])} failed", hint=done.stderr[-2000:])
    return done.stdout


# ---------------------------------------------------------------- the command


def main(
    repeat: Annotated[int, typer.Option(min=1, help="Runs with a warm code cache.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per run.")] = False,
) -> None:
    """The start of a job on a running cluster, to the first record at its sink."""
    console = Console(stderr=True)
    results: Results = {}

    def note(name: str, found: dict[str, Any]) -> None:
        results.setdefault(name, []).append(found)
        if as_json:
            print(json.dumps({"work": name, **found}), flush=True)

    with running() as address:
        for number in range(repeat + 1):
            console.print(f"[dim]run {number + 1} of {repeat + 1}[/dim]")
            note(LATER if number else FIRST, run(address))
    for _ in range(repeat):
        note(IMPORT, importing())
    if not as_json:
        Console().print(table(results))


def table(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """A row for each thing that was measured, in seconds."""
    of = f"imports: which of {', '.join(HEAVY)}"
    shown = Table(
        title="Seconds to the first record",
        title_justify="left",
        caption=of,
        caption_justify="left",
    )
    for column in ("what", "median", "least", "most", "to the end", "runs", "imports"):
        shown.add_column(column, justify="left" if column in ("what", "imports") else "right")
    for name, runs in results.items():
        seconds = [r["seconds"] for r in runs]
        ends = [r["end_seconds"] for r in runs if "end_seconds" in r]
        heavy = sorted({m for r in runs for m in r.get("heavy", ())})
        shown.add_row(
            name,
            *(f"{s:.3g}" for s in (statistics.median(seconds), min(seconds), max(seconds))),
            f"{statistics.median(ends):.3g}" if ends else "",
            str(len(runs)),
            "" if ends else ", ".join(heavy) or "none",
        )
    return shown
