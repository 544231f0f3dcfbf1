"""What the processes of a job show each other."""

from __future__ import annotations

from typing import NamedTuple

from raystream.security.contexts import Certificates


class Credentials(NamedTuple):
    """What a process of a job shows to others, and asks of them. Its text shows nothing of it."""

    token: str
    """That of the run; who shows it belongs to the run."""
    certificates: Certificates | None = None
    """With them all connections of the job are encrypted, and both sides show theirs."""

    def __repr__(self) -> str:
        return f"Credentials({'TLS' if self.certificates else 'no TLS'})"
