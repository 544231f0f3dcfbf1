"""Numba's `njit` for functions that many processes compile at the same moment and keep on disk.

Numba calls the files of a function's machine code 1, 2, 3, by which types come first, and says in
an index which is whose before they are written. All processes of a job begin at once, and on a
machine where nothing is kept yet two of them may call different code by the same number: what is
kept of one would then be the code of other types, for good. Here a file is called by its types, and
the index knows only files that are there.

Importing this module imports Numba.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numba


def kept_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with these options, and what it compiles is kept."""

    def jitted(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options, cache=True)(function)
        keep_apart(dispatcher._cache._cache_file)
        return dispatcher

    return jitted


def keep_apart(file: Any) -> None:
    """Have an `IndexDataCacheFile` of Numba's call each file by what is in it."""
    file.save = partial(_save, file)


def _save(file: Any, key: Any, data: Any) -> None:
    content = hashlib.sha256(file._dump((file._source_stamp, key))).hexdigest()[:32]
    name = f"{file._index_name.rpartition('.')[0]}.{content}.nbc"
    file._save_data(name, data)
    file._save_index(file._load_index() | {key: name})
