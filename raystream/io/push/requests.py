"""What all requests have in common: their headers, answers, and how one is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

LANE = "Raystream-Lane"
"""The header of a request that another instance has passed on: the lane that it is for."""
ANSWER_SECONDS = 60.0
"""How long a request waits until it is recorded; then it is to be sent again."""


class PushRequest(Protocol):
    """What is asked of a request: aiohttp's has it, and so has what came in another way."""

    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def path(self) -> str: ...
    @property
    def content_type(self) -> str: ...
    @property
    def content_length(self) -> int | None: ...
    @property
    def body_exists(self) -> bool: ...
    async def read(self) -> bytes: ...


@dataclass(frozen=True)
class HeldRequest:
    """A request whose body is at hand."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "")

    @property
    def content_length(self) -> int:
        return len(self.body)

    @property
    def body_exists(self) -> bool:
        return bool(self.body)

    async def read(self) -> bytes:
        return self.body


class NotTaken(Exception):
    """A request is not taken.

    Args:
        status: of HTTP. why: for people. again: after how many seconds it may be sent again.
    """

    def __init__(self, status: int, why: str, again: float | None = None) -> None:
        super().__init__(why)
        self.status, self.again = status, again

    def response(self) -> web.Response:
        """The answer that says so."""
        headers = {} if self.again is None else {"Retry-After": f"{self.again:g}"}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return answered({"error": str(self)}, self.status, headers)


def answered(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """An answer in JSON."""
    text = f"{json.dumps(body)}\n"
    return web.Response(text=text, status=status, headers=headers, content_type="application/json")


def number_in(headers: Mapping[str, str], name: str, below: int) -> int:
    """The whole number in a header, at least 0.

    Raises:
        NotTaken: it is missing, something else, or not below a bound.
    """
    text = headers.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise NotTaken(400, f"{name}: {text!r:.40} is no whole number")
    if int(text) >= below:
        raise NotTaken(400, f"{name}: {text} is too great")
    return int(text)
