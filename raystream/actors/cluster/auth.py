"""The token that this process shows to a Ray cluster.

Ray listens on all addresses of a machine, and any process that may speak to it can run code there.
So a Ray that a run starts for itself asks for a token. Only that run has it, and notes it for the
same user (`private_ray.py`). A user who has set Ray's own variables for tokens decides instead.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from raystream.actors.cluster import environment
from raystream.actors.cluster import ray_internals as internals

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


@contextmanager
def as_before() -> Iterator[None]:
    """The token is afterwards what it was. No Ray may be connected then."""
    try:
        with environment.as_before((MODE, TOKEN)):
            yield
    finally:
        internals.reload_token()


def show(token: str) -> None:
    """Show a token from now on."""
    os.environ.update({MODE: "token", TOKEN: token})
    internals.reload_token()


def show_own() -> str:
    """Show a new token, and return it; "" if the user has chosen one, which Ray shows itself."""
    if any(name in os.environ for name in (MODE, TOKEN, TOKEN_PATH)):
        return ""
    show(token := secrets.token_hex(32))
    return token


def show_token_of_user() -> None:
    """Show the token that the user has for all Rays, if there is one, unless the user's variables
    say otherwise. Ray does that for the address `auto` alone, and with a warning each time."""
    if MODE not in os.environ and internals.user_has_token():
        os.environ[MODE] = "token"
        internals.reload_token()


def refuse_wrong_token(address: str) -> None:
    """See that the cluster at host:port accepts the token that this process shows.

    Raises:
        AuthenticationError: it does not.
    """
    if os.environ.get(MODE, "").lower() == "token" and not internals.user_has_token():
        return  # Ray says so when it joins; a client without a token would end this process
    internals.refuse_wrong_token(address)
