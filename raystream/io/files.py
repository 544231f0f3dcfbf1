"""Files as splits: one split per file, in the order of their names. The list is taken once."""

from __future__ import annotations

import errno
import glob
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from raystream.errors import InputError
from raystream.schema.types import Split

BATCH_ROWS = 65_536
"""Rows of a batch that a source yields, at most."""

_CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems say that cannot have a folder put on the disk by itself."""


def absolute(path: str | os.PathLike[str]) -> str:
    """A path or pattern that means the same in every process of a job."""
    return os.path.abspath(os.path.expanduser(os.fspath(path)))


def splits_of(
    pattern: str, suffixes: tuple[str, ...], *, may_be_empty: bool = False
) -> Sequence[Split]:
    """The files of a path, a glob pattern or a folder (then: of these suffixes), sorted by name.

    Args:
        may_be_empty: whether a file of no bytes is one, as it is of text without lines.

    Raises:
        InputError: there is none, or one is empty or cannot be read.
    """
    if os.path.isdir(pattern):
        found = [
            str(p)
            for p in Path(pattern).rglob("*")
            if p.name.endswith(suffixes) and p.is_file() and not _hidden(p, pattern)
        ]
        sought = f"file *{' or *'.join(suffixes)} in the folder {pattern}"
        advice = f"Files of other names are read by a pattern: {os.path.join(pattern, '*')}."
    else:
        # A file may have a name that reads like a pattern.
        found = [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)
        found = [name for name in found if not os.path.isdir(name)]
        sought = f"file {pattern}"
        advice = f"Check the path; the process runs in {os.getcwd()}."
    if not found:
        raise InputError(f"There is no {sought}.", hint=advice)
    for name in found:
        with reading(name):
            if os.path.getsize(name) == 0 and not may_be_empty:
                raise InputError(f"{name} is empty.")
    return [Split(name) for name in sorted(found)]


def _hidden(path: Path, folder: str) -> bool:
    """Whether a name on the way starts with `.` or `_`: temporary files, manifests, markers."""
    return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turns what the system says of a file into an `InputError` that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{name} is not there, or is no longer there.") from error
    except (EOFError, zlib.error) as error:
        raise InputError(f"{name} is cut off or damaged: {error}.") from error
    except OSError as error:
        raise InputError(f"{name} cannot be read: {reason(error)}.") from error


def changed(name: str, position: int) -> InputError:
    """What is raised when a split does not hold what was read of it up to a position."""
    return InputError(
        f"{name} is not what it was: it was read up to position {position}, and ends before that or"
        " goes on otherwise.",
        hint="Put back what was there when the job began; or begin anew.",
    )


def reason(error: OSError) -> str:
    """What the system says, in few words and without the path."""
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return str(error).partition("\n")[0].rstrip(".")


def sync(path: str | os.PathLike[str]) -> None:
    """Have the content of a file, or the names in a folder, on the disk: they outlive the power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC or not stat.S_ISDIR(os.fstat(handle).st_mode):
            raise
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, so that they stay."""
    if not folder.is_dir():
        if not folder.parent.exists():
            make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)
