"""What `Flow.run` calls. It stands above this layer, so `raystream/__init__.py` puts it here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from raystream.errors import (
    OperatorError,
    RaystreamError,
    unknown_option,
    user_frame,
    what_was_raised,
)

load: Callable[[], Callable[..., Any]]
"""Imports `raystream.run.run`, and returns it."""


def check_options(run: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options that `run` does not have."""
    known = list(inspect.signature(run).parameters)[1:]
    if unknown := [name for name in options if name not in known]:
        raise unknown_option("run", unknown[0], known)


def listener(name: str, function: Any) -> Any:
    """The function that is given as the option `name` of `run`, with what it raises as an
    `OperatorError` that names the option and the user's line. What is no function stays as it is:
    `run` refuses it."""
    if not callable(function):
        return function

    @wraps(function)
    def call(told: Any) -> None:
        try:
            function(told)
        except RaystreamError:
            raise
        except Exception as error:
            raise OperatorError(
                f"{name} raised {what_was_raised(error)}",
                where=user_frame(error),
                hint=f"The job ends with what {name} raises.",
            ) from error

    return call
