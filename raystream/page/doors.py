"""Who may see the page: a browser that shows a token, once in the address and then in a cookie.

A token is for a role (`raystream.security.tokens`): the role `look` is given a page without
buttons. The page reads the role in the scope of its request (`ROLE`).

The cookie is not sent by other sites, and no script reads it. Without it every request, also of a
web socket, is answered with "no" before anything of the page runs.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from raystream.security.tokens import Role, role_of

COOKIE = "raystream_page"
ROLE = "raystream.role"
"""The key of the role in the scope of a request."""
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Doors:
    """Lets only requests with a valid token through.

    Args:
        app: the application behind.
        token: the token of the role `operate`, and the secret with which others are signed.
        port: the port of the page. A cookie is for all ports of a host, so its name has the port.
        secure: whether the page has TLS.
    """

    def __init__(self, app: App, *, token: str, port: int, secure: bool = False) -> None:
        self._app, self._token = app, token
        self._cookie = f"{COOKIE}_{port}"
        self._secure = "; Secure" if secure else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        shown = query.pop("token", None)
        if shown is not None and scope["type"] == "http" and self._role(shown):
            rest = f"?{urlencode(query)}" if query else ""
            await self._let_in(send, quote(scope["path"]) + rest, shown)
        elif (role := self._role(_cookie(scope, self._cookie))) is not None:
            scope[ROLE] = role
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4403})
        else:
            await _refuse(send)

    def _role(self, shown: str) -> Role | None:
        return role_of(self._token, shown, time.time())

    async def _let_in(self, send: Send, path: str, shown: str) -> None:
        """Answer with the cookie, and the same address without the token."""
        cookie = f"{self._cookie}={shown}; Path=/; HttpOnly; SameSite=Strict{self._secure}"
        path = "/" + path.lstrip("/")  # never to another host
        headers = [(b"location", path.encode("latin-1")), (b"set-cookie", cookie.encode())]
        headers += [(b"referrer-policy", b"no-referrer"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _cookie(scope: Scope, name: str) -> str:
    for key, value in scope["headers"]:
        if key == b"cookie":
            try:
                found = SimpleCookie(value.decode("latin-1")).get(name)
            except CookieError:
                return ""
            return found.value if found else ""
    return ""


async def _refuse(send: Send) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    text = b"This page needs its token: open the address that `raystream ui` has printed.\n"
    await send({"type": "http.response.body", "body": text})
