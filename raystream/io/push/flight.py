"""Arrow Flight as another way to the lanes of a source: what is put is handled as a request over
HTTP with an Arrow body, so all that holds there holds here.

    do_put      a descriptor with the path `(source,)` or `(source, sender, sequence)`; each record
                batch is a request, and those after the first have the sequences that follow. What
                is recorded is answered with metadata: `{"records": 2, "sequence": 41}`
    do_action   `end` ends the input

What is not taken ends the call with a Flight error. Its `extra_info` is what an answer over HTTP
would say: `{"status": 429, "error": "...", "again": 0.1, "sequence": 41}`.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.flight as flight
from aiohttp import web

from raystream.io.push.bodies import ARROW
from raystream.io.push.handling import PASS_SECONDS, SENDER, SEQUENCE
from raystream.security.contexts import Certificates
from raystream.security.tokens import opens

STREAMS = 64
"""How many calls are served at once: each has a thread."""
END_SECONDS = 1.0
"""How long a server that ends waits for the calls that are under way."""
SAY_SECONDS = 5.0
"""How long the event loop may take beyond the time in which a request is answered."""
AGAIN = frozenset({409, 429, 503})
"""Statuses of requests that may be sent again."""

Answer = Callable[[str, Mapping[str, str], bytes], Coroutine[Any, Any, web.Response]]
"""`Handling.answer`: what is posted to the path of the source, or below it."""


class PutTarget(NamedTuple):
    """What the descriptor of a call says."""

    sender: str | None
    sequence: int


class FlightPort:
    """Listens for Flight at one address.

    Args:
        host, port: where.
        source: the name of the source in the flow.
        answer: handles a request on `loop`, which is that of the hub.
        tls: what to show, and to ask of clients; None for no TLS.

    Raises:
        OSError: another program listens there.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        source: str,
        token: str,
        answer: Answer,
        loop: asyncio.AbstractEventLoop,
        tls: Certificates | None,
    ) -> None:
        self._server = _Server(
            f"grpc{'' if tls is None else '+tls'}://{f'[{host}]' if ':' in host else host}:{port}",
            source,
            _posting(answer, loop),
            token,
            tls,
        )

    def close(self) -> None:
        """Listen no more. Calls that are under way are left after a moment."""
        thread = threading.Thread(target=self._server.shutdown, name="flight", daemon=True)
        thread.start()
        thread.join(END_SECONDS)


Post = Callable[[str, Mapping[str, str], bytes], web.Response]
"""As `Answer`, but blocks until the request is answered."""


def _posting(answer: Answer, loop: asyncio.AbstractEventLoop) -> Post:
    def post(path: str, headers: Mapping[str, str], body: bytes) -> web.Response:
        asked = answer(path, headers, body)
        try:
            future = asyncio.run_coroutine_threadsafe(asked, loop)
        except RuntimeError:  # the hub has ended
            asked.close()
            raise _error(503, {"error": "the instance has ended", "again": 0.2}) from None
        try:
            return future.result(PASS_SECONDS + SAY_SECONDS)
        except (TimeoutError, CancelledError):
            future.cancel()
            raise _error(503, {"error": "it is not known whether this was recorded"}) from None

    return post


class _Server(flight.FlightServerBase):  # type: ignore[misc]  # it ships no types
    """Each call is served by a thread of the server."""

    def __init__(
        self, location: str, source: str, post: Post, token: str, tls: Certificates | None
    ) -> None:
        given: dict[str, Any] = {}
        if tls is not None:
            given["tls_certificates"] = [(tls.certificate, tls.key)]
            given["root_certificates"], given["verify_client"] = tls.authority, True
        try:
            super().__init__(location, middleware={"token": _LetsIn(token)}, **given)
        except pa.ArrowException as error:
            raise OSError(str(error)) from None
        self._source, self._post = source, post
        self._room = threading.BoundedSemaphore(STREAMS)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take record batches, one after the other."""
        target = self._target(descriptor)
        if not self._room.acquire(blocking=False):
            raise _error(429, {"error": "too many streams at once", "again": 1.0})
        try:
            for number, body in enumerate(_bodies(reader)):
                told = self._put(target, number, body)
                writer.write(json.dumps(told).encode())
        finally:
            self._room.release()

    def _put(self, target: PutTarget, number: int, body: bytes) -> dict[str, Any]:
        """Have a batch recorded. Returns what the answer says.

        Raises:
            flight.FlightError: it is not taken.
        """
        headers = {"Content-Type": ARROW}
        said: dict[str, Any] = {}
        if target.sender is not None:
            said["sequence"] = target.sequence + number
            headers |= {SENDER: target.sender, SEQUENCE: str(said["sequence"])}
        answer = self._post("", headers, body)
        told: dict[str, Any] = json.loads(_text(answer))
        if answer.status == 200:
            return told
        if (again := answer.headers.get("Retry-After")) is not None:
            said["again"] = float(again)
        raise _error(answer.status, {**told, **said})

    def _target(self, descriptor: Any) -> PutTarget:
        """The sender of a call, and the sequence of its first batch.

        Raises:
            flight.FlightServerError: the descriptor does not say it in this way.
        """
        path = [part.decode(errors="replace") for part in descriptor.path or ()]
        source = self._source
        match path:
            case [name] if name == source:
                return PutTarget(None, 0)
            case [name, sender, sequence] if name == source and sequence.isdecimal():
                return PutTarget(sender, int(sequence))
        raise _error(400, {
            "error": f"a descriptor has the path ({source!r},) or"
            f" ({source!r}, sender, sequence), and not {tuple(path)!r:.200}"
        })  # fmt: skip

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """The actions that there are."""
        return [("end", "ends the input, for all clients")]

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """End the input."""
        if action.type != "end":
            raise _error(404, {"error": f"there is no action {action.type!r:.80}; there is end"})
        answer = self._post("/end", {}, b"")
        if answer.status not in (200, 410):
            raise _error(answer.status, json.loads(_text(answer)))
        yield flight.Result(pa.py_buffer(b'{"ended": true}'))


class _LetsIn(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses calls without the token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> None:
        shown = next(iter(headers.get("authorization", ())), "")
        given = shown if isinstance(shown, str) else bytes(shown).decode(errors="replace")
        kind, _, token = given.partition(" ")
        if kind != "Bearer" or not opens(self._token, token, time.time()):
            raise flight.FlightUnauthenticatedError(
                "show the token of the source: authorization: Bearer TOKEN. Some expire"
            )


def _bodies(reader: Any) -> Iterator[bytes]:
    """The record batches of a call, each as an Arrow IPC stream."""
    while True:
        try:
            batch = reader.read_chunk().data
        except StopIteration:
            return
        if batch is None:  # metadata alone
            continue
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield sink.getvalue().to_pybytes()


def _text(answer: web.Response) -> str:
    body = answer.body
    return body.decode() if isinstance(body, bytes) else str(answer.text)


def _error(status: int, said: Mapping[str, Any]) -> Exception:
    """The Flight error for a request that is refused.

    Args:
        status: the HTTP status with which the same request would be refused.
        said: what `extra_info` has beside the status.
    """
    words = str(said.get("error", "not taken"))
    extra = json.dumps({"status": status, **said}).encode()
    if status in AGAIN:
        if "again" in said:
            words += f" (again after {said['again']:g} s)"
        return flight.FlightUnavailableError(words, extra)
    if status == 401:
        return flight.FlightUnauthenticatedError(words, extra)
    if status == 410:
        return flight.FlightCancelledError(words, extra)
    return flight.FlightServerError(words, extra)
