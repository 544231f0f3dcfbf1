"""The L-rating: the largest number of expressways that are answered rightly and in time.

The traffic is that of `python -m spark_ingest generate`, of which the last part is used, cold: no
state from before it is there, and the oracle judges the same part by itself. One or a few
expressways are generated; a step replays them as many (see `lrb.query.replicas`).
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrb.oracle.expected import Expected
from lrb.query import folder
from lrb.query.replicas import replicas
from lrb.query.source import Prepared, look_through
from lrb.rating import search_ladder as ladder
from lrb.rating.rating_step import Step, step
from raystream.errors import ConfigError
from spark_ingest import layout
from spark_ingest.late import cut_late

RATE_FILE = folder.RATE_FILE
WHOLE = "whole"
STORE_SHARE = "RAY_DEFAULT_OBJECT_STORE_MEMORY_PROPORTION"
"""Which share of the memory Ray's object store may take at most; Ray looks when it is loaded. 0.3,
which is usual, of 24 GiB are less than the checkpoints of 1,000 expressways."""


def share_memory() -> None:
    """Let the object store of a Ray that the search starts for itself take 0.4 of the memory,
    unless the user has said how much."""
    os.environ.setdefault(STORE_SHARE, "0.4")


@dataclass(frozen=True)
class Traffic:
    """What is generated, and how much of its end is replayed."""

    xways: int
    whole_seconds: int
    seconds: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.seconds <= self.whole_seconds:
            raise ConfigError(f"the last {self.seconds} s of {self.whole_seconds} s: 1 s to all")

    def is_that_of(self, meta: layout.Meta) -> bool:
        """Whether prepared data are of this traffic."""
        made = (meta.kind, meta.xways, meta.seconds, meta.seed)
        return made == ("generated", self.xways, self.whole_seconds, self.seed)


Generate = Callable[[Path, Traffic], None]
"""Writes the whole traffic into a folder."""


def late_traffic(home: Path, traffic: Traffic, generate: Generate) -> Path:
    """The folder below `home` with the last part of the traffic, made if it is not there yet.

    Raises ConfigError if `home` holds other traffic.
    """
    whole, late = home / WHOLE, home / f"last-{traffic.seconds}"
    if not _is_there(whole, traffic):
        generate(whole, traffic)
    if not _is_there(late, traffic):
        cut_late(whole, late, seconds=traffic.seconds)
    return late


def _is_there(data: Path, traffic: Traffic) -> bool:
    if not (data / "meta.json").exists():
        return False
    meta = layout.read_meta(data)
    if not traffic.is_that_of(meta):
        raise ConfigError(
            f"{data} holds {meta.kind} traffic of {meta.seconds} s on {meta.xways} expressways,"
            f" seed {meta.seed}",
            hint="Name another folder with --data, or ask for that traffic.",
        )
    return True


@dataclass(frozen=True)
class Search:
    """What is looked for: begin, most: expressways of the first step, and at most. p99: seconds in
    which 99 of 100 answers have to come."""

    begin: int
    most: int
    p99: float
    speed: float
    cluster: str | None
    instances: Mapping[str, int]


def check(out: Path, xways: int, asked: Search) -> list[int]:
    """The numbers of expressways to try, of `xways` generated ones; makes the folder `out`.

    Raises ConfigError if there are none, or if `out` cannot be written to.
    """
    numbers = ladder.rungs(xways, asked.most)
    if not numbers:
        raise ConfigError(f"--most {asked.most} is less than the {xways} generated expressways")
    folder.make(out)
    return numbers


def rate(
    late: Path,
    right: Callable[[Path], Expected],
    out: Path,
    asked: Search,
    *,
    on_step: Callable[[Step], None] = lambda _: None,
) -> dict[str, Any]:
    """Search the L-rating over the last part of some traffic, and write it to `out`/rate.json.

    Args:
        right: computes the answers to prepared data.
        out: an absolute path; with several nodes, a folder that all of them share.
        on_step: told each step when it has ended.

    Returns what rate.json says. Raises ConfigError and InputError for what was asked or given,
    JobError if a job failed.
    """
    data = look_through(late)
    numbers = check(out, data.meta.xways, asked)
    replicas(
        data, numbers[-1] // data.meta.xways
    )  # refuses what has no numbers, before work begins
    expected = right(late)
    steps: list[Step] = []

    def passes(xways: int) -> bool:
        found = step(
            data,
            expected,
            out,
            xways=xways,
            speed=asked.speed,
            p99=asked.p99,
            cluster=asked.cluster,
            instances=asked.instances,
        )
        steps.append(found)
        on_step(found)
        return found.passed

    started = time.time()
    largest = ladder.search(numbers, passes, begin=asked.begin)
    record = {
        "format": 1,
        "started": started,
        "machine": machine(),
        "L": largest,
        "complete": largest != numbers[-1],
        "search": {**_asked(asked), "tried": "one or two leading digits times the generated"},
        "traffic": traffic_record(data),
        "steps": [found.record() for found in steps],
    }
    try:
        folder.remove_answers(out)
        (out / RATE_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise folder.unwritable(out, error) from error
    return record


def _asked(asked: Search) -> dict[str, Any]:
    return {
        "from": asked.begin,
        "most": asked.most,
        "p99": asked.p99,
        "speed": asked.speed,
        "cluster": "local" if asked.cluster is None else "ray",
        "instances": dict(asked.instances),
    }


def traffic_record(data: Prepared) -> dict[str, Any]:
    """Where the rows of the steps come from."""
    meta = data.meta
    return {
        "generator": "python -m spark_ingest generate" if meta.kind == "generated" else meta.kind,
        "seed": meta.seed,
        "xways": meta.xways,
        "seconds": meta.seconds,
        "first": meta.first,
        "last": meta.last,
        "rows": meta.rows_total,
        "cold_start": True,
        "replicas": f"of {meta.xways} expressways; cars and expressways renamed, questions not;"
        " one toll history for all",
    }


def machine() -> dict[str, Any]:
    """Where a rating was measured."""
    return {
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
