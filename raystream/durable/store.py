"""Stores: whole objects under names, in a folder or a bucket, where they outlive the cluster.

    store = open_store("s3://bucket/prefix")        or a folder, or file:///a/folder
    store.put("job/cuts/000001", data)              all of it or nothing

A name is a relative path of plain words. A store holds no state but its connections: any number of
processes may open the same one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Protocol

from raystream.errors import ConfigError, InternalError, JobError, OutputError, StateError
from raystream.filesystem import absolute, make_folder, reason, scheme_of, sync
from raystream.plugins import STORES, Registry

Data = bytes | memoryview

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What file systems say that have no hard links."""


class Store(Protocol):
    """Where objects are kept. All raise JobError when the place cannot be reached or read, and
    OutputError when it cannot be written."""

    url: str

    def put(self, name: str, data: Data) -> None:
        """Store an object; one of the same name is replaced. Once it returns, the object stays."""
        ...

    def claim(self, name: str, data: Data) -> bool:
        """Store an object if there is none of this name; whether this call did it."""
        ...

    def get(self, name: str) -> Data:
        """The content of an object.

        Raises:
            StateError: it is not there.
        """
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """The sizes in bytes of all objects below a folder, by name."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects in this order; those that are not there are left out."""
        ...

    def sweep(self, folder: str) -> None:
        """Remove what writers that died in the middle of a `put` left below a folder."""
        ...


_SCHEMES: Registry[Callable[[str], Store]] = Registry(
    STORES,
    {
        "file": "raystream.durable.store:open_folder",
        "s3": "raystream.durable.s3:open_url",
    },
)
"""What opens a store, by the scheme of its URL."""


def open_store(url: str | os.PathLike[str], *, make: bool = True) -> Store:
    """The store at a folder, `file:///folder`, `s3://bucket/prefix`, or at a URL of a scheme that
    another package adds (`raystream.plugins`).

    Args:
        make: whether a folder that is not there is made. Where nothing is to be written, it holds
            nothing.

    Raises:
        ConfigError: the scheme is not known; the place is not there, or may not be used; or what it
            needs is not installed.
    """
    text = os.fspath(url)
    scheme = scheme_of(text)
    if scheme is None:
        return FolderStore(Path(absolute(text)), make=make)
    if scheme == "file":
        return open_folder(text, make=make)
    if (opened := _SCHEMES.get(scheme)) is None:
        known = [f"{name}://" for name in _SCHEMES.known()]
        raise not_a_store(text, f"Known are folders, {', '.join(known)}. ")
    return opened(text)


def open_folder(url: str, *, make: bool = True) -> FolderStore:
    """The store at `file:///folder`; see `open_store`."""
    try:
        folder = absolute(url)
    except ConfigError:
        raise not_a_store(url) from None
    return FolderStore(Path(folder), make=make)


def not_a_store(url: str, known: str = "") -> ConfigError:
    """What is raised for a URL at which no store can be."""
    return ConfigError(
        f"{url} is not a place to store to",
        hint=f"{known}Name a folder, file:///folder or s3://bucket/prefix.",
    )


def missing(url: str, name: str) -> StateError:
    """What `get` raises for an object that is not there."""
    return StateError(f"{url}/{name} is not there.")


class FolderStore:
    """Objects as files. A file appears under its name when all of it is on the disk.

    For a job on several nodes the folder is one that all of them share.

    Args:
        make: whether the folder is made now; otherwise the first object that is stored makes it.

    Raises:
        ConfigError: the folder cannot be made.
    """

    def __init__(self, folder: Path, *, make: bool = True) -> None:
        self.folder = folder
        self.url = str(folder)
        if not make:
            return
        try:
            make_folder(folder)
        except OSError as error:
            raise ConfigError(
                f"{folder} cannot be made: {reason(error)}",
                hint="Name a folder that can be written.",
            ) from error

    def put(self, name: str, data: Data) -> None:
        """See `Store`."""
        with self._temporary(name, data) as temporary:
            os.replace(temporary, self._path(name))

    def claim(self, name: str, data: Data) -> bool:
        """See `Store`."""
        with self._temporary(name, data) as temporary:
            try:
                _link(temporary, self._path(name), data)
            except FileExistsError:
                return False
        return True

    def get(self, name: str) -> Data:
        """See `Store`."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            raise missing(self.url, name) from None
        except OSError as error:
            raise JobError(f"{self.url}/{name} cannot be read: {reason(error)}.") from error

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Store`."""
        found = {}
        for path in self._files(folder):
            if not path.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    found[str(path.relative_to(self.folder).as_posix())] = path.stat().st_size
        return found

    def delete(self, names: Iterable[str]) -> None:
        """See `Store`. Folders that become empty go, too."""
        for name in names:
            path = self._path(name)
            with self._writing(name):
                path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty, or gone
                for folder in path.parents:
                    if folder == self.folder:
                        break
                    folder.rmdir()

    def sweep(self, folder: str) -> None:
        """See `Store`."""
        for path in self._files(folder):
            if path.name.startswith("."):
                with self._writing(path.name):
                    path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if not parts or any(p in ("/", "..") or p.startswith(".") for p in parts):
            raise InternalError(f"{name!r} is not the name of an object")
        return self.folder.joinpath(*parts)

    def _files(self, folder: str) -> list[Path]:
        def failed(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):  # deleted meanwhile
                raise JobError(f"{self.url}/{folder} cannot be read: {reason(error)}.") from error

        walk = os.walk(self._path(folder), onerror=failed)
        return sorted(Path(at, name) for at, _, names in walk for name in names)

    @contextmanager
    def _temporary(self, name: str, data: Data) -> Iterator[str]:
        """A file beside the one to be, whole and on the disk; what was done with it is, too."""
        folder = self._path(name).parent
        with self._writing(name):
            make_folder(folder)
            handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.chmod(temporary, 0o644)  # as other files, not as a secret
                yield temporary
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
            sync(folder)

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"{self.url}/{name} cannot be written: {reason(error)}.",
                hint="What was stored before is whole.",
            ) from error


def _link(whole: str, path: Path, data: Data) -> None:
    """Give a file a name that none has yet.

    Where there are no links (shares of Windows, buckets that are mounted) the name comes first: a
    process that dies before the content is there has claimed the name all the same.

    Raises:
        FileExistsError: one has.
    """
    try:
        os.link(whole, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with path.open("xb") as file:
            file.write(data)
        sync(path)
