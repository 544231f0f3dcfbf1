"""The keeper of a node: holds other instances' checkpoints in the Ray object store.

Checkpoints come by value and the keeper puts them itself, so that it owns the objects: they survive
the death of the instance's process and node (an object dies with its owner). A keeper may be a
place of the boundary register as well.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import ray

from raystream.dataflow.register import Boundaries, Boundary, Held, Register
from raystream.schema.types import KeyRange
from raystream.state.images import ImageStore, Stored


class Keeper:
    """Holds images by value; called by instances and the controller."""

    def __init__(self) -> None:
        self._images: ImageStore[Any] = ImageStore()
        self._register = Register()
        self._registering = threading.Lock()

    def store(self, vertex: int, keys: KeyRange, base: int, cut: int, data: Any) -> bool:
        """Keep an image (uint8 array); False if it is a delta on something that is not held."""
        stored = Stored(cut, base or None, ray.put(data), len(data))
        return self._images.store(vertex, keys, stored)

    def images(self, vertex: int, cut: int) -> list[tuple[KeyRange, list[Any]]]:
        """Per range the references of the images that make up a vertex's state at a cut."""
        return [(keys, [s.data for s in chain]) for keys, chain in self._images.images(vertex, cut)]

    def trim(self, floor: int) -> int:
        """Drop what no restore from `floor` on needs; the bytes that are left."""
        self._images.trim(floor)
        with self._registering:
            self._register.trim(floor)
        return self._images.nbytes

    @ray.method(concurrency_group="register")
    def claim(self, view: int, split: str, epoch: int, wanted: Boundary) -> Held | None:
        """See `Register.claim`. A group of its own: storing an image takes long."""
        with self._registering:
            return self._register.claim(view, split, epoch, wanted)

    @ray.method(concurrency_group="register")
    def hand(self, view: int) -> Boundaries | None:
        """See `Register.hand`."""
        with self._registering:
            return self._register.hand(view)

    @ray.method(concurrency_group="register")
    def fill(self, view: int, content: Boundaries) -> bool:
        """See `Register.fill`."""
        with self._registering:
            return self._register.fill(view, content)

    def pid(self) -> int:
        """The process id."""
        return os.getpid()

    @ray.method(concurrency_group="park")
    def park(self) -> None:
        """Never returns: its failure is the death of this process."""
        threading.Event().wait()
