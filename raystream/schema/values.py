"""Whether Python values are of a declared type, as deep as it goes.

What is stored comes back in the types of its annotation (`raystream.schema.objects`): a value of
another type would come back as something else, or not at all. State has to come back as it was, so
it holds the very types; what a record holds is stored before anybody sees it, so it may be `alike`:
a tuple for a list, a Counter for a dict. Values are looked at by the column, a level at a time, so
that most of the work is not Python's.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np

from raystream.schema.fields import is_record, unwrap
from raystream.schema.kinds import kind_of
from raystream.schema.records import record_hints, record_maker, values_of
from raystream.schema.types import Width
from raystream.schema.value_kind import Misfit

Check = Callable[[Sequence[Any]], bool]

_EXACT: dict[Any, set[type]] = {
    int: {int, bool},
    float: {float, int, bool},
    bool: {bool},
    str: {str},
    bytes: {bytes},
    types.NoneType: {types.NoneType},
}
_ALIKE: dict[Any, tuple[type, ...]] = {
    int: (int, np.integer, np.bool_),
    float: (float, int, np.floating, np.integer, np.bool_),
    bool: (bool, np.bool_),
    str: (str,),
    bytes: (bytes,),
    types.NoneType: (types.NoneType,),
}


@cache
def check_of(hint: Any, *, alike: bool = False) -> Check:
    """What says whether all of some values are of the type that is declared.

    alike: whether they only need to become so when they are stored.
    """
    base, marks, optional = unwrap(hint)
    check = _bare(base, marks, alike)
    return _optional(check) if optional else check


def _bare(hint: Any, marks: tuple[Any, ...], alike: bool) -> Check:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    width = next((mark.dtype for mark in marks if isinstance(mark, Width)), None)
    if width is not None:
        return _narrow(_bare(hint, (), alike), np.dtype(width))
    if (kind := kind_of(hint, marks)) is not None:
        fits = kind.fits if alike else kind.exact
        return lambda values: all(map(fits, values))
    if origin in (typing.Union, types.UnionType):
        return _either([check_of(a, alike=alike) for a in args])
    if origin is typing.Literal:
        known = {(type(a), a) for a in args}
        return lambda values: all((type(v), v) in known for v in values)
    if hint in _EXACT:
        if alike:
            return lambda values: all(issubclass(k, _ALIKE[hint]) for k in set(map(type, values)))
        return lambda values: set(map(type, values)) <= _EXACT[hint]
    kind_ = origin or hint
    if not isinstance(kind_, type) or (alike and kind_ in (typing.Any, object)):
        return _anything if alike else _as_it_is
    return _container(kind_, args, alike)


def _optional(check: Check) -> Check:
    return lambda values: check([v for v in values if v is not None])


def _either(checks: list[Check]) -> Check:
    """Checks values of several types; an enumeration's member is none of its plain type."""
    return lambda values: all(any(c([v]) for c in checks) for v in values)


def _narrow(check: Check, dtype: np.dtype[Any]) -> Check:
    """Checks numbers that are stored in fewer than 64 bits."""
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
    """Checks that values have exactly this type: a subclass, such as Counter,
    would not come back as what it was."""
    inner = _inner(kind, args, alike)
    if alike:
        kinds = (dict,) if kind is dict else (list, tuple)
        if is_record(kind):
            kinds = (*kinds, kind)
        return lambda values: (
            all(issubclass(k, kinds) for k in set(map(type, values))) and inner(values)
        )
    return lambda values: set(map(type, values)) <= {kind} and inner(values)


def _inner(kind: type, args: tuple[Any, ...], alike: bool) -> Check:
    check = partial(check_of, alike=alike)
    if is_record(kind):
        return _columns([check(hint) for hint in record_hints(kind).values()], kind)
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


def _columns(checks: list[Check], kind: Any = tuple) -> Check:
    """Checks tuples of one length, or records, place by place."""

    def check(values: Sequence[Any]) -> bool:
        if not issubclass(kind, tuple):
            values = [v if isinstance(v, list | tuple) else values_of(kind)(v) for v in values]
        if not set(map(len, values)) <= {len(checks)}:
            return False
        columns = zip(*values, strict=True)
        return all(c(column) for c, column in zip(checks, columns, strict=bool(values)))

    return check


def settled(value: Any, hint: Any) -> Any:
    """What a list, dict, tuple or record holds after it was stored, as deep as it goes: Python's
    numbers in the place of NumPy's, times in UTC, decimals of the declared digits, and text or a
    number in the place of a member of an enumeration.

    A value that is nested too deep to be stored, or holds what does not fit, is returned as it is.
    """
    try:
        return _settler(hint)(value)
    except (RecursionError, Misfit):
        return value


Settler = Callable[[Any], Any]


@cache
def _settler(hint: Any) -> Settler:
    base, marks, _ = unwrap(hint)
    if (kind := kind_of(base, marks)) is not None:
        settle: Settler = kind.settle
    elif typing.get_origin(base) in (typing.Union, types.UnionType):
        settle = _settler_of_any(typing.get_args(base))
    elif base in (str, bytes):
        settle = exact_text
    elif base in (int, float):
        settle = _exact_number
    else:
        settle = _settler_inside(typing.get_origin(base) or base, typing.get_args(base))
    return lambda value: None if value is None else settle(value)


def _settler_of_any(parts: tuple[Any, ...]) -> Settler:
    """Settles a value of several types: as the first that takes it as it is, else as one that takes
    what is like it."""
    exact = [check_of(p) for p in parts]
    alike = [(check_of(p, alike=True), _settler(p)) for p in parts]

    def settle(value: Any) -> Any:
        if any(check([value]) for check in exact):
            return value
        value = value.item() if isinstance(value, np.generic) else value
        return next((given(value) for check, given in alike if check([value])), value)

    return settle


def _settler_inside(kind: Any, args: tuple[Any, ...]) -> Settler:
    """Settles what a value holds. A value of another class, such as a Counter for a dict, stays as
    it is: it would be news to who keeps it."""
    if is_record(kind):
        parts = [_settler(h) for h in record_hints(kind).values()]
        make, given = record_maker(kind), values_of(kind)
        return lambda value: (
            make([settle(v) for settle, v in zip(parts, given(value), strict=True)])
            if type(value) is kind
            else value
        )
    if kind is dict and args:
        key, of = _settler(args[0]), _settler(args[1])
        return lambda value: (
            {key(k): of(v) for k, v in value.items()} if type(value) is dict else value
        )
    if kind is tuple and args and args[-1] is not ...:
        settlers = [_settler(a) for a in args]
        return lambda value: (
            tuple(settle(v) for settle, v in zip(settlers, value, strict=True))
            if type(value) is tuple and len(value) == len(settlers)
            else value
        )
    if kind in (list, tuple) and args:
        item = _settler(args[0])
        return lambda value: kind(map(item, value)) if type(value) is kind else value
    return _without_numpy


def exact_text(value: Any) -> Any:
    """Text or bytes of a subclass, such as a member of an enumeration, as plain text or bytes;
    anything else as it is. Not `str(value)`, which is the name of some members."""
    if isinstance(value, str):
        return str.__str__(value)
    return bytes.__getitem__(value, slice(None)) if isinstance(value, bytes) else value


def _exact_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return int(value) if isinstance(value, int) and type(value) is not bool else value


def _without_numpy(value: Any) -> Any:
    """A value of which nothing says what it holds, with Python's numbers and not NumPy's."""
    if isinstance(value, np.generic):
        return value.item()
    kind = type(value)
    if kind is list or kind is tuple:
        return kind(map(_without_numpy, value))
    if kind is dict:
        return {_without_numpy(k): _without_numpy(v) for k, v in value.items()}
    if is_record(kind):
        return record_maker(kind)([_without_numpy(v) for v in values_of(kind)(value)])
    return value
