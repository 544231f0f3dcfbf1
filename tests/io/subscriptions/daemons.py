"""Servers that a test begins and ends, each with a folder of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.gates import LIMIT_SECONDS, until
from tests.processes import free_port


class Daemon:
    """A server on a port of the loopback, which can be stopped and started again.

    Args:
        program: its name. hint: how it is installed.
        arguments: with `{port}` and `{folder}`.
    """

    def __init__(self, program: str, hint: str, folder: Path, *arguments: str) -> None:
        beside = Path(sys.executable).parent / program
        there = [shutil.which(program), f"/usr/sbin/{program}", str(beside)]
        found = next((path for path in there if path and Path(path).exists()), None)
        if found is None:
            pytest.skip(f"{program} is not installed: {hint}")
        self.port = free_port()
        given = {"port": self.port, "folder": folder}
        self._command = [found, *(argument.format(**given) for argument in arguments)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(self._answers)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(LIMIT_SECONDS)
