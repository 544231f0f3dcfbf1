"""Sending the images of an instance to its keepers."""

from __future__ import annotations

from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from raystream.schema.types import KeyRange
from raystream.state.images.image import ImageHeader

STORE_SECONDS = 60.0
"""How long a keeper may take to store a checkpoint."""
PARTS_AHEAD = 2
"""Up to this many parts of an image may be on their way to keepers while the next one is made."""


class Uploads:
    """Sends images, part by part, one image after the other.

    Args:
        sender: the name of the instance.
        vertex: its vertex.
    """

    def __init__(self, sender: str, vertex: int) -> None:
        self.unstored = ""
        """Why the newest checkpoint is not stored, if its keepers could not; otherwise empty."""
        self._sender = sender
        self._vertex = vertex
        self._sent: list[list[Any]] = []
        """The calls of the parts that are on their way, the oldest first."""

    def store(
        self, keepers: tuple[Any, ...], header: ImageHeader, part: KeyRange, data: memoryview
    ) -> bool:
        """Send a part of an image to all keepers, and wait for all but a few of the parts before;
        with the last part, True when all keepers have the image."""
        array = np.frombuffer(data, np.uint8)
        image = (
            self._sender,
            self._vertex,
            header.keys,
            header.base,
            header.checkpoint,
            header.oldest,
        )
        ahead = 0 if part.hi == header.keys.hi else PARTS_AHEAD
        calls: list[Any] = []
        try:
            calls = [
                k.store.remote(*image, header.input_position.ended, part, array) for k in keepers
            ]
            self._sent.append(calls)
            while len(self._sent) > ahead:
                if not all(ray.get(self._sent.pop(0), timeout=STORE_SECONDS)):
                    calls = []
        except RayActorError:
            calls = []  # a keeper died: the controller sees it, and the next checkpoint is full
        except RayError as error:  # it has no room, say: tried again with the next checkpoint
            calls, self.unstored = [], _said(error)
        if not calls:
            self._sent.clear()
        elif not ahead:
            self.unstored = ""
        return bool(calls)


def _said(error: RayError) -> str:
    """One line for what a keeper raised."""
    raised = error.cause if isinstance(error, RayTaskError) else error
    return f"{type(raised).__name__}: {raised}".partition("\n")[0]
