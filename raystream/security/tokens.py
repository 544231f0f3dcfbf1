"""Tokens for people and for programs: each is for a role, or for one door, and for a time.

A token is signed with a secret. A server with the secret checks tokens without storing them, and a
new secret ends all tokens of the old one:

    look.1764406800.5b0c...      the role, when it ends (Unix seconds), and the signature

The secret itself is a token, too: it has the role *operate*, opens the door, and does not expire.
So a client has a token that ends, and gets the next one before that from who has the secret.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal, get_args

Role = Literal["look", "operate"]
"""*look* sees what a job does, but no keys and no values. *operate* sees these too, and may change
the job."""
ROLES: tuple[Role, ...] = get_args(Role)
PUSH: Literal["push"] = "push"
"""The name in tokens with which a client pushes into one source."""
LONGEST = 200
"""A token has at most this many characters."""


def signed(secret: str, role: Role | Literal["push"], ends: float) -> str:
    """A token for a role, or for what a source takes.

    Args:
        ends: when the token expires, in Unix seconds; the fraction is cut off.
    """
    said = f"{role}.{int(ends)}"
    return f"{said}.{_signature(secret, said)}"


def role_of(secret: str, shown: str, now: float) -> Role | None:
    """The role of a token; None if it is not valid, or has expired.

    Args:
        shown: the token. now: the time, in Unix seconds.
    """
    if hmac.compare_digest(shown.encode(errors="replace"), secret.encode()):
        return "operate"
    name = _name_of(secret, shown, now)
    return next((role for role in ROLES if role == name), None)


def opens(secret: str, shown: str, now: float) -> bool:
    """Whether a token lets a client push: the secret of the source, or one signed with it that has
    not expired. Arguments: see `role_of`."""
    whole = hmac.compare_digest(shown.encode(errors="replace"), secret.encode())
    return whole or _name_of(secret, shown, now) == PUSH


def _name_of(secret: str, shown: str, now: float) -> str:
    """The name in a signed token; empty if it is not valid, or has expired."""
    if len(shown) > LONGEST or not shown.isascii():
        return ""
    said, _, signature = shown.rpartition(".")
    name, _, ends = said.partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(secret, said).encode()):
        return ""
    return name if ends.isdecimal() and now < int(ends) else ""


def _signature(secret: str, said: str) -> str:
    return hmac.new(secret.encode(), said.encode(), hashlib.sha256).hexdigest()
