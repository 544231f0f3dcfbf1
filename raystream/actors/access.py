"""What this process shows a Ray that asks who it is: a token.

Ray listens on all addresses of a machine, and whoever may speak to it can run code there. So a Ray
that a run starts for itself asks for a token which only that run has, and notes (`own_ray`); unless
the user has chosen otherwise, with the variables of Ray.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray import _raylet
from ray._private.authentication import authentication_token_setup

from raystream.actors import environment

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


@contextmanager
def as_before() -> Iterator[None]:
    """What is shown is afterwards as it was; no Ray may be connected then."""
    try:
        with environment.as_before((MODE, TOKEN)):
            yield
    finally:
        _take_effect()


def show(token: str) -> None:
    """Show a token from now on."""
    os.environ.update({MODE: "token", TOKEN: token})
    _take_effect()


def show_own() -> str:
    """Show a token that nobody has yet, and return it; "" where the user has chosen what to show,
    which is left to Ray."""
    if any(name in os.environ for name in (MODE, TOKEN, TOKEN_PATH)):
        return ""
    show(token := secrets.token_hex(32))
    return token


def show_token_of_user() -> None:
    """Show a Ray of this machine the token that the user has for all, if there is one, as Ray does
    for the address `auto`."""
    shown: Any = authentication_token_setup.maybe_enable_token_auth_if_token_available
    shown(warn_if_disabled=False)


def _take_effect() -> None:
    """Ray keeps what it has read of the environment."""
    its: Any = _raylet
    its.Config.initialize("")
    its.AuthenticationTokenLoader.instance().reset_cache()
