"""Tokens for people: each is for a role, and for a time.

A token is signed with a secret, so whoever has the secret can check it without having kept it, and
a new secret ends all tokens of the old one:

    look.1764406800.5b0c...      the role, when it ends (Unix seconds), and the signature

The secret itself is a token, too: for all roles, as long as it is the secret.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal, get_args

Role = Literal["look", "operate"]
"""*look* may see what a job does, without any key or value of it; *operate* may change it, too."""
ROLES: tuple[Role, ...] = get_args(Role)
LONGEST = 200
"""Characters that a token has at most."""


def signed(secret: str, role: Role, ends: float) -> str:
    """A token for a role.

    Args:
        ends: from this time on (Unix seconds) it is worth nothing.
    """
    said = f"{role}.{int(ends)}"
    return f"{said}.{_signature(secret, said)}"


def role_of(secret: str, shown: str, now: float) -> Role | None:
    """The role of who shows a token; None if it is none, or not any more.

    Args:
        now: the time, in Unix seconds.
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
