"""Nobody sees the page without its token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import MutableMapping
from typing import Any

import pytest

from raystream.page.doors import ROLE, Doors
from raystream.security.tokens import signed


async def inside(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "inside", "scope": scope["type"], "role": scope[ROLE]})


def answer(kind: str = "http", query: str = "", cookie: str = "", path: str = "/") -> list[Any]:
    """What the doors answer to a request."""
    headers = [(b"cookie", cookie.encode())] if cookie else []
    scope = {"type": kind, "path": path, "query_string": query.encode(), "headers": headers}
    said: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        said.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "websocket.connect"}

    asyncio.run(Doors(inside, token="secret", port=80)(scope, receive, send))
    return said


@pytest.mark.parametrize("cookie", ["", "raystream_page_80=wrong", "x", "raystream_page_81=secret"])
def test_without_the_token_the_answer_is_no(cookie: str) -> None:
    assert answer(cookie=cookie)[0]["status"] == 403
    assert answer(cookie=cookie, path="/_nicegui/x.js")[0]["status"] == 403
    assert answer("websocket", cookie=cookie)[0]["type"] == "websocket.close"
    assert answer("websocket", query="token=secret", cookie=cookie)[0]["type"] == "websocket.close"
    assert answer(query="token=wrong", cookie=cookie)[0]["status"] == 403


def test_who_may_only_look_is_known_as_such_until_the_token_ends() -> None:
    looks = signed("secret", "look", time.time() + 100)
    headers = dict(answer(query=f"token={looks}")[0]["headers"])
    shown = headers[b"set-cookie"].decode().partition(";")[0]
    assert shown == f"raystream_page_80={looks}"
    assert answer(cookie=shown)[0]["role"] == "look"
    assert answer("websocket", cookie=shown)[0]["role"] == "look"
    over = signed("secret", "look", time.time() - 1)
    assert answer(query=f"token={over}")[0]["status"] == 403
    assert answer(cookie=f"raystream_page_80={over}")[0]["status"] == 403


def test_no_path_adds_headers() -> None:
    start = answer(query="token=secret", path="/a\r\nset-cookie: x=\u0416")[0]
    assert dict(start["headers"])[b"location"] == b"/a%0D%0Aset-cookie%3A%20x%3D%D0%96"


def test_the_token_becomes_a_cookie_that_opens_the_page() -> None:
    start = answer(query="token=secret&a=b", path="//elsewhere/")[0]
    headers = dict(start["headers"])
    assert start["status"] == 303 and headers[b"location"] == b"/elsewhere/?a=b"
    cookie = headers[b"set-cookie"].decode()
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    shown = cookie.partition(";")[0]
    assert answer(cookie=shown)[0]["type"] == "inside"
    assert answer("websocket", cookie=shown)[0] == {
        "type": "inside",
        "scope": "websocket",
        "role": "operate",
    }
