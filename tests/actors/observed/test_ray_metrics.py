"""What Prometheus would read of a job on real Ray, through the death of its controller."""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import ray

from raystream.actors.client.stopping import stop
from raystream.errors import Stopped
from tests.actors.helpers import parts
from tests.actors.jobs.test_ray_durable import Submitted
from tests.gates import LIMIT_SECONDS, Gate, until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]
TAKEN = "ray_raystream_records_in_total"


def scraped(name: str) -> dict[str, float]:
    """The sum over live series by operator, as Ray serves it."""
    listed: Any = ray.nodes
    found: dict[str, float] = {}
    for node in listed():
        url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        try:
            text = urllib.request.urlopen(url, timeout=30).read().decode()
        except urllib.error.URLError:  # the agent of the node has only begun
            continue
        for labels, value in re.findall(rf"^{name}\{{(.*?)\}} (\S+)$", text, re.M):
            if 'job="slow"' in labels:
                (operator,) = re.findall(r'operator="(.*?)"', labels)
                found[operator] = found.get(operator, 0.0) + float(value)
    return found


def wait_beyond(least: float, run: Submitted, seen: list[float]) -> float:
    """Scrape until a total is beyond a number; whatever is seen is noted."""
    due = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < due:
        assert run.is_alive(), run.outcome
        if (taken := scraped(TAKEN).get("count")) is not None:
            seen.append(taken)
            if taken > least:
                return taken
        time.sleep(0.2)
    raise AssertionError(f"{TAKEN} stays at {seen[-1:]}")


def test_totals_go_on_when_the_controller_and_an_instance_die(tmp_path: Path) -> None:
    pids: dict[str, int] = {}
    flow = parts.slow(tmp_path / "out", lines=100_000, paced=100.0, gate=Gate(tmp_path / "gate"))
    run = Submitted(
        flow, checkpoint_every=20, spares=1, on_progress=lambda s: pids.update(s.processes)
    )
    seen: list[float] = []
    first = wait_beyond(0.0, run, seen)
    until(lambda: {"count/0", "controller"} <= pids.keys())
    for name in ("count/0", "controller"):
        os.kill(pids[name], signal.SIGKILL)
    wait_beyond(first * 1.5, run, seen)
    assert seen == sorted(seen), "a total fell"
    assert {"lines", "count"} <= scraped("ray_raystream_busy").keys()
    stop("slow", "auto", save=False)
    assert isinstance(run.ended(), Stopped)
