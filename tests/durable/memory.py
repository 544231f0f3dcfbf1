"""A store in memory, whose user can be made to die."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from raystream.durable.store import missing


class DiedError(Exception):
    """The process died."""


class Memory:
    """A store whose user dies after `lives` more changes; `changed` sees every one."""

    url = "memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lives = -1
        self.changed: Callable[[], None] = lambda: None

    def _change(self) -> None:
        self.changed()
        if self.lives == 0:
            raise DiedError
        self.lives -= 1

    def put(self, name: str, data: Any) -> None:
        self._change()
        self.objects[name] = bytes(data)

    def claim(self, name: str, data: Any) -> bool:
        self._change()
        new = name not in self.objects
        self.objects.setdefault(name, bytes(data))
        return new

    def get(self, name: str) -> bytes:
        if name not in self.objects:
            raise missing(self.url, name)
        return self.objects[name]

    def sizes(self, folder: str) -> dict[str, int]:
        return {n: len(d) for n, d in self.objects.items() if n.startswith(f"{folder}/")}

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._change()
            self.objects.pop(name, None)

    def sweep(self, folder: str) -> None:
        """A put is all or nothing here."""
