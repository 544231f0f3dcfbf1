"""One Ray runtime for all tests, of its own: it joins no other and is ended with the session."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

GONE_SECONDS = 120.0
"""How long processes may take to end. Only a test that fails takes that long."""
OBJECT_STORE_BYTES = 100 << 20


@pytest.fixture(scope="session")
def ray_runtime() -> Iterator[Path]:
    """A local Ray; the folder where its processes put temporary files."""
    import ray

    from raystream.actors.cluster.connecting import start_ray

    folder = Path(tempfile.mkdtemp(prefix="rs-"))  # short: Ray makes sockets in it
    spills = folder / "tmp"
    spills.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(spills))
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_metrics_report_interval_ms", "4000")
        patch.delenv("RAY_ADDRESS", raising=False)
        start_ray(
            num_cpus=4,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=str(folder / "ray"),
        )
        yield spills
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def on_ray(ray_runtime: Path) -> Iterator[None]:
    """Ray for a test whose jobs must leave nothing: no process, no actor, no file."""
    before = set(os.listdir(ray_runtime))
    yield
    _, alive = psutil.wait_procs(job_processes(), timeout=GONE_SECONDS)
    assert not alive
    assert set(os.listdir(ray_runtime)) == before


def job_processes(above: psutil.Process | None = None) -> list[psutil.Process]:
    """The processes of actors of our jobs, below a process (this one)."""
    ours = re.compile(r"ray::(.*:)?(Controller|InstanceActor|Keeper)\b")
    found = []
    for process in (above or psutil.Process()).children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if ours.match(" ".join(process.cmdline())):
                found.append(process)
    return found
