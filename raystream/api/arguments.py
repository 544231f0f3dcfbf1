"""Arguments of public calls, of the right types: what is wrong is refused with the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from raystream.errors import ConfigError, GraphError
from raystream.schema.records import caller


def check_name(call: str, value: Any) -> None:
    """Refuse the name of a node that is no text, or empty."""
    if value is not None and not (isinstance(value, str) and value):
        raise GraphError(f"{call}(name={value!r:.80}): a name is text", where=caller()[0])


def check_text(call: str, name: str, value: Any) -> None:
    """Refuse what is no text."""
    if not isinstance(value, str):
        raise GraphError(
            f"{call}({name}={value!r:.80}): it is the name of a field", where=caller()[0]
        )


def check_flag(call: str, name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise GraphError(f"{call}({name}={value!r:.80}): it is True or False", where=caller()[0])


def check_function(
    call: str, function: Any, takes: str, number: int = 1, *, lazy: bool = False
) -> None:
    """Refuse what is no function, or one that does not take what it is called with.

    Args:
        takes: what that is, in words.
        number: how many arguments that are.
        lazy: whether it may be an `async def` or have a `yield`: its caller goes through what it
            returns.
    """
    if not callable(function):
        raise ConfigError(
            f"{call} was given {named(function)}: it is no function",
            where=caller()[0],
            hint=f"Pass a function that is called with {takes}, without calling it.",
        )
    try:
        inspect.signature(function).bind(*range(number))
    except TypeError:
        raise ConfigError(
            f"{call}: {named(function)} is called with {takes}, which it does not take",
            where=caller()[0],
        ) from None
    except ValueError:
        pass  # not written in Python

    if not lazy and (why := undone(function)):
        raise ConfigError(f"{call}: {named(function)} {why}", where=caller()[0], hint=DO_IT)


DO_IT = "Write a plain function; in it asyncio.run(...) runs what is async."


def undone(function: Any) -> str:
    """Why a call of a function does nothing by itself; empty if it does."""
    if inspect.iscoroutinefunction(function):
        return "is an `async def`: it is called, and nobody awaits what it returns"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "has a `yield`: it is called, and nobody goes through what it returns"
    return ""


def named(function: Any) -> str:
    """The name of a function, or what it is instead."""
    return getattr(function, "__qualname__", f"a {type(function).__name__}")


def check_record(call: str, value: Any) -> None:
    """Refuse a record type that is no class."""
    if not isinstance(value, type):
        raise GraphError(
            f"{call} was given {value!r:.80} for a record type",
            where=caller()[0],
            hint="A record type is a class: typing.NamedTuple, or a frozen dataclass.",
        )


def refuse_others(call: str, places: str, given: Mapping[str, Any], *, reading: bool) -> None:
    """Refuse arguments of a source for a sink, and the other way round.

    Args:
        places: what is read and written, in the plural.
        given: the arguments that only the other one has; None stands for one that was not given.
        reading: whether it is a source.
    """
    for name, value in given.items():
        if value is not None:
            does, other = ("written", "read") if reading else ("read", "written")
            raise ConfigError(
                f"{call}({name}={value!r:.80}) is for {places} that are {does}, and with"
                f" {'a' if reading else 'no'} record type this one is {other}",
                where=caller()[0],
            )


def whole(
    call: str,
    name: str,
    value: Any,
    least: int,
    most: int,
    error: type[GraphError | ConfigError] = GraphError,
) -> int:
    """A whole number within bounds.

    Raises:
        GraphError, ConfigError: it is none.
    """
    if (
        isinstance(value, int | np.integer)
        and not isinstance(value, bool)
        and least <= value <= most
    ):
        return int(value)
    raise error(
        f"{call}({name}={value!r:.80}): a whole number, from {least} to {most}"
        if call
        else f"{name}={value!r:.80}: from {least} to {most}",
        where=caller()[0],
    )
