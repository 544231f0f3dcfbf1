"""Names to which other packages may give a meaning: schemes of stores, connectors.

What raystream has itself is listed where it is used. Another package adds to it by an entry point:

    [project.entry-points."raystream.stores"]
    gs = "their_package.stores:open_bucket"

Nothing is imported before it is asked for, and the packages of this Python are looked through only
for names that raystream does not have itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar, cast

from raystream.errors import ConfigError

STORES = "raystream.stores"
"""Entry points of places for durable checkpoints, by the scheme of their URL. What they name is
called with the URL and returns a `raystream.durable.store.Store`."""
CONNECTORS = "raystream.connectors"
"""Entry points of systems that are read or written, by their name below `rs.io`. They name a module
or a class whose calls make sources and sinks."""

T = TypeVar("T")


class Registry(Generic[T]):
    """The things of one kind, by name.

    Args:
        group: the group of entry points by which other packages add to them.
        own: those of raystream, each as "module:attribute". They cannot be replaced.
    """

    def __init__(self, group: str, own: Mapping[str, str]) -> None:
        self.group = group
        self._own = {name: EntryPoint(name, value, group) for name, value in own.items()}

    def known(self) -> list[str]:
        """All names, in order."""
        return sorted({*self._own, *(entry.name for entry in self._theirs())})

    def get(self, name: str) -> T | None:
        """What a name stands for, imported; None if nobody has given it a meaning.

        Raises:
            ConfigError: several packages have, or the one that has cannot be imported.
        """
        if (own := self._own.get(name)) is not None:
            return cast(T, own.load())
        found = {entry.value: entry for entry in self._theirs() if entry.name == name}
        if not found:
            return None
        if len(found) > 1:
            raise ConfigError(
                f"{name} means several things to {self.group}: {', '.join(sorted(found))}",
                hint="Uninstall all but one of these packages.",
            )
        ((value, entry),) = found.items()
        try:
            return cast(T, entry.load())
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{name} of {self.group} is {value}, which cannot be imported: {error}"
            ) from error

    def _theirs(self) -> list[EntryPoint]:
        importlib.invalidate_caches()
        return [*entry_points(group=self.group)]
