"""Processing state with Python rows: one `rs.State` object per key, or key and window.

A row that was handed out is dirty: its `_mark` is the last epoch that touched it. Rows that were
removed are remembered with their epoch until a stored cut has seen them go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from raystream.schema.state import State, StateSchema


class ObjectTable:
    """Rows by key; for windows by (key, window start). `ends`: of sessions."""

    def __init__(self, schema: StateSchema) -> None:
        self.schema = schema
        self.rows: dict[Any, State] = {}
        self.ends: dict[Any, int] = {}
        self.removed: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def remove(self, key: Any, epoch: int) -> None:
        """Remove a row; a later delta will say so."""
        del self.rows[key]
        self.ends.pop(key, None)
        self.removed[key] = epoch

    def gone(self, since: int) -> Iterable[Any]:
        """Keys whose rows were removed after `since` and are not back, in key order."""
        return sorted(k for k, e in self.removed.items() if e > since and k not in self.rows)

    def settled(self, epoch: int) -> None:
        """A cut at `epoch` is stored: removals up to it need not be remembered."""
        self.removed = {k: e for k, e in self.removed.items() if e > epoch}
