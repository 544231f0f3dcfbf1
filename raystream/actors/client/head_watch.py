"""Notices that the cluster is gone on which a command follows its job."""

from __future__ import annotations

import os
import time

from ray.exceptions import AuthenticationError, RayError

from raystream.actors.cluster.ray_internals import Pulse
from raystream.errors import JobError

LOOK_SECONDS = 5.0
ANSWER_SECONDS = 2.0
RAY_WAITS = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""The variable that says how many seconds Ray waits for a head that is gone; 60 unless it is set.
Then Ray ends the process that asks, without a word about the job."""
BEFORE_SECONDS = 15.0
"""A head is given up this long before Ray does so."""


def patience() -> float:
    """How many seconds a head may be silent before it is given up."""
    try:
        waits = float(os.environ.get(RAY_WAITS, "60"))
    except ValueError:
        waits = 60.0
    return max(waits - BEFORE_SECONDS, waits / 2)


class HeadGoneError(JobError):
    """The head of the cluster has ended, and the job with it."""


class Head:
    """The head of the cluster that this process is connected to.

    Args:
        advice: the hint of the error when it is gone.
    """

    def __init__(self, advice: str) -> None:
        self._advice = advice
        self._pulse = Pulse()
        self._heard = self._looked = time.monotonic()

    def look(self) -> None:
        """Ask it for a sign of life, now and then.

        Raises:
            HeadGoneError: it has not answered for long, or another cluster has begun at its
                address. That cluster does not know the job, so to wait for the job would never end.
        """
        now = time.monotonic()
        if now < self._looked + LOOK_SECONDS:
            return
        try:
            self._pulse.feel(ANSWER_SECONDS)
            self._heard = time.monotonic()
        except AuthenticationError:
            raise self._gone("another one has begun at its address") from None
        except RayError:
            silent = time.monotonic() - self._heard
            if silent >= patience():
                raise self._gone(f"its head has not answered for {silent:.0f} s") from None
        self._looked = time.monotonic()

    def _gone(self, why: str) -> HeadGoneError:
        return HeadGoneError(
            f"the Ray cluster that the job ran on is gone: {why}", hint=self._advice
        )
