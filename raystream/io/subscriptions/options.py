"""Arguments that several subscriptions have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from raystream.errors import ConfigError, Where


def check_url(name: str, url: Any, schemes: tuple[str, ...], where: Where) -> None:
    """Refuse what is no address with one of these schemes."""
    if not isinstance(url, str) or not url.startswith(schemes) or url in schemes:
        shown = "..." if isinstance(url, str) and "@" in url else f"{url!r:.80}"
        raise ConfigError(
            f"{name}({shown}): an address that begins with {' or '.join(schemes)}", where=where
        )


def check_give_up(name: str, give_up: Any, where: Where) -> None:
    """Refuse what is no number of seconds."""
    number = isinstance(give_up, int | float) and not isinstance(give_up, bool)
    if not number or not math.isfinite(give_up) or give_up <= 0:
        raise ConfigError(f"{name}(give_up={give_up!r:.80}): seconds, above 0", where=where)


def check_options(
    name: str,
    url: Any,
    schemes: tuple[str, ...],
    headers: Mapping[str, str] | None,
    give_up: Any,
    where: Where,
) -> dict[str, str]:
    """Refuse wrong arguments of what is reached by a URL. Returns the headers.

    Raises:
        ConfigError: one of them cannot be.
    """
    check_url(name, url, schemes, where)
    check_give_up(name, give_up, where)
    if headers is not None and (
        not isinstance(headers, Mapping)
        or not all(isinstance(k, str) and isinstance(v, str) for k, v in headers.items())
    ):
        raise ConfigError(f"{name}(headers=...): a mapping of names to text", where=where)
    return dict(headers or {})


def check_text(name: str, argument: str, value: Any, where: Where) -> None:
    """Refuse what is no text."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name}({argument}={value!r:.80}): text", where=where)


def check_start(name: str, start: Any, where: Where) -> None:
    """Refuse what is no place to begin."""
    if not isinstance(start, str) or start not in ("earliest", "latest"):
        raise ConfigError(f'{name}(start={start!r:.80}): "earliest" or "latest"', where=where)
