"""PyArrow without pandas, until something needs pandas.

For its first array PyArrow imports pandas, to see whether it is there: a quarter of a second of CPU
in each process of a job, and hardly any process uses pandas. `put_off_pandas` makes that import
fail. When pandas is imported later, by the user's code or by PyArrow itself for `to_pandas`,
PyArrow looks again, and then knows frames and series as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pyarrow as pa

PANDAS = "pandas"


def put_off_pandas() -> None:
    """Make PyArrow's first array without pandas. Does nothing where pandas is imported already.

    Call this while no other thread imports anything.
    """
    if PANDAS in sys.modules or any(isinstance(f, _Finder) for f in sys.meta_path):
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        finder.refuses = False


class _Finder:
    """An import hook that refuses pandas at first, and later tells PyArrow when it is imported."""

    refuses = True

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module is, for Python's import; None to leave that to others."""
        if name != PANDAS:
            return None
        if self.refuses:
            raise ModuleNotFoundError(f"{PANDAS} is put off", name=PANDAS)
        others = (f for f in sys.meta_path if f is not self and hasattr(f, "find_spec"))
        spec = next((s for f in others if (s := f.find_spec(name, path, target))), None)
        if spec is not None and spec.loader is not None:
            self._tell_after(spec.loader)
        return spec

    def _tell_after(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            # A new list: another thread may be going through this one, and would skip a finder.
            sys.meta_path = [f for f in sys.meta_path if f is not self]
            tell()

        loader.exec_module = exec_module


def tell() -> None:
    """Have PyArrow look again whether there is a pandas that is new enough for it."""
    shim: Any = pa.lib
    with suppress(ImportError):
        _ = shim._pandas_api.pd  # to read this attribute makes PyArrow import pandas
