"""Record types that are made of a user's, with some fields more or less, and found by their names.

Pickling sends a type as a module and a name. Another process asks the module for the name before it
has made the type itself; the name therefore says of which type it is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_POINT = "\u00b7"
"""Stands for the points of a name: pickling takes a point for an attribute of an attribute."""


class MadeTypes:
    """The types that one module makes.

    Args:
        module: its name.
        prefix: what their names begin with.
        make: makes the type of a record type.
    """

    def __init__(self, module: str, prefix: str, make: Callable[[type], type]) -> None:
        self._module, self._prefix, self._make = module, prefix, make
        self._made: dict[str, type] = {}

    def new(self, record: type, fields: Sequence[tuple[str, Any]]) -> type:
        """A new type, which is called like the record type in messages."""
        path = f"{self._prefix}{record.__module__}:{record.__qualname__}".replace(".", _POINT)
        made: Any = NamedTuple(record.__name__, fields)  # type: ignore[misc]
        made.__module__, made.__qualname__, made.__name__ = self._module, path, path
        if "<locals>" not in path:
            self._made[path] = made
        return made

    def find(self, name: str) -> type:
        """The type of a name: for `__getattr__` of the module.

        Raises:
            AttributeError: it is no name of such a type.
        """
        if name in self._made:
            return self._made[name]
        if not name.startswith(self._prefix):
            raise AttributeError(name)
        module, _, path = name.removeprefix(self._prefix).replace(_POINT, ".").partition(":")
        found: Any = importlib.import_module(module)
        for step in path.split("."):
            found = getattr(found, step)
        return self._make(found)
