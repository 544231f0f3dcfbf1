"""What `rs.operator` is told of an operator that asks the world."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from raystream.api.arguments import check_flag, whole
from raystream.errors import Where
from raystream.schema.lengths import Seconds, seconds_of

CONCURRENCY = 16
"""How many calls are under way at once in an instance, unless the user says otherwise."""
CONCURRENCY_MOST = 10_000
TIMEOUT_SECONDS = 30.0
RETRIES = 2
RETRIES_MOST = 1_000
BATCH_MOST = 1_000_000


class AskingOptions(TypedDict, total=False):
    """Options of `rs.operator` for an operator with `recorded=True`, or with an `async def`."""

    concurrency: int
    """How many calls are under way at once in each instance; 16 unless given."""
    timeout: Seconds | None
    """How long a call may take; 30 seconds unless given. None: as long as it likes."""
    retries: int
    """How often a call that has failed is made again, before the record has failed; 2 unless
    given. The first of these comes after 0.1 seconds, each later one after twice as long, up to
    5 seconds."""
    ordered: bool
    """Whether answers go on in the order of their records, as they do unless given. Otherwise
    those of an epoch go on in the order in which they came; those of one key stay in order."""
    batch: int
    """How many records a call takes at most: the function is given a list of records, and returns
    a list with as many answers. Unless given it is given one record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How an operator asks. See `AskingOptions`."""

    concurrency: int = CONCURRENCY
    timeout: float | None = TIMEOUT_SECONDS
    retries: int = RETRIES
    ordered: bool = True
    batch: int = 0
    """0: a call takes one record, which is no list."""
    awaited: bool = False
    """Whether what the function returns is awaited: it is an `async def`."""


NAMES = tuple(AskingOptions.__annotations__)


def checked(options: Mapping[str, Any], where: Where) -> Mapping[str, Any]:
    """The options of a mark, of the right types.

    Raises:
        GraphError: a value is wrong.
    """
    found = dict(options)
    for name, least, most in (
        ("concurrency", 1, CONCURRENCY_MOST),
        ("retries", 0, RETRIES_MOST),
        ("batch", 1, BATCH_MOST),
    ):
        if name in found:
            found[name] = whole("operator", name, found[name], least, most)
    if "ordered" in found:
        check_flag("operator", "ordered", found["ordered"])
    if found.get("timeout") is not None:
        found["timeout"] = float(seconds_of("operator", "timeout", found["timeout"]))
    return found


def asking_of(
    process: Callable[..., Any], options: Mapping[str, Any], *, recorded: bool
) -> Asking | None:
    """How an operator asks; None of one that does not ask.

    Args:
        process: its function. recorded: whether it was marked so.
    """
    generates = inspect.isasyncgenfunction(process)
    awaited = generates or inspect.iscoroutinefunction(process)
    if not (recorded or awaited):
        return None
    return Asking(awaited=awaited, **options)
