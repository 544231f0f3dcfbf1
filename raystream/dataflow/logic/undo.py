"""A table of Python rows that can undo what was done for one record."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple

from raystream.schema.fields import is_record, unwrap
from raystream.schema.kinds import kind_of
from raystream.schema.records import record_hints
from raystream.schema.state import State
from raystream.state.images.row_shape import RowShape
from raystream.state.tables.object_table import ObjectTable

_FIXED = (int, float, str, bytes, bool, type(None))
"""Values of these types cannot change."""

Copier = Callable[[Any], Any]


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
        self._copiers = {f.name: copier(f.hint) for f in shape.state.fields}
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
            values = {name: copy(getattr(row, name)) for name, copy in self._copiers.items()}
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


@cache
def copier(hint: Any) -> Copier:
    """A function that copies values of a type. A change of the copy does not change the original.

    Values that cannot change are not copied. Each record copies its whole row, so a long list of
    such values is copied by `list.copy`: `deepcopy` goes through it item by item.
    """
    base, marks, _ = unwrap(hint)
    if typing.get_origin(base) in (typing.Union, types.UnionType):
        parts = [copier(part) for part in typing.get_args(base)]
        return _same if all(part is _same for part in parts) else _deep
    if base in _FIXED or kind_of(base, marks) is not None:
        return _same
    kind, args = typing.get_origin(base) or base, typing.get_args(base)
    if kind is list and args:
        return _copier(list, _same_or_all(copier(args[0])))
    if kind is dict and args:
        return _copier(dict, _same_or_values(copier(args[1])))
    if is_record(kind) or (kind is tuple and args):
        inner = record_hints(kind).values() if is_record(kind) else set(args) - {...}
        return _same if all(copier(h) is _same for h in inner) else _deep
    return _deep


def _same(value: Any) -> Any:
    return value


def _deep(value: Any) -> Any:
    return value if type(value) in _FIXED else deepcopy(value)


def _copier(kind: type, copy: Copier) -> Copier:
    """A function that copies values of one class, and any other value (such as None) whole."""
    return lambda value: copy(value) if type(value) is kind else _deep(value)


def _same_or_all(item: Copier) -> Copier:
    return list.copy if item is _same else lambda values: [item(v) for v in values]


def _same_or_values(item: Copier) -> Copier:
    return dict.copy if item is _same else lambda d: {k: item(v) for k, v in d.items()}
