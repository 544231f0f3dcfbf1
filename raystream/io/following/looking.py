"""What is in a folder, below a prefix or behind a pattern now. Nothing at all is fine, too."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from raystream.io.buckets import objects
from raystream.io.buckets.urls import is_bucket, parsed
from raystream.io.files.listing import has_suffix
from raystream.io.files.reading import reading


class Seen(NamedTuple):
    """A file, as a look shows it."""

    size: int
    changed: int
    """When it was written, in nanoseconds of Unix time."""


def look(paths: Sequence[str], suffixes: tuple[str, ...]) -> dict[str, Seen]:
    """The files of paths, patterns and folders by name; of a folder those of these suffixes.

    Names that begin with a dot or `_` are left out: so are called what is not finished, manifests
    and markers.

    Raises:
        InputError: a folder or a bucket cannot be read.
    """
    found: dict[str, Seen] = {}
    for path in paths:
        with reading(path):
            found.update(_in_bucket(path, suffixes) if is_bucket(path) else _here(path, suffixes))
    return found


def seen(name: str) -> Seen | None:
    """One file; None if it is gone."""
    with reading(name):
        if is_bucket(name):
            there = objects.info(name)
            return None if there is None else Seen(there.size, there.changed)
        return _stat(name)


def is_there(paths: Sequence[str], name: str) -> bool:
    """Whether there is a file of this name in one of the folders, beside one of the files, or where
    a pattern begins."""
    return any(seen(place) is not None for path in paths for place in _beside(path, name))


def _beside(path: str, name: str) -> list[str]:
    if is_bucket(path):
        url = parsed(path)
        fixed = url.key.partition("*")[0].partition("?")[0].partition("[")[0]
        within = [fixed.rpartition("/")[0]] + [url.key] * (fixed == url.key)
        return [str(url.at(f"{url.bucket}/{w}/{name}".replace("//", "/"))) for w in within]
    if os.path.isdir(path):
        return [os.path.join(path, name)]
    while glob.has_magic(path):
        path = os.path.dirname(path)
        if os.path.isdir(path):
            return [os.path.join(path, name)]
    return [os.path.join(os.path.dirname(path), name)]


def _in_bucket(path: str, suffixes: tuple[str, ...]) -> dict[str, Seen]:
    url = parsed(path)
    if objects.has_magic(url.key):
        there = objects.matching(url)
    elif (one := objects.info(path)) is not None:
        there = [one]
    else:
        there = [each for each in objects.below(url) if has_suffix(each.name, suffixes)]
    depth = len(url.plain)
    return {
        each.name: Seen(each.size, each.changed)
        for each in there
        if not _hidden(parsed(each.name).plain[depth:])
    }


def _here(path: str, suffixes: tuple[str, ...]) -> dict[str, Seen]:
    if os.path.isdir(path):
        names: Iterator[str] = (n for n in _below(path) if has_suffix(n, suffixes))
    else:
        names = (n for n in glob.iglob(path, recursive=True) if not _hidden(os.path.basename(n)))
    return {name: found for name in names if (found := _stat(name)) is not None}


def _below(folder: str) -> Iterator[str]:
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _hidden(name)]
        for name in names:
            if not _hidden(name):
                yield os.path.join(at, name)


def _hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.strip("/").split("/"))


def _stat(name: str) -> Seen | None:
    try:
        found = os.stat(name)
    except FileNotFoundError:
        return None  # it went away, or is a link to nothing
    return None if os.path.isdir(name) else Seen(found.st_size, found.st_mtime_ns)
