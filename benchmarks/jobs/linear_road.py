"""Linear Road at full speed: tuples a second from the first row to the last answer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lrb.oracle import answers
from lrb.query import run as lrb_run
from lrb.query.source import look_through
from lrb.rating.command import oracle


def right(data: Path) -> str:
    """The checksum of the right answers to a prepared folder, which the oracle computes."""
    return answers.checksum(oracle(data).answers)


def run(
    data: Path, *, instances: Mapping[str, int] | None = None, local: bool = False
) -> dict[str, Any]:
    """One run over a prepared folder; its checksum is the same in every run."""
    prepared = look_through(data)
    with tempfile.TemporaryDirectory() as folder:
        record = lrb_run.run(
            prepared,
            Path(folder) / "answers",
            cluster=None if local else "auto",
            instances=instances,
        )
    return {
        "work": "Linear Road",
        "form": f"{prepared.meta.xways} xways, {prepared.meta.seconds} s",
        "cluster": record["cluster"],
        "rows": sum(record["rows_in"].values()),
        "seconds": record["elapsed"],
        "records_per_second": record["rate"],
        "checksum": record["checksum"],
        "cpu": {o["name"]: round(o["cpu_seconds"], 2) for o in record["operators"]},
    }
