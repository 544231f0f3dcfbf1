# mypy: warn-return-any
# pyright: strict
"""State rows as tests of operators make them: both checkers are silent here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, assert_type

import raystream as rs
from tests.typing.operators import Account, Seen, Tally

assert_type(Tally().n, int)
assert_type(Tally(n=3).n, int)
assert_type(Seen(words=["a"], last="a").last, str | None)
assert_type(Account(moved=3).moved, int)
assert_type(Account().recent, list[int])


class Purse(rs.State):
    cents: int = 0

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> Self:
        return cls(cents=old["euros"] * 100)


assert_type(Purse.upgrade({"euros": 3}).cents, int)
