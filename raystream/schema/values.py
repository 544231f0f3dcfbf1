"""Whether Python values are of a declared type, as deep as it goes.

What is stored comes back in the types of its annotation (`raystream.schema.objects`): a value of
another type would come back as something else, or not at all. State has to come back as it was, so
it holds the very types; what a record holds is stored before anybody sees it, so it may be `alike`:
a tuple for a list, a Counter for a dict. Values are looked at by the column, a level at a time, so
that most of the work is not Python's.
"""

from __future__ import annotations

import enum
import math
import types
import typing
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np

from raystream.schema.records import record_hints
from raystream.schema.types import Width

Check = Callable[[Sequence[Any]], bool]

_ALLOWED: dict[Any, tuple[type, ...]] = {
    int: (int,),
    float: (float, int),
    bool: (bool,),
    str: (str,),
    bytes: (bytes,),
    types.NoneType: (types.NoneType,),
}


@cache
def check_of(hint: Any, *, alike: bool = False) -> Check:
    """What says whether all of some values are of the type that is declared."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        width = next((mark.dtype for mark in args[1:] if isinstance(mark, Width)), "i8")
        return _narrow(check_of(args[0], alike=alike), np.dtype(width))
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in args if a is not types.NoneType]
        if len(rest) == 1 and len(args) == 2:
            return _optional(check_of(rest[0], alike=alike))
        checks = _either([check_of(a, alike=alike) for a in args])
        return checks if alike else lambda values: checks(values) and _as_it_is(values)
    if hint in _ALLOWED:
        if alike:
            return lambda values: all(issubclass(k, _ALLOWED[hint]) for k in set(map(type, values)))
        exact = {*_ALLOWED[hint], *((bool,) if int in _ALLOWED[hint] else ())}
        return lambda values: set(map(type, values)) <= exact
    kind = origin or hint
    if not isinstance(kind, type) or (alike and kind in (typing.Any, object)):
        return _anything if alike else _as_it_is
    if issubclass(kind, enum.IntEnum):
        if alike:
            return lambda values: members(kind, values)
        return lambda values: set(map(type, values)) <= {kind}
    return _container(kind, args, alike)


def all_of(kinds: set[type], allowed: tuple[type, ...]) -> bool:
    """Whether types stand for those that are allowed. NumPy's numbers do not: they reckon otherwise
    than Python's, which they would be after a restore."""
    return all(issubclass(k, allowed) and not issubclass(k, np.generic) for k in kinds)


def members(kind: type[enum.IntEnum], values: Sequence[Any]) -> bool:
    """Whether all values are members of an enumeration, or their numbers."""
    kinds = set(map(type, values))
    return kinds <= {kind} or (
        all_of(kinds, (int,)) and all(v in kind._value2member_map_ for v in set(values))
    )


def shown(kind: type[enum.IntEnum]) -> str:
    """The members of an enumeration, for people."""
    return f"{kind.__name__} has {', '.join(f'{m.name}={m.value}' for m in kind)}."


def _optional(check: Check) -> Check:
    return lambda values: check([v for v in values if v is not None])


def _either(checks: list[Check]) -> Check:
    return lambda values: all(any(c([v]) for c in checks) for v in values)


def _narrow(check: Check, dtype: np.dtype[Any]) -> Check:
    """Of numbers that are stored in fewer than 64 bits."""
    if dtype.itemsize == 8:
        return check
    if dtype.kind == "i":
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        return lambda values: check(values) and all(least <= v <= most for v in values)
    large = float(np.finfo(dtype).max)
    return lambda values: check(values) and not any(large < abs(v) < math.inf for v in values)


def _anything(values: Sequence[Any]) -> bool:
    return True


_NESTED = 512
"""So deep msgpack goes, about."""
_PLAIN = {int, float, bool, str, bytes, types.NoneType, list, dict}


def _as_it_is(values: Sequence[Any]) -> bool:
    """Whether values come back as they are though nothing says what they are: no tuples, which come
    back as lists, nor members of an enumeration, which come back as numbers."""
    for _ in range(_NESTED):  # what holds itself is nested without end
        if not values:
            return True
        if not set(map(type, values)) <= _PLAIN:
            return False
        lists = [v for v in values if type(v) is list]
        dicts = [v for v in values if type(v) is dict]
        if not all(type(k) in _PLAIN - {list, dict} for d in dicts for k in d):
            return False
        values = list(chain(*lists, *(d.values() for d in dicts)))
    return False


def _container(kind: type, args: tuple[Any, ...], alike: bool) -> Check:
    """Of exactly this type: one that behaves otherwise, such as a Counter, would not come back."""
    inner = _inner(kind, args, alike)
    if alike:
        kinds = (dict,) if kind is dict else (list, tuple)
        return lambda values: (
            all(issubclass(k, kinds) for k in set(map(type, values))) and inner(values)
        )
    return lambda values: set(map(type, values)) <= {kind} and inner(values)


def _inner(kind: type, args: tuple[Any, ...], alike: bool) -> Check:
    check = partial(check_of, alike=alike)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _columns([check(hint) for hint in record_hints(kind).values()])
    if kind is tuple and args and args[-1] is not ...:
        return _columns([check(a) for a in args])
    if kind is dict and args:
        keys, items = check(args[0]), check(args[1])
        return lambda values: (
            keys(list(chain.from_iterable(values)))
            and items(list(chain.from_iterable(v.values() for v in values)))
        )
    if args:
        items = check(args[0])
        return lambda values: items(list(chain.from_iterable(values)))
    if alike:
        return _anything
    if kind is dict:
        return _as_it_is
    return lambda values: _as_it_is(list(chain.from_iterable(values)))


def _columns(checks: list[Check]) -> Check:
    """Of tuples of one length, place by place."""

    def check(values: Sequence[Any]) -> bool:
        if not set(map(len, values)) <= {len(checks)}:
            return False
        columns = zip(*values, strict=True)
        return all(c(column) for c, column in zip(checks, columns, strict=bool(values)))

    return check
