"""Sending the images of an instance to its keepers.

The instance sends each part once, to its first keeper; each keeper passes it on to the next (chain
replication, van Renesse and Schneider, OSDI 2004). So an instance with several copies sends no more
than one with a single copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import ray
from ray.exceptions import OwnerDiedError, RayActorError, RayError, RayTaskError

from raystream.actors.keepers.timing import Timed
from raystream.schema.types import KeyRange
from raystream.state.images.image import ImageHeader
from raystream.state.images.image_store import Stored

STORE_SECONDS = 60.0
"""How long a keeper may take to store a checkpoint."""
PARTS_AHEAD = 2
"""Up to this many parts of an image may be on their way to keepers while the next one is made."""


class Uploads:
    """Sends images, part by part, one image after the other.

    Args:
        sender: the name of the instance.
        vertex: its vertex.
        node: the id of its node.
    """

    def __init__(self, sender: str, vertex: int, node: str = "") -> None:
        self.unstored = ""
        """Why the newest checkpoint is not stored, if its keepers could not; otherwise empty."""
        self._sender = sender
        self._vertex = vertex
        self._node = node
        self._sent: list[Any] = []
        """The calls of the parts that are on their way, the oldest first."""
        self._timed = Timed()

    def store(
        self, keepers: tuple[Any, ...], header: ImageHeader, part: KeyRange, data: memoryview
    ) -> bool:
        """Send a part of an image along all keepers, and wait for all but a few of the parts
        before; with the last part, True when all keepers have the image."""
        if not keepers:
            return False
        image = Stored(
            header.checkpoint,
            header.base or None,
            np.frombuffer(data, np.uint8),
            len(data),
            ended=header.input_position.ended,
            oldest=header.oldest,
            sender=self._sender,
            code=header.code,
        )
        alone = not self._sent
        ahead = 0 if part.hi == header.keys.hi else PARTS_AHEAD
        first, *others = keepers
        held = True
        try:
            what = (self._vertex, header.keys, part, image, others)
            call = first.store.remote(*what, *self._timed.of(first))
            if alone:
                self._timed.watch(first, call, self._node, len(data))
            self._sent.append(call)
            while len(self._sent) > ahead:
                held &= _all_hold(self._sent.pop(0))
        except (RayActorError, OwnerDiedError):
            held = False  # a keeper died: the controller sees it, and the next checkpoint is full
        except RayError as error:  # it has no room, say: tried again with the next checkpoint
            held, self.unstored = False, _said(error)
        if not held:
            self._sent.clear()
        elif not ahead:
            self.unstored = ""
        return held


def _all_hold(call: Any) -> bool:
    """Whether a keeper, and all to whom it passed a part on, answered as they should."""
    while call is not None:
        held, call = ray.get(call, timeout=STORE_SECONDS)
        if not held:
            return False
    return True


def _said(error: RayError) -> str:
    """One line for what a keeper raised."""
    raised = error.cause if isinstance(error, RayTaskError) else error
    return f"{type(raised).__name__}: {raised}".partition("\n")[0]
