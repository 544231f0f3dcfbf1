"""How files come to their places: in a folder by renaming, in a bucket by an upload.

Both ways a file is there as a whole or not at all, and one of the same name is replaced. A bucket
has no renaming. So what is not finished lies on this machine, and is uploaded under its last name;
the store shows an object when its last byte has come.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from raystream.filesystem import make_folder, sync, try_writing
from raystream.io.buckets import objects
from raystream.io.buckets.paths import AnyPlace, BucketPath

_PROBE = ".raystream-check"


def make(folder: AnyPlace) -> None:
    """Make a folder. A prefix is there when objects are."""
    if isinstance(folder, Path):
        make_folder(folder)


def put(path: AnyPlace, text: str, temporary: str, *, lasting: bool) -> None:
    """Replace a file by one with this text.

    Args:
        temporary: how the name begins of what is not finished. lasting: whether it has to outlive
            the power. An object does, as soon as the store has answered.
    """
    if isinstance(path, BucketPath):
        path.write_bytes(text.encode())
        return
    handle, name = tempfile.mkstemp(prefix=temporary, suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        if lasting:
            sync(name)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    if lasting:
        sync(path.parent)


def unfinished(folder: AnyPlace, prefix: str) -> Path:
    """A new file, whose name begins so, for what is to come into a folder later."""
    directory = folder if isinstance(folder, Path) else None  # that of the system
    handle, name = tempfile.mkstemp(prefix=prefix, suffix=".tmp", dir=directory)
    os.close(handle)
    os.chmod(name, 0o644)  # as other files, not as a secret
    return Path(name)


def move_in(made: Path, path: AnyPlace, *, lasting: bool) -> None:
    """Give a finished file its place. Its name is on the disk when the folder is (`settle`)."""
    if isinstance(path, BucketPath):
        objects.upload(str(made), os.fspath(path))
        made.unlink()
        return
    if lasting:
        sync(made)
    os.replace(made, path)


def settle(folder: AnyPlace) -> None:
    """Have the names of a folder outlive the power."""
    if isinstance(folder, Path):
        sync(folder)


def try_place(folder: AnyPlace) -> bool:
    """See whether a folder can be written, leave it as it was, and say whether it would be made.

    Raises:
        OSError: it cannot.
    """
    if isinstance(folder, Path):
        return try_writing(folder) != folder
    probe = folder / _PROBE
    probe.write_bytes(b"")
    probe.unlink()
    return False
