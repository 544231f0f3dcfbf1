"""Whether the cluster that a command follows its job on is still there."""

from __future__ import annotations

import time
from typing import Any

from ray._private import worker
from ray.exceptions import AuthenticationError, RayError

from raystream.errors import JobError

LOOK_SECONDS = 5.0
ANSWER_SECONDS = 2.0
GONE_SECONDS = 45.0
"""After so long without an answer the head is given up. Ray itself does it after a minute, and ends
the process that asks without a word of the job."""


class HeadGoneError(JobError):
    """The head of the cluster has ended, and the job with it."""


class Head:
    """The head of the cluster that this process is connected to.

    Args:
        advice: what to do when it is gone.
    """

    def __init__(self, advice: str) -> None:
        self._advice = advice
        connected: Any = worker.global_worker
        self._client = connected.gcs_client
        self._heard = self._looked = time.monotonic()

    def look(self) -> None:
        """Ask it for a sign of life, now and then.

        Raises:
            HeadGoneError: it has not answered for long, or another cluster has begun where it was.
                That one knows nothing of the job, and whoever waits for the job would wait forever.
        """
        now = time.monotonic()
        if now < self._looked + LOOK_SECONDS:
            return
        try:
            self._client.internal_kv_get(b"head", b"raystream", timeout=ANSWER_SECONDS)
            self._heard = time.monotonic()
        except AuthenticationError:
            raise self._gone("another one has begun at its address") from None
        except RayError:
            silent = time.monotonic() - self._heard
            if silent >= GONE_SECONDS:
                raise self._gone(f"its head has not answered for {silent:.0f} s") from None
        self._looked = time.monotonic()

    def _gone(self, why: str) -> HeadGoneError:
        return HeadGoneError(
            f"the Ray cluster that the job ran on is gone: {why}", hint=self._advice
        )
