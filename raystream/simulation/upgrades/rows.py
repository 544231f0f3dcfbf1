"""State classes of the simulator's flows that can take rows of the other version of a flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import raystream as rs


class Tally(rs.State):
    n: int = 0
    seen: list[int] = rs.field(factory=list)

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> Tally:
        return cls(n=old["tenths"] // 10, seen=old["seen"])


class Digest(rs.State):
    digest: int = 7
    n: int = 0

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> Digest:
        return cls(digest=old["digest"] + 2, n=old["n"])
