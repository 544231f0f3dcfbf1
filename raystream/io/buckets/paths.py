"""A place in a bucket that is used like a `pathlib.Path`, as far as sinks of files need it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from functools import total_ordering
from pathlib import Path
from typing import Any

from raystream.io.buckets import objects
from raystream.io.buckets.urls import BucketUrl, is_bucket, parsed, place_name


@total_ordering
class BucketPath(os.PathLike[str]):
    """A place in a bucket. `os.fspath` of it is the URL, which most libraries read from."""

    def __init__(self, place: BucketUrl | str) -> None:
        self.place = parsed(place) if isinstance(place, str) else place

    def __fspath__(self) -> str:
        return str(self.place)

    def __str__(self) -> str:
        return self.place.plain

    def __repr__(self) -> str:
        return f"BucketPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BucketPath) and self.place == other.place

    def __lt__(self, other: Any) -> bool:
        return str(self) < str(other)

    def __hash__(self) -> int:
        return hash(self.place)

    def __truediv__(self, name: str) -> BucketPath:
        return BucketPath(replace(self.place, key=f"{self.place.key}/{name}".strip("/")))

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.place.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The last part of the name, from its dot on."""
        return os.path.splitext(self.name)[1]

    @property
    def parent(self) -> BucketPath:
        """The prefix in which it is."""
        return BucketPath(replace(self.place, key=self.place.key.rpartition("/")[0]))

    def exists(self) -> bool:
        """Whether there is an object of this name."""
        return objects.info(os.fspath(self)) is not None

    is_file = exists

    def mkdir(self, *, exist_ok: bool = False) -> None:
        """Nothing: prefixes are there when objects are."""

    def iterdir(self) -> Iterator[BucketPath]:
        """The objects directly below."""
        return self.glob("*")

    def glob(self, pattern: str) -> Iterator[BucketPath]:
        """The objects below that fit a pattern of as many parts as it has."""
        within = f"{self.place.key}/" if self.place.key else ""
        wanted = pattern.split("/")
        for found in objects.below(self.place):
            parts = parsed(found.name).key.removeprefix(within).split("/")
            if len(parts) == len(wanted) and all(map(fnmatch, parts, wanted)):
                yield BucketPath(found.name)

    def read_bytes(self) -> bytes:
        """The content of the object."""
        return objects.read(os.fspath(self))

    def read_text(self, encoding: str = "utf-8") -> str:
        """The content of the object as text."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data: bytes) -> None:
        """Replace the object, as a whole."""
        objects.write(os.fspath(self), data)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete the object."""
        objects.delete(os.fspath(self))


AnyPlace = Path | BucketPath
"""A folder or file of this machine, or a place in a bucket."""


def folder_at(path: Any) -> AnyPlace:
    """The folder of a sink, as its user gave it.

    Raises:
        ConfigError: it is none, or of a scheme that is not known.
    """
    name = place_name(path)
    return BucketPath(name) if is_bucket(name) else Path(name)
