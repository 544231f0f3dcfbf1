# pyright: strict
"""State rows as tests of operators make them: both checkers are silent here."""

from __future__ import annotations

from typing import assert_type

from tests.typing.forms import Account, Seen, Tally

assert_type(Tally().n, int)
assert_type(Tally(n=3).n, int)
assert_type(Seen(words=["a"], last="a").last, str | None)
assert_type(Account(moved=3).moved, int)
assert_type(Account().recent, list[int])
