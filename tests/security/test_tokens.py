"""A token is worth its role, until it ends, to those who have its secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.security.tokens import PUSH, ROLES, opens, role_of, signed

TEXT = st.text(max_size=80)


@given(TEXT.filter(bool), st.sampled_from(ROLES), st.integers(1, 2**40))
def test_it_is_worth_its_role_until_it_ends(secret: str, role: str, ends: int) -> None:
    secret = secret.encode(errors="replace").decode()
    token = signed(secret, role, ends)
    assert role_of(secret, token, ends - 1) == role
    assert role_of(secret, token, ends) is None
    assert role_of(secret + "x", token, ends - 1) is None


@pytest.mark.parametrize("role", ROLES)
def test_no_part_of_it_can_be_changed(role: str) -> None:
    token = signed("secret", role, 1000)
    for at in range(len(token)):
        for other in ("0", ".", "a", "9"):
            if token[at] != other:
                assert role_of("secret", token[:at] + other + token[at + 1 :], 1) is None
    other = next(r for r in ROLES if r != role)
    assert role_of("secret", token.replace(role, other), 1) is None
    assert role_of("secret", token.replace("1000", "9999"), 1) is None


@given(TEXT, st.integers(0, 2**40))
def test_nothing_else_is_worth_anything(shown: str, now: int) -> None:
    assert role_of("the secret itself", shown, now) is None
    assert role_of("the secret itself", "the secret itself", now) == "operate"


def test_a_token_of_a_source_lets_nobody_see_the_page_and_the_other_way_round() -> None:
    push = signed("secret", PUSH, 1000)
    assert opens("secret", push, 999) and opens("secret", "secret", 10**12)
    assert not opens("secret", push, 1000)
    assert not opens("another", push, 999)
    assert role_of("secret", push, 999) is None
    assert not any(opens("secret", signed("secret", role, 1000), 999) for role in ROLES)


def test_tokens_roll_while_a_door_is_open() -> None:
    """The next one is made before the one before expires; nobody tells the server."""
    first, second = signed("secret", PUSH, 1000), signed("secret", PUSH, 2000)
    good = [[opens("secret", token, now) for token in (first, second)] for now in (900, 1500, 2500)]
    assert good == [[True, True], [False, True], [False, False]]
