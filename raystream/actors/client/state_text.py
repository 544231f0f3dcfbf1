"""Keys as people write them, and rows as people read them."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from raystream.errors import ConfigError

SHOWN = 200
"""A longer value is cut after this many characters."""


def key_of(text: str, types: Sequence[str]) -> Any:
    """The key that a person wrote: one value as it is, several as a JSON list.

    Args:
        types: the types of the key's parts, in Arrow's words.

    Raises:
        ConfigError: the text is no such key.
    """
    parts: list[Any] = [text]
    if len(types) > 1:
        try:
            parts = json.loads(text)
        except ValueError:
            parts = []
        if not isinstance(parts, list) or len(parts) != len(types):
            raise ConfigError(
                f"key {text}: a key has {len(types)} fields", hint="As in '[\"ann\", 60]'."
            )
    made = [_part(part, kind) for part, kind in zip(parts, types, strict=True)]
    return tuple(made) if len(types) > 1 else made[0]


def _part(part: Any, kind: str) -> Any:
    if kind == "binary" and isinstance(part, str):
        return part.encode()
    if kind.startswith("int") and isinstance(part, str):
        try:
            return int(part)
        except ValueError:
            raise ConfigError(f"key {part}: it is a whole number") from None
    return part


def fields_of(row: dict[str, Any]) -> str:
    """A row as one line of text. Long values are cut."""
    return ", ".join(f"{n}={_cut(v)}" for n, v in row.items()) or "a row without fields"


def _cut(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def plain(value: Any) -> Any:
    """A value of a row as a value that JSON has: bytes in base64, dates and decimals as text, a
    duration in seconds; text for what JSON has nothing for."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(v) for v in value]
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return value if value is None or isinstance(value, str | int | float) else repr(value)
