"""Numba's `njit` for functions that many processes need at the same moment: one process compiles,
the others load the machine code that it has kept.

Machine code is found by the content of the source files that it comes from, not by their place: a
working directory that is submitted with raystream in it is a copy elsewhere. Numba alone would also
not notice that a function in another file has changed.

Numba names the files of a function's machine code 1, 2, 3, in the order in which types come, and
writes into an index which file is whose before the files are written. Two processes without a lock
(not every file system has locks) may give the same number to different code, and the index would
then name the code of other types for good. Here a file is named by its types, and the index has
only files that are there.

Importing this module imports Numba.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.compiler_lock import global_compiler_lock

from raystream.native.code_cache import cache_folder, locked
from raystream.native.thread_priority import be_urgent


def _content() -> str:
    """A hash of all that goes into machine code, besides what Numba looks at itself."""
    ours = Path(__file__).parent.parent
    kernels = sorted((ours / "state").rglob("*kernels.py"))
    files = [*kernels, ours / "state/keys.py", ours / "schema/types.py"]
    versions = f"{platform.python_version()} {np.__version__} {numba.__version__}"
    parts = [versions.encode(), *(file.read_bytes() for file in (Path(__file__), *files))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


# Read at once: later the files may be those of another version than what this process imported.
_CONTENT = _content()


def kept_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with these options. The machine code is kept on disk."""

    def jitted(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        cache: Any = _Cache
        dispatcher._cache = cache(function)
        keep_apart(dispatcher._cache._cache_file)
        dispatcher.compile = partial(_compile, dispatcher)
        return dispatcher

    return jitted


class _Locator(_CacheLocator):
    """Tells Numba where a function's machine code is kept."""

    def __init__(self) -> None:
        self._folder = cache_folder() / f"kernels-{_CONTENT}"

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return _CONTENT

    def get_disambiguator(self) -> str:
        return ""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        return cls()


class _Impl(CompileResultCacheImpl):
    _locator_classes: list[Any] = [_Locator]  # noqa: RUF012


class _Cache(FunctionCache):
    """A cache of machine code. Where nothing can be kept, each process compiles for itself."""

    _impl_class = _Impl

    @contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:
        with suppress(OSError):
            yield

    def has(self: Any, sig: Any, codegen: Any) -> bool:
        with suppress(OSError):
            return self._index_key(sig, codegen) in self._cache_file._load_index()
        return False


def _compile(dispatcher: Any, types: Any) -> Any:
    """Replaces a dispatcher's `compile`: code that is not on disk yet is compiled under a lock.

    Numba's own lock is taken first, as when a function is compiled because its caller is: so two
    threads that take both locks cannot wait for each other.
    """
    compiled = partial(type(dispatcher).compile, dispatcher)
    cache = dispatcher._cache
    with global_compiler_lock:
        if types in dispatcher.overloads or cache.has(types, dispatcher.targetctx.codegen()):
            return compiled(types)
        with suppress(OSError):
            cache._impl.locator.ensure_cache_path()
        with locked(Path(f"{cache._cache_file._index_path}.lock")):
            be_urgent()
            return compiled(types)


def keep_apart(file: Any) -> None:
    """Have an `IndexDataCacheFile` of Numba name each file of machine code by its source and types,
    not by a number that another process may give, too."""
    file.save = partial(_save, file)


def _save(file: Any, key: Any, data: Any) -> None:
    content = hashlib.sha256(file._dump((file._source_stamp, key))).hexdigest()[:32]
    name = f"{file._index_name.rpartition('.')[0]}.{content}.nbc"
    file._save_data(name, data)
    file._save_index(file._load_index() | {key: name})
