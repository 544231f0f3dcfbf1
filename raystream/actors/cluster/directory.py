"""What the instances of a source tell each other, in Ray's key-value store."""

from __future__ import annotations

from raystream.actors.cluster import ray_internals as internals

NAMESPACE = "raystream"


class SharedDirectory:
    """See `Directory`. The keys of a run stay in the store after its end: they are short."""

    def put(self, key: str, value: str, /) -> None:
        """See `Directory.put`."""
        internals.kv_put(key, value, NAMESPACE)

    def get(self, key: str, /) -> str:
        """See `Directory.get`."""
        return internals.kv_get(key, NAMESPACE)
