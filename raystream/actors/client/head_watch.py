"""Notices that the cluster is gone on which a command follows its job."""

from __future__ import annotations

import time

from ray.exceptions import AuthenticationError, RayError

from raystream.actors.cluster.ray_internals import Pulse
from raystream.errors import JobError

LOOK_SECONDS = 5.0
ANSWER_SECONDS = 2.0
GONE_SECONDS = 45.0
"""A head that has not answered for this long is given up. Ray itself does so after a minute, and
ends the process that asks, without a word about the job."""


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
            if silent >= GONE_SECONDS:
                raise self._gone(f"its head has not answered for {silent:.0f} s") from None
        self._looked = time.monotonic()

    def _gone(self, why: str) -> HeadGoneError:
        return HeadGoneError(
            f"the Ray cluster that the job ran on is gone: {why}", hint=self._advice
        )
