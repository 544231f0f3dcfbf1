"""Feeds as processes of their own, some of which are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from spark_ingest.feed.state import State
from tests.gates import until
from tests.io.test_push import TOKEN
from tests.lrb.feeding import FedJob
from tests.processes import family_of, kill_each


class FeedProcess:
    """`python -m spark_ingest feed` of what a job is to be fed with."""

    def __init__(self, job: FedJob, folder: Path, *, speed: str, tasks: int) -> None:
        self.state = State(folder)
        self.log = folder.with_suffix(".log")
        command = [sys.executable, "-m", "spark_ingest", "feed", "--input", str(job.data)]
        command += ["--address", job.address, "--speed", speed, "--state", str(folder)]
        command += ["--tasks", str(tasks), "--cores", "2", "--every", "0.2"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=os.environ
                | {"RAYSTREAM_PUSH_TOKEN": TOKEN, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def reaches(self, second: int) -> None:
        """Wait until the query has committed a second."""
        until(lambda: self._reached(second))

    def _reached(self, second: int) -> bool:
        assert self._process.poll() in (None, 0), self.log.read_text()[-3000:]
        return (self.state.committed() or 0) >= second

    def workers(self) -> list[psutil.Process]:
        """The Python processes that do the work of executors."""
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if "pyspark.daemon" in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def kill(self) -> None:
        """Kill the driver, and the executors with it."""
        kill_each(family_of(self._process.pid))
        self._process.wait(60)

    def ends(self) -> str:
        """Wait for its end, which is to be a good one; what it said."""
        code = self._process.wait(300)
        said = self.log.read_text()
        assert code == 0, said[-3000:]
        return said

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()


@contextmanager
def feeding(job: FedJob, folder: Path, *, speed: str, tasks: int) -> Iterator[FeedProcess]:
    """A feed that is gone afterwards."""
    process = FeedProcess(job, folder, speed=speed, tasks=tasks)
    try:
        yield process
    finally:
        process.close()
