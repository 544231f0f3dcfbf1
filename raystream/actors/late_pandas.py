"""PyArrow without pandas, until somebody needs pandas.

For its first array PyArrow looks whether there is pandas by importing it: a quarter of a second of
CPU in each process of a job, and hardly any has a use for it. Here this look finds none. When
pandas is imported after all, by the user's code or by PyArrow itself for `to_pandas`, PyArrow is
told, and from then on knows its frames and series as ever.
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
    """Make PyArrow's first array without pandas; nothing where pandas is imported already.

    To be called while no other thread imports anything.
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
    """Refuses pandas for a while; later tells PyArrow when pandas has been imported."""

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
    """Have PyArrow look again whether there is pandas; one that is too old it does without."""
    shim: Any = pa.lib
    with suppress(ImportError):
        _ = shim._pandas_api.pd  # whoever asks for it makes PyArrow import it
