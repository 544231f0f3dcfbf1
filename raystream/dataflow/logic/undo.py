"""A table of Python rows that can undo what was done for one record."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

from raystream.schema.state import State
from raystream.state.images.row_shape import RowShape
from raystream.state.tables.object_table import ObjectTable

_FIXED = (int, float, str, bytes, bool, type(None))
"""Values of these types cannot change."""


class _Saved(NamedTuple):
    """What was known of a key."""

    row: State
    """Its row, which was changed since."""
    values: dict[str, Any]
    """Copies of the fields of the row."""
    mark: int
    """The mark of the row."""


class UndoTable(ObjectTable):
    """Between `begin` and `end` it notes what it holds of each key that is asked for."""

    def __init__(self, shape: RowShape, groups: int) -> None:
        super().__init__(shape, groups)
        self._names = [f.name for f in shape.state.fields]
        self._saved: dict[Any, tuple[_Saved | None, int | None, int | None]] = {}
        self._noting = False
        self.get = self._get  # type: ignore[assignment]

    def begin(self) -> None:
        """Note from now on."""
        self._saved.clear()
        self._noting = True

    def end(self) -> None:
        """Note nothing more: what was done stays."""
        self._saved.clear()
        self._noting = False

    def undo(self) -> dict[Any, bool]:
        """Undo what was done since `begin`. Returns the keys, and whether each has a row again."""
        found = {}
        for key, (saved, end, removed) in self._saved.items():
            found[key] = saved is not None
            if saved is None:
                self.rows.pop(key, None)
            else:
                for name, value in saved.values.items():
                    setattr(saved.row, name, value)
                saved.row._mark = saved.mark
                self.rows[key] = saved.row
            _put(self.ends, key, end)
            _put(self.removed, key, removed)
        self.end()
        return found

    def _note(self, key: Any) -> None:
        if not self._noting or key in self._saved:
            return
        row, saved = self.rows.get(key), None
        if row is not None:
            values = {name: _copied(getattr(row, name)) for name in self._names}
            saved = _Saved(row, values, row._mark)
        self._saved[key] = saved, self.ends.get(key), self.removed.get(key)

    def _get(self, key: Any, /) -> State | None:
        self._note(key)
        return self.rows.get(key)

    def remove(self, key: Any, epoch: int) -> None:
        """As of any table."""
        self._note(key)
        super().remove(key, epoch)

    def move(self, key: Any, to: Any, epoch: int) -> None:
        """As of any table."""
        self._note(to)
        super().move(key, to, epoch)


def _put(values: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def _copied(value: Any) -> Any:
    return value if type(value) in _FIXED else deepcopy(value)
