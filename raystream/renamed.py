"""Old names of what was renamed. They work for one version more, with a `DeprecationWarning`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_OURS = __name__.partition(".")[0] + "."

P = ParamSpec("P")
R = TypeVar("R")


def with_new_names(
    options: Mapping[str, Any], renamed: Mapping[str, str], function: str
) -> dict[str, Any]:
    """Keyword arguments with new names in the place of old ones.

    Args:
        renamed: the new name of each old one.
        function: the name of the function that they are for.

    Raises:
        TypeError: an argument is given by both of its names.
    """
    found = dict(options)
    for old, new in renamed.items():
        if old in found:
            if new in found:
                raise TypeError(f"{function}() got {new}, and also {old}, which is its old name")
            _warn(f"{old} of {function}()", new)
            found[new] = found.pop(old)
    return found


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function take keyword arguments by their old names, too.

    Args:
        names: the new name of each old one, as in `@renamed(cut_every="checkpoint_every")`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            if not names.keys().isdisjoint(options):
                new: Any = with_new_names(options, names, function.__name__)
                return function(*args, **new)
            return function(*args, **options)

        return call

    return decorate


def old_field(old: str, new: str) -> Any:
    """A property for the old name of a field, as in `floor = old_field("floor", "committed")`."""

    def get(record: Any) -> Any:
        _warn(f"{type(record).__name__}.{old}", new)
        return getattr(record, new)

    return property(get, doc=f"The old name of `{new}`.")


def _warn(old: str, new: str) -> None:
    """Warn the nearest caller outside raystream."""
    text = f"{old} is called {new} now; the old name goes with the next version"
    frame: Any = sys._getframe()
    level = 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, DeprecationWarning, stacklevel=level)
