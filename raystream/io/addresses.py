"""Addresses and settings as messages show them: without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

_LOGIN = re.compile(r"//([^@,]*)@")
"""User and password in an address."""
_SHORT = 4
"""A secret of fewer characters is looked for as a whole word."""
_SECRET = re.compile(
    r"password|secret|key\.pem|keytab|jaas|oauthbearer|sasl\.username|user\.info|token"
)
"""Names of settings that are secret."""


def shown_address(url: str) -> str:
    """An address without user, password and what follows a question mark. It may be several, with
    commas between them."""
    return re.sub(r"[?#][^,]*", "", _LOGIN.sub("//", url))


def secrets_in(url: str) -> list[str]:
    """What of an address is secret, as it is there and decoded."""
    found = [part for login in _LOGIN.findall(url) for part in (login, login.partition(":")[2])]
    return [s for secret in found for s in dict.fromkeys((secret, unquote(secret))) if s]


def secret_settings(given: Mapping[str, Any]) -> list[str]:
    """The values of settings that are secret."""
    return [v for k, v in given.items() if _SECRET.search(k) and isinstance(v, str) and v]


def without_secrets(secrets: Iterable[str], words: str) -> str:
    """Words with `***` in the place of secrets. A short one that is a part of a word is not one:
    it would make the words unreadable, and the secret known."""
    for secret in sorted(secrets, key=len, reverse=True):
        edge = r"\b" if len(secret) < _SHORT else ""
        words = re.sub(f"{edge}{re.escape(secret)}{edge}", "***", words)
    return words
