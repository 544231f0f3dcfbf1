"""Sends the decisions of a job to a collector of OpenTelemetry, in a thread of its own."""

from __future__ import annotations

import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

SEND_SECONDS = 5.0
"""How long a collector may take to answer."""
WAITING_MAX = 100
"""How many requests wait at most for a collector; more are left out."""
PATH = "/v1/traces"
"""Where collectors take traces, unless the address has a path of its own."""


class TraceSender:
    """Posts bodies of requests to a collector, in order. Nobody waits for it.

    Args:
        url: the address of the collector.
        note: is told, on this sender's thread, when the collector does not take what it is sent.
    """

    def __init__(self, url: str, note: Callable[[str], None]) -> None:
        parts = urlsplit(url)
        self._url = url if parts.path.strip("/") else url.rstrip("/") + PATH
        self._shown = parts.netloc.rpartition("@")[2]
        """The host and port, without a password: notes are read by many."""
        self._note = note
        self._bodies: queue.Queue[bytes | None] = queue.Queue(WAITING_MAX)
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def send(self, body: bytes) -> None:
        """Have a body posted. It is left out if too many wait."""
        try:
            self._bodies.put_nowait(body)
        except queue.Full:
            self._note(f"traces are left out: {self._shown} is too slow")

    def close(self) -> None:
        """Send nothing more. What waits is posted, as far as that is possible in `SEND_SECONDS`."""
        with suppress(queue.Full):
            self._bodies.put_nowait(None)
        self._thread.join(SEND_SECONDS)

    def _run(self) -> None:
        while (body := self._bodies.get()) is not None:
            try:
                self._post(body)
            except (OSError, ValueError) as error:  # urllib's errors are among these
                reason = getattr(error, "reason", error)
                self._note(f"{self._shown} does not take traces: {reason}")

    def _post(self, body: bytes) -> None:
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, body, head, method="POST")
        with urllib.request.urlopen(request, timeout=SEND_SECONDS) as answer:
            answer.read(1 << 16)
