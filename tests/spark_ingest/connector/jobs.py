"""Jobs that collect what Spark pushes, and frames of numbers to be pushed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import raystream as rs
from raystream.push import Client
from tests.io.test_push import TOKEN, free_port


class Number(NamedTuple):
    n: int
    text: str = ""


class Job:
    """A job in this process that collects numbers."""

    def __init__(self, lanes: int = 3) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.found: list[Number] = []
        self.failed: BaseException | None = None
        self._source = rs.io.push(Number, port=self.port, lanes=lanes, token=TOKEN)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        flow = rs.Flow("numbers")
        numbers = flow.source(self._source, epochs=rs.by_arrival(seconds=0.02))
        numbers.to(rs.io.callable(lambda batch: self.found.extend(batch.records())))
        try:
            flow.run()
        except BaseException as error:
            self.failed = error

    def options(self, **more: Any) -> dict[str, str]:
        """Those of a writer."""
        return {"address": self.address, "token": TOKEN, "give_up": "60", **more}

    def end(self) -> list[int]:
        """End the input; the numbers that the job was given, in their order."""
        with Client(self.address, TOKEN, give_up=60) as client:
            client.end()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failed is not None:
            raise self.failed
        return [row.n for row in self.found]


@contextmanager
def job(lanes: int = 3) -> Iterator[Job]:
    """A job whose input is ended."""
    running = Job(lanes)
    try:
        yield running
    finally:
        if running._thread.is_alive():
            running.end()
