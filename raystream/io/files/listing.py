"""Files as splits: one split per file, in the order of their names. The list is taken once.

Files are on this machine or in a bucket; then their names are URLs.
"""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from raystream.errors import InputError
from raystream.io.buckets import objects
from raystream.io.buckets.urls import is_bucket, parsed, place_name
from raystream.io.files.reading import EMPTY_HINT, PACKED, reading
from raystream.schema.types import Split

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""What a source of files is given: a file, a glob pattern, a folder, or several of them."""

BATCH_ROWS = 65_536
"""Rows of a batch that a source yields, at most."""

SHOWN = 3
"""Files that a message names when there are more."""


class InputWarning(UserWarning):
    """Some of the input may not be what was meant: files of a folder that are not read."""


def paths_of(given: Paths) -> tuple[str, ...]:
    """Absolute paths or patterns, or URLs of them in buckets.

    Raises:
        ConfigError: one is empty, no path, or of a scheme that is not known; or there is none.
    """
    if isinstance(given, str | bytes | os.PathLike) or not isinstance(given, Iterable):
        return (place_name(given),)  # bytes are refused there
    paths = tuple(map(place_name, given))
    return paths or (place_name(""),)


def splits_of(
    paths: Sequence[str], suffixes: tuple[str, ...], *, may_be_empty: bool = False
) -> Sequence[Split]:
    """The files of paths, glob patterns and folders (then: of these suffixes, in upper or lower
    case, packed or not), sorted by name; a file that is found twice is read once.

    Links are followed; a folder that is reached by several links is read once, and so is a file,
    which a warning names. Visible files of a folder with other suffixes are not read; a warning
    names them.

    Args:
        may_be_empty: whether a file of no bytes is one, as it is of text without lines.

    Raises:
        InputError: there is none, or one is empty or cannot be read.
    """
    found: dict[str, int | None] = {}
    """By name the size, where it is known."""
    for path in paths:
        if is_bucket(path):
            found.update(_in_bucket(path, suffixes))
        else:
            found.update(dict.fromkeys(_files_of(path, suffixes)))
    for name in _links_to_others(found):
        del found[name]
    for name, size in found.items():
        with reading(name):
            if not may_be_empty and (os.path.getsize(name) if size is None else size) == 0:
                raise InputError(f"{name} is empty.", hint=EMPTY_HINT)
    return [Split(name) for name in sorted(found)]


def _links_to_others(names: Collection[str]) -> list[str]:
    """Links to files that are found by other names, too: a link such as `latest.csv` would bring
    the records of a file a second time."""
    links = sorted(name for name in names if not is_bucket(name) and os.path.islink(name))
    if not links:
        return []
    of_links = set(links)
    read = {os.path.realpath(n) for n in names if not is_bucket(n) and n not in of_links}
    left = []
    for name in links:
        real = os.path.realpath(name)
        if real in read:
            left.append(name)
        read.add(real)
    if left:
        told = _some([f"{name} is a link to {os.path.realpath(name)}" for name in left])
        warnings.warn(
            f"{len(left)} of the files that were found are found by another name, too, and are read"
            f" once:{told}",
            InputWarning,
            stacklevel=2,
        )
    return left


def _in_bucket(url: str, suffixes: tuple[str, ...]) -> dict[str, int]:
    """The objects of a URL, a pattern or a prefix, with their sizes."""
    place = parsed(url)
    with reading(place.plain):
        if (found := objects.info(url)) is not None:
            return {found.name: found.size}
        if objects.has_magic(place.key):
            there = {each.name: each.size for each in objects.matching(place)}
            if not there:
                raise InputError(f"There is no object {place.plain}.", hint="Check the pattern.")
            return {name: there[name] for name in _unmarked(url, there, suffixes)}
        sizes = {each.name: each.size for each in objects.below(place)}
    if not sizes:
        raise InputError(
            f"There is no object {place.plain}, and none below it.",
            hint="Check the URL, and the region and endpoint that the environment says.",
        )
    depth = len(place.plain)
    shown = {n: n for n in sizes if not _hidden(parsed(n).plain[depth:].strip("/"))}
    return {name: sizes[name] for name in _wanted(url, shown, suffixes)}


def _hidden(path: str) -> bool:
    """Whether a part of a path begins as those of temporary files, manifests and markers do."""
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _files_of(path: str, suffixes: tuple[str, ...]) -> list[str]:
    if os.path.isdir(path):
        return _wanted(path, _walk(path), suffixes)
    # A file may have a name that reads like a pattern.
    if os.path.lexists(path):
        return [path]
    found = [name for name in glob.glob(path, recursive=True) if not os.path.isdir(name)]
    if not found:
        raise InputError(
            f"There is no file {path}.",
            hint=f"Check the path; the process runs in {os.getcwd()}.",
        )
    return _unmarked(path, found, suffixes)


def _unmarked(pattern: str, found: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    """What a pattern finds, without manifests, markers and temporary files: names that begin with
    `_`, unless the pattern does, too. Those that end as files do that are read are named."""
    own = os.path.basename(pattern).startswith("_")
    shown = [name for name in found if own or not os.path.basename(name).startswith("_")]
    left = sorted(
        name
        for name in set(found).difference(shown)
        if has_suffix(name, suffixes) and not os.path.basename(name).startswith("_manifest-")
    )
    folder = os.path.dirname(pattern)
    advice = f"A pattern for such names begins so, too: {folder}/_*. Without a pattern, {folder} is"
    advice += " read with the folders in it."
    if not shown:
        raise InputError(f"{pattern} finds only files whose names begin with _.", hint=advice)
    if left:
        warnings.warn(
            f"{len(left)} of {len(left) + len(shown)} files of {pattern} are not read: their"
            f" names begin with _:{_some(left)}\n{advice}",
            InputWarning,
            stacklevel=2,
        )
    return shown


def has_suffix(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a name ends as those of the files of a folder do that are read."""
    name = parsed(name).key if is_bucket(name) else name
    return name.lower().endswith(tuple(s + packed for s in suffixes for packed in PACKED))


def _wanted(folder: str, paths: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    """The files of a folder that are read; the others are named."""
    found: list[str] = []
    left: list[str] = []
    for path in paths:
        (found if has_suffix(path, suffixes) else left).append(path)
    some = _some([os.path.relpath(path, folder) for path in sorted(left)])
    advice = f"Files of other names are read by a pattern: {os.path.join(folder, '*')}."
    if not found:
        raise InputError(
            f"There is no file *{' or *'.join(suffixes)} in the folder {folder}."
            + (f" It has files of other names:{some}" if left else ""),
            hint=advice,
        )
    if left:
        warnings.warn(
            f"{len(left)} of {len(left) + len(found)} files in {folder} are not read, because their"
            f" names do not end in {' or '.join(suffixes)}:{some}\n{advice}",
            InputWarning,
            stacklevel=2,
        )
    return found


def _some(names: Sequence[str]) -> str:
    """Some of many names, a line each."""
    shown = "".join(f"\n    {name}" for name in names[:SHOWN])
    return shown + (f"\n    and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _walk(folder: str) -> Iterator[str]:
    """The visible files below a folder; one whose name starts with `.` or `_` is a temporary file,
    a manifest or a marker."""
    seen: set[str] = set()

    def failed(error: OSError) -> None:
        with reading(error.filename or folder):
            raise error

    for at, folders, names in os.walk(folder, onerror=failed, followlinks=True):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "_")) and not _loops(os.path.join(at, name), seen)
        )
        for name in sorted(names):
            path = os.path.join(at, name)
            if name.startswith((".", "_")):
                continue
            if os.path.islink(path) and not os.path.exists(path):
                raise InputError(
                    f"{path} is a link to {os.readlink(path)}, which is not there.",
                    hint="Mend or remove the link.",
                )
            if os.path.isfile(path):
                yield path


def _loops(folder: str, seen: set[str]) -> bool:
    """Whether a folder was read by another name already, or holds itself."""
    real = os.path.realpath(folder)
    if real in seen or Path(folder).parent.resolve().is_relative_to(real):
        return True
    seen.add(real)
    return False


def hive_values(path: str) -> dict[str, str | None]:
    """What folders on the way to a file are called `name=value` for: columns whose values are in
    the path, as Hive, Spark and pandas write them."""
    from urllib.parse import unquote

    found: dict[str, str | None] = {}
    for part in Path(path).parts[:-1]:
        name, marked, value = part.partition("=")
        if marked and name:
            text = unquote(value)
            found[unquote(name)] = None if text == "__HIVE_DEFAULT_PARTITION__" else text
    return found
