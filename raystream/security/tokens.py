"""Tokens for people: each is for a role, and for a time.

A token is signed with a secret. A server with the secret checks tokens without storing them, and a
new secret ends all tokens of the old one:

    look.1764406800.5b0c...      the role, when it ends (Unix seconds), and the signature

The secret itself is a token, too: it has the role *operate* and does not expire.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal, get_args

Role = Literal["look", "operate"]
"""*look* sees what a job does, but no keys and no values. *operate* sees these too, and may change
the job."""
ROLES: tuple[Role, ...] = get_args(Role)
LONGEST = 200
"""A token has at most this many characters."""


def signed(secret: str, role: Role, ends: float) -> str:
    """A token for a role.

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
    if len(shown) > LONGEST or not shown.isascii():
        return None
    said, _, signature = shown.rpartition(".")
    name, _, ends = said.partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(secret, said).encode()):
        return None
    role = next((role for role in ROLES if role == name), None)
    return role if ends.isdecimal() and now < int(ends) else None


def _signature(secret: str, said: str) -> str:
    return hmac.new(secret.encode(), said.encode(), hashlib.sha256).hexdigest()
