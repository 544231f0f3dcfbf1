"""How long a part of a checkpoint takes to a keeper.

The sender measures it, and tells the keeper with the next part: the keeper knows its own node.
"""

from __future__ import annotations

import time
from typing import Any

import ray

from raystream.controller.protocol.gathering.links import Hop


class Timed:
    """The last part that was measured."""

    def __init__(self) -> None:
        self._last: tuple[Any, Hop] | None = None

    def of(self, keeper: Any) -> tuple[Hop, ...]:
        """How long the last part took, if that was to this keeper; once."""
        last = self._last
        if last is None or last[0] != keeper:
            return ()
        self._last = None
        return (last[1],)

    def watch(self, keeper: Any, call: Any, node: str, nbytes: int) -> None:
        """Measure how long a keeper takes to answer that it has a part.

        Args:
            node: the node of this process.
        """
        if not isinstance(call, ray.ObjectRef):
            return  # a keeper of this process
        began = time.monotonic()

        def done(future: Any) -> None:
            if future.exception() is None:
                self._last = keeper, Hop(node, "", nbytes, time.monotonic() - began)

        call.future().add_done_callback(done)
