"""What the processes of a job show each other."""

from __future__ import annotations

from typing import NamedTuple

from raystream.security.contexts import Certificates


class Credentials(NamedTuple):
    """What a process of a job shows to others, and asks them to show. `repr` hides it."""

    token: str
    """The token of the run. A process that shows it belongs to the run."""
    certificates: Certificates | None = None
    """The certificates of the job; None without TLS. With TLS both sides show their certificate."""

    def __repr__(self) -> str:
        return f"Credentials({'TLS' if self.certificates else 'no TLS'})"
