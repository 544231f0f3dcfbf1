"""Messages that are no records, as a stream of their own: what `bad="stream"` makes of a source.

It is as of damaged lines (`raystream.io.files.bad_lines`): a source reads records that are either
one as declared or what is wrong with a message, and two stages tell them apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from raystream.api.connectors import Source
from raystream.api.operators import OperatorSpec
from raystream.errors import ConfigError, Where, caller
from raystream.io.files.bad_lines import (
    COLUMN,
    DATA,
    FILE,
    LINE,
    REASON,
    mixed_of,
    stages_of,
)
from raystream.schema.fields import AnyRecord
from raystream.schema.types import Int64

U = TypeVar("U", bound=AnyRecord)


class BadMessage(NamedTuple):
    """A message that could not be read as a record of the declared type."""

    split: str
    """Where it was read: a partition of a topic, or what the source is called."""
    number: Int64
    """Its offset, or its number; -1 where messages have none."""
    field: str | None
    """The field whose value does not fit, if it is one."""
    reason: str
    data: bytes | None
    """The message; None if it has no value."""


_PARTS = {"split": FILE, "number": LINE, "field": COLUMN, "reason": REASON, "data": DATA}


class MessageSource(Source[U]):
    """A source of messages. `declared` is the type of the records that it was asked for; `record`
    is what it yields, and another one with `bad="stream"`."""

    declared: type[U]
    apart = False
    """Whether messages that are no records go to a stream of their own."""

    def sifting(self, call: str, bad: Any) -> None:
        """Do with messages that are no records what a user has said.

        Raises:
            ConfigError: it is neither `"refuse"` nor `"stream"`.
        """
        if not isinstance(bad, str) or bad not in ("refuse", "stream"):
            raise ConfigError(f'{call}(bad={bad!r:.80}): "refuse" or "stream"', where=caller()[0])
        self.apart = bad == "stream"
        declared: Any = self.declared
        self.record = mixed_of(declared) if self.apart else declared

    def stages(self, where: Where, /) -> tuple[OperatorSpec, ...]:
        """What tells records and other messages apart."""
        if not self.apart:
            return ()
        return stages_of(self.declared, BadMessage, _PARTS, "bad messages", where)
