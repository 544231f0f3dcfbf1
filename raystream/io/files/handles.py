"""How many files a process keeps open.

A source opens all its splits at once, and reads a little of each in turn. What is read to its end
is closed at once; of the others no more stay open than the process may open anyway, and the rest
are opened again for each batch.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from raystream.io.files.reading import reading

OTHERS = 128
"""Files that a process needs for other things: sockets, libraries, the outputs."""
SHARE = 2
"""Readers take one part in two of what the process may open."""
LEAST = 16


class Closed(Protocol):
    """What can be closed."""

    def close(self) -> Any: ...


F = TypeVar("F", bound=Closed)

_open: set[int] = set()
"""The handles that are open in this process, by id."""


def limit() -> int:
    """How many files readers keep open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 20
    return max(LEAST, (soft - OTHERS) // SHARE)


class Handles(Generic[F]):
    """The one file of a split, closed while there are too many.

    Args:
        name: the file. make: opens it.
    """

    def __init__(self, name: str, make: Callable[[], F]) -> None:
        self._name = name
        self._make = make
        self._file: F | None = None

    def __enter__(self) -> Handles[F]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> F:
        """The file from its beginning."""
        self.close()
        with reading(self._name):
            self._file = self._make()
        _open.add(id(self))
        return self._file

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._file is not None:
            self._file.close()
            self._file = None
            _open.discard(id(self))

    def rest(self) -> None:
        """Called before a batch is yielded: closes the file if too many are open."""
        if len(_open) > limit():
            self.close()

    def again(self) -> F | None:
        """Called after a batch was yielded: the file, opened again from its beginning; None if it
        has stayed open."""
        return None if self._file is not None else self.open()
