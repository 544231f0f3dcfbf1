"""Find, read, write and delete objects of buckets, by their URLs.

An object appears when all of it is there: a small one is one request, a large one the end of a
multipart upload. Nothing else is relied on: no renaming, no appending, no locks.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from raystream.io.buckets.filesystems import filesystem, named
from raystream.io.buckets.urls import BucketUrl, parsed

COPY_BYTES = 8 << 20


class BucketObject(NamedTuple):
    """An object, as a listing shows it."""

    name: str
    """Its URL."""
    size: int
    changed: int
    """When it was written, in nanoseconds of Unix time."""


def info(url: str) -> BucketObject | None:
    """An object, or None if there is none of this name."""
    from pyarrow import fs

    place = parsed(url)
    with named(place.plain):
        found = filesystem(place).get_file_info(place.path) if place.key else None
    if found is None or found.type != fs.FileType.File:
        return None
    return BucketObject(url, found.size, found.mtime_ns or 0)


def below(place: BucketUrl) -> list[BucketObject]:
    """All objects whose keys begin with that of a place and a slash, by name."""
    from pyarrow import fs

    chosen = fs.FileSelector(place.path, recursive=True)
    with named(place.plain):
        try:
            listed = filesystem(place).get_file_info(chosen)
        except FileNotFoundError:
            return []  # a bucket that is not there is another error
    files = (f for f in listed if f.type == fs.FileType.File)
    return sorted(BucketObject(str(place.at(f.path)), f.size, f.mtime_ns or 0) for f in files)


def matching(place: BucketUrl) -> list[BucketObject]:
    """All objects whose keys fit a pattern: `*` and `?` stop at slashes, `**/` does not."""
    fixed = place.key.partition("*")[0].partition("?")[0].partition("[")[0]
    there = below(place.at(f"{place.bucket}/{fixed.rpartition('/')[0]}"))
    steps = place.key.split("/")
    return [f for f in there if _fits(parsed(f.name).key.split("/"), steps)]


def _fits(parts: list[str], steps: list[str]) -> bool:
    """Whether a key fits a pattern, both cut at slashes. No star fits a dot at the beginning."""
    if not steps:
        return not parts
    if steps[0] == "**":
        return _fits(parts, steps[1:]) or (bool(parts) and _fits(parts[1:], steps))
    if not parts or (parts[0].startswith(".") and not steps[0].startswith(".")):
        return False
    return fnmatchcase(parts[0], steps[0]) and _fits(parts[1:], steps[1:])


def has_magic(key: str) -> bool:
    """Whether a key is a pattern."""
    return any(c in key for c in "*?[")


def open_object(url: str) -> Any:
    """An object to be read anywhere in it, as a file of Arrow.

    Raises:
        OSError: it cannot be read, or is not there.
    """
    place = parsed(url)
    with named(place.plain):
        return filesystem(place).open_input_file(place.path)


def read(url: str) -> bytes:
    """The content of an object."""
    place = parsed(url)
    with named(place.plain), filesystem(place).open_input_stream(place.path) as file:
        data: bytes = file.read()
    return data


def write(url: str, data: bytes) -> None:
    """Write an object; one of the same name is replaced as a whole."""
    place = parsed(url)
    with named(place.plain), filesystem(place).open_output_stream(place.path) as file:
        file.write(data)


def upload(local: str, url: str) -> None:
    """Make an object of a file of this machine."""
    place = parsed(url)
    with (
        open(local, "rb") as source,
        named(place.plain),
        filesystem(place).open_output_stream(place.path) as file,
    ):
        while data := source.read(COPY_BYTES):
            file.write(data)


def delete(url: str) -> None:
    """Delete an object; nothing if there is none."""
    place = parsed(url)
    with named(place.plain):
        try:
            filesystem(place).delete_file(place.path)
        except FileNotFoundError:
            return
