"""Arguments that several subscriptions have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from raystream.errors import ConfigError
from raystream.io.addresses import shown_address
from raystream.schema.lengths import seconds_of


def check_url(name: str, url: Any, schemes: tuple[str, ...]) -> None:
    """Refuse what is no address with one of these schemes."""
    if not isinstance(url, str) or not url.startswith(schemes) or url in schemes:
        shown = "..." if isinstance(url, str) and "@" in url else f"{url!r:.80}"
        raise ConfigError(f"{name}({shown}): an address that begins with {' or '.join(schemes)}")
    try:
        found = urlsplit(url)
        whole = bool(found.path if found.scheme == "unix" else found.hostname) and found.port != 0
    except ValueError:  # a port that is none, or brackets without an address
        whole = False
    if not whole:
        raise ConfigError(
            f"{name}({shown_address(url)!r:.80}): there is no host, or its port is no number",
            hint=f"Write it as {schemes[0]}host:port. What is not a letter or digit in a user or a"
            " password is written with %, as %40 for @.",
        )


def give_up_of(name: str, give_up: Any) -> float:
    """After how many seconds to give up.

    Raises:
        ConfigError: it is no length of time.
    """
    return float(seconds_of(name, "give_up", give_up, error=ConfigError))


def headers_of(name: str, headers: Mapping[str, str] | None) -> dict[str, str]:
    """The headers of requests.

    Raises:
        ConfigError: they are not of text.
    """
    if headers is not None and (
        not isinstance(headers, Mapping)
        or not all(isinstance(k, str) and isinstance(v, str) for k, v in headers.items())
    ):
        raise ConfigError(f"{name}(headers=...): a mapping of names to text")
    return dict(headers or {})


def check_text(name: str, argument: str, value: Any) -> None:
    """Refuse what is no text."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name}({argument}={value!r:.80}): text")


def check_start(name: str, start: Any) -> None:
    """Refuse what is no place to begin."""
    if not isinstance(start, str) or start not in ("earliest", "latest"):
        raise ConfigError(f'{name}(start={start!r:.80}): "earliest" or "latest"')
