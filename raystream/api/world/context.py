"""What code may ask for that is never the same twice, where its answer is recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import NamedTuple

from raystream.errors import ConfigError, caller


class CallUnderWay(NamedTuple):
    """The call that is under way."""

    ids: tuple[str, ...]
    """The ids of its records."""
    now: Callable[[], float]
    random: Callable[[], float]


UNDER_WAY: ContextVar[CallUnderWay | None] = ContextVar("raystream_request", default=None)
"""The call that is under way here; None outside of operators that ask the world."""


def now() -> float:
    """The time, in Unix seconds, in an operator whose answers are recorded.

    Raises:
        ConfigError: it was called elsewhere.
    """
    return _request("now").now()


def random() -> float:
    """A random number from 0 up to 1, in an operator whose answers are recorded.

    Raises:
        ConfigError: it was called elsewhere.
    """
    return _request("random").random()


def request_id(record: int = 0) -> str:
    """Names the request of a record: the same for every attempt at it in a run of the job, whoever
    makes it, and another one for every other record. To be sent along, as an idempotency key.

    Args:
        record: with `batch=` the number of the record in the list.

    Raises:
        ConfigError: it was called outside of an operator whose answers are recorded, or there is no
            such record.
    """
    ids = _request("request_id").ids
    if not 0 <= record < len(ids):
        raise ConfigError(
            f"rs.request_id({record!r:.80}): this call has {len(ids)} records", where=caller()[0]
        )
    return ids[record]


def _request(what: str) -> CallUnderWay:
    request = UNDER_WAY.get()
    if request is None:
        raise ConfigError(
            f"rs.{what}() was called where no answer is recorded: after a failure the same code"
            " would see something else, and give another result",
            where=caller()[0],
            hint="Call it in an operator with recorded=True, or in an `async def` one; send what it"
            " returned along in a record.",
        )
    return request
