"""Numba's `njit` for functions that many processes compile at the same moment and keep on disk.

Numba calls the files of a function's machine code 1, 2, 3, by which types come first. All processes
of a job begin at once, and on a machine where nothing is kept yet two of them may call different
code by the same number: what is kept of one function would then be the code of other types, for
good. Here no two files are called the same.

Importing this module imports Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import numba

NAMED = ".nbi"
"""How the name of the file ends that says which file is whose."""


def kept_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with these options, and what it compiles is kept."""

    def jitted(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options, cache=True)(function)
        keep_apart(dispatcher._cache._cache_file)
        return dispatcher

    return jitted


def keep_apart(file: Any) -> None:
    """Have an `IndexDataCacheFile` of Numba's give every file that it writes a name of its own."""
    file._data_name = partial(_own_name, file._index_name.removesuffix(NAMED))


def _own_name(function: str, number: int) -> str:
    return f"{function}.{number}-{uuid4().hex}.nbc"
