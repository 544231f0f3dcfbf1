"""Paths, and files and folders that stay: what more than one layer needs of the file system."""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from raystream.errors import ConfigError

_CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems say that cannot put a folder on the disk by itself."""


def absolute(path: str | os.PathLike[str]) -> str:
    """A path or pattern that means the same in every process of a job; `file:///a` is `/a`.

    Raises:
        ConfigError: it is empty, no text, or a URL of another scheme.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str):
        raise ConfigError(
            f"{text!r:.80} is no path: it is a {type(text).__name__}.",
            hint="Pass a str or a pathlib.Path.",
        )
    if not text.strip():
        raise ConfigError(
            "The path is empty, as of a variable that is not set.",
            hint='The current folder is ".".',
        )
    if "\0" in text or not _encodable(text):
        raise ConfigError(f"{text!r:.80} is no path: a path has no such character.")
    if (scheme := scheme_of(text)) is not None:
        text = _of_url(text, scheme)
    return os.path.abspath(os.path.expanduser(text))


def seen_file(name: str) -> str:
    """How long a file of this machine is and when it was changed last, in words; empty for what is
    none. Another file of this name says something else."""
    if not os.path.isabs(name):
        return ""
    try:
        found = os.stat(name)
    except OSError:
        return ""
    if not stat.S_ISREG(found.st_mode):
        return ""
    seconds, rest = divmod(found.st_mtime_ns, 10**9)
    changed = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{found.st_size:,} bytes, changed {changed}.{rest:09d} UTC"


def _encodable(text: str) -> bool:
    """Whether all of a path can be shown: half of a surrogate pair is the half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def scheme_of(path: str) -> str | None:
    """`s3` of `s3://bucket/prefix`; None of a plain path."""
    scheme, marked, _ = path.partition("://")
    return scheme if marked and scheme.replace("+", "").isalnum() else None


def _of_url(url: str, scheme: str) -> str:
    parts = urlsplit(url)
    if scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return unquote(parts.path)
    raise ConfigError(
        f"{scheme}://{parts.hostname or ''}{parts.path} cannot be used here: a place is a path,"
        " such as /data/rows, or file:///data/rows. Files may be at s3://, gs:// and az://, too.",
        hint=f"Copy the data, or mount what is behind {scheme}://."
        if scheme != "file"
        else "A file URL has three slashes before the path, and no host.",
    )


def reason(error: OSError) -> str:
    """What the system says, in few words and without the path."""
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    first, *more = str(error).splitlines() or [type(error).__name__]
    causes = [line for line in more if "\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}" in line]
    if causes:  # a chain, as libraries in Rust tell it: the last one is the reason
        first += f": {re.sub(_ARROW, '', causes[-1]).strip()}"
    return first.rstrip(".")


_ARROW = "\x1b\\[[0-9;]*m|\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}"
"""What stands before such a cause, and its colour."""


def sync(path: str | os.PathLike[str]) -> None:
    """Put the content of a file, or the names in a folder, on the disk: they outlive the power."""
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


def try_writing(folder: Path) -> Path:
    """Make a file in a folder, or in the nearest one above it that is there; nothing stays of it.

    Returns the folder where the file was.

    Raises:
        OSError: no file can be made there.
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with tempfile.TemporaryFile(dir=folder):
        pass
    return folder
