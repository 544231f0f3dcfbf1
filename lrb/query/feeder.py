"""The feed of a run as a process of its own: Spark, which pushes rows into the job of this one."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lrb.query.fed import PATH
from raystream.errors import JobError, RaystreamError
from raystream.push import Client

END_SECONDS = 30.0
"""How long a feed may take to end after the job has, and a job to take the end of its input."""
LOG_LINES = 15
"""Of what a feed has said, when it failed."""


class Feeder:
    """A feed that is under way.

    port, token: those of the job that it feeds.
    """

    def __init__(self, data: Path, speed: float | None, folder: Path) -> None:
        self.port, self.token = _free_port(), secrets.token_urlsafe(16)
        self._log = folder / "feed.log"
        self._ended = threading.Event()
        pace = "max" if speed is None else f"{speed:g}"
        command = [sys.executable, "-m", "spark_ingest", "feed", "--input", str(data)]
        command += ["--speed", pace, "--address", self._address, "--state", str(folder / "state")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"RAYSTREAM_PUSH_TOKEN": self.token},
                start_new_session=True,  # Ctrl-C is for this process, which ends the feed
            )
        threading.Thread(target=self._watch, name="feed", daemon=True).start()

    @property
    def _address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _watch(self) -> None:
        """End the input of the job if the feed fails: the job would wait for ever."""
        if self._process.wait() and not self._ended.is_set():
            client = Client(self._address, self.token, path=PATH, give_up=END_SECONDS)
            with suppress(RaystreamError):
                client.end()
            client.close()

    def refuse_failed(self) -> None:
        """Wait for the end of the feed; the job has ended.

        Raises:
            JobError: the feed has failed, with the last that it said.
        """
        try:
            code = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        if code:
            text = self._log.read_text(encoding="utf-8", errors="replace")
            said = "\n  ".join(text.splitlines()[-LOG_LINES:])
            raise JobError(f"the feed has failed:\n  {said}")

    def close(self) -> None:
        """End the feed, if it goes on."""
        self._ended.set()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@contextmanager
def feeding(data: Path, speed: float | None) -> Iterator[Feeder]:
    """Feeds the rows of a prepared folder to a job on this machine, which is to listen at the port
    of the feeder. speed: None for as fast as the job takes them."""
    with tempfile.TemporaryDirectory(prefix="lrb-feed-") as folder:
        feeder = Feeder(data, speed, Path(folder))
        try:
            yield feeder
        finally:
            feeder.close()


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
    return port
