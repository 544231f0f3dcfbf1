"""What becomes of a request: it is taken by the lane that it belongs to, here or elsewhere."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
import zlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from raystream.api.batch import Batch
from raystream.errors import InputError
from raystream.io.push.bodies import ARROW, decoded
from raystream.io.push.lane import LANE_BYTES, Lane, Waiting
from raystream.io.push.requests import (
    ANSWER_SECONDS,
    LANE,
    HeldRequest,
    NotTaken,
    PushRequest,
    answered,
    number_in,
)
from raystream.io.push.sealing import Sealing
from raystream.schema.records import record_schema
from raystream.security.contexts import NAME
from raystream.security.tokens import opens

SENDER, SEQUENCE = "Raystream-Sender", "Raystream-Sequence"
PASS_SECONDS = ANSWER_SECONDS + 10
SENDER_LENGTH = 200
"""Characters that the name of a sender has at most."""
HELD_BYTES = 512 << 20
"""A process takes no more while the requests that have no answer have this many bytes."""
UNPACKED = 8
"""How many times the bytes of a body its records may have in memory."""
AT_ONCE = 64 << 10
"""A body of up to this many bytes is decoded by the event loop itself."""
SEQUENCES = 2**63
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Respond = Callable[[PushRequest], Awaitable[web.Response]]


def lane_of(sender: str, lanes: int) -> int:
    """The lane that a sender belongs to."""
    return zlib.crc32(sender.encode()) % lanes


class Handling:
    """Answers the requests that come to a process.

    Args:
        owner: returns the address of the process that owns a lane, "" if none is known; it may
            block.
        lanes: how many there are; `own` has those that this process owns.
        biggest: the bytes that a body may have.
        tls: for connections to other processes of the source; None for no TLS.
    """

    def __init__(
        self,
        record: type,
        path: str,
        token: str,
        *,
        lanes: int,
        own: dict[int, Lane],
        owner: Callable[[int], str],
        biggest: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._record, self._path, self._token = record, path, token
        self.lanes, self.own, self._owner = lanes, own, owner
        self._biggest, self._tls = biggest, tls
        self._held_bytes = 0
        """The bytes of all bodies, as far as they are not answered."""
        self._passing = 0
        """The bytes of bodies that are passed on."""
        self._session: ClientSession | None = None
        self._sealing = Sealing(self)

    def application(self) -> web.Application:
        """What an HTTP server runs."""
        app = web.Application(client_max_size=self._biggest, middlewares=[self._lets_in])
        app.router.add_get(self._path, self._answering(self._about))
        app.router.add_post(self._path, self._answering(self._push))
        for name, handle in (
            ("end", self._end),
            ("stage", self._sealing.stage),
            ("seal", self._sealing.seal),
            ("drop", self._sealing.drop),
        ):
            app.router.add_post(f"{self._path.rstrip('/')}/{name}", self._answering(handle))
        return app

    @web.middleware
    async def _lets_in(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a request without the token, also of a path that is not there."""
        kind, _, shown = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or not opens(self._token, shown, time.time()):
            why = "show the token of the source: Authorization: Bearer TOKEN. Some expire"
            return NotTaken(401, why).response()
        return await handler(request)

    async def answer(self, below: str, headers: Mapping[str, str], body: bytes) -> web.Response:
        """Answer a request that came in another way, from a client who has shown the token.

        Args:
            below: the part of the path that follows that of the source: "" or "/end".
        """
        handle = self._end if below else self._push
        path = f"{self._path.rstrip('/')}{below}" if below else self._path
        return await self._answering(handle)(HeldRequest(path, headers, body))

    def left(self, number: int) -> None:
        """A lane is not read here any more. Called by the loop."""
        self._sealing.left(number)

    async def close(self) -> None:
        """End the connections to other processes."""
        if self._session is not None:
            await self._session.close()

    def _answering(self, handle: Respond) -> Respond:
        async def answer(request: PushRequest) -> web.Response:
            try:
                return await self._held(request, handle)
            except NotTaken as refusal:
                return refusal.response()

        return answer

    async def _held(self, request: PushRequest, handle: Respond) -> web.Response:
        """Answer a request whose body this process has room for."""
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise NotTaken(415, "a body is sent as it is, without Content-Encoding")
        nbytes = self.size(request) if request.body_exists else 0
        if self._held_bytes and self._held_bytes + nbytes > HELD_BYTES:
            raise NotTaken(429, "too much has come at once", 0.1)
        self._held_bytes += nbytes
        try:
            return await handle(request)
        finally:
            self._held_bytes -= nbytes

    async def _about(self, request: PushRequest) -> web.Response:
        """What a client may want to know before it sends records."""
        fields = [f.name for f in record_schema(self._record).fields]
        return answered({"lanes": self.lanes, "max_bytes": self._biggest, "fields": fields})

    # ------------------------------------------------------------ records

    async def _push(self, request: PushRequest) -> web.Response:
        sent = _sent(request)
        nbytes = self.size(request)
        number = self._lane_for(request, sent)
        lane = self.own.get(number)
        if lane is None:
            return await self.pass_on(request, number, nbytes, (SENDER, SEQUENCE))
        if lane.ended:
            raise NotTaken(410, "the input has ended")
        if lane.full(nbytes):
            raise NotTaken(429, "what has come is not recorded yet", 0.1)
        lane.held_bytes += nbytes
        lane.held += 1
        try:
            return await self._take(request, lane, sent)
        finally:
            lane.held_bytes -= nbytes
            lane.held -= 1

    def size(self, request: PushRequest) -> int:
        """The bytes of a body; as many as it may have if it does not say."""
        size = self._biggest if request.content_length is None else request.content_length
        if size > self._biggest:
            raise NotTaken(413, f"{size:,} bytes: at most {self._biggest:,} at once")
        return size

    def passed_to(self, request: PushRequest) -> int | None:
        """The lane of this process for which another one has passed a request on, if one has."""
        if LANE not in request.headers:
            return None
        number = number_in(request.headers, LANE, self.lanes)
        if number not in self.own:
            raise NotTaken(503, "the lane has moved", 0.2)
        return number

    def _lane_for(self, request: PushRequest, sent: tuple[str, int] | None) -> int:
        if (passed := self.passed_to(request)) is not None:
            return passed
        if sent is not None:
            return lane_of(sent[0], self.lanes)
        here = [n for n, lane in self.own.items() if not lane.ended]
        return random.choice(here or range(self.lanes))

    async def _take(
        self, request: PushRequest, lane: Lane, sent: tuple[str, int] | None
    ) -> web.Response:
        batch = await self.batch(request)
        answer: dict[str, Any] = {"records": len(batch)}
        if sent is not None:
            answer["sequence"] = sent[1]
        if not len(batch):
            return answered(answer)
        if sent is not None and (last := lane.sequences.follows(*sent)) is not None:
            raise NotTaken(
                409,
                f"{SEQUENCE} {sent[1]} of {sent[0]} does not follow {last}, the last one that came:"
                f" send {last + 1} first, and one request after the other",
                0.2,  # of a lane that has just moved not all may be known
            )
        waiting = Waiting(batch, sent, asyncio.get_running_loop().create_future())
        if not lane.put(waiting):
            raise NotTaken(503, "the lane has moved, or has ended", 0.2)
        try:
            recorded = await asyncio.wait_for(waiting.answer, ANSWER_SECONDS)
        except TimeoutError:
            recorded = False
        if not recorded:
            raise NotTaken(503, "it is not known whether this was recorded: send it again", 0.2)
        return answered(answer)

    async def batch(self, request: PushRequest) -> Batch[Any]:
        """The records in the body of a request.

        Raises:
            NotTaken: something in it is none.
        """
        body = await self.body(request)
        arrow, most = request.content_type == ARROW, UNPACKED * self._biggest
        decode = partial(decoded, self._record, arrow=arrow, most=most)
        try:
            if len(body) <= AT_ONCE:
                return decode(body)
            return await asyncio.get_running_loop().run_in_executor(None, decode, body)
        except InputError as error:
            raise NotTaken(400, str(error)) from None

    async def body(self, request: PushRequest) -> bytes:
        try:
            return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise NotTaken(413, f"at most {self._biggest:,} bytes at once") from None

    async def pass_on(
        self, request: PushRequest, number: int, nbytes: int, headers: Collection[str]
    ) -> web.Response:
        """Let the owner of the lane answer. headers: those that it needs to see."""
        if self._passing and self._passing + nbytes > LANE_BYTES:
            raise NotTaken(429, "what is passed on is not recorded yet", 0.1)
        self._passing += nbytes
        try:
            body = await self.body(request)
            kept = {k: v for k in headers if (v := request.headers.get(k)) is not None}
            kept["Content-Type"] = request.headers.get("Content-Type", "application/jsonl")
            return await self.ask(number, request.path, body, kept)
        finally:
            self._passing -= nbytes

    async def ask(
        self, number: int, path: str, body: bytes, headers: dict[str, str]
    ) -> web.Response:
        """The answer of the process that owns a lane."""
        loop = asyncio.get_running_loop()
        try:
            address = await loop.run_in_executor(None, self._owner, number)
        except Exception:  # whatever keeps the cluster from answering
            address = ""
        if not address:
            raise NotTaken(503, f"lane {number} is not served yet", 0.2)
        if self._session is None:
            self._session = ClientSession(timeout=ClientTimeout(PASS_SECONDS, sock_connect=5.0))
        headers |= {LANE: str(number), "Authorization": f"Bearer {self._token}"}
        try:
            async with self._session.post(
                f"{'http' if self._tls is None else 'https'}://{address}{path}",
                data=body,
                headers=headers,
                ssl=True if self._tls is None else self._tls,
                server_hostname=None if self._tls is None else NAME,
            ) as found:
                kept = {k: v for k in ("Retry-After",) if (v := found.headers.get(k)) is not None}
                return web.Response(
                    body=await found.read(),
                    status=found.status,
                    headers=kept,
                    content_type="application/json",
                )
        except (ClientError, OSError, TimeoutError):
            raise NotTaken(503, f"the instance with lane {number} does not answer", 0.2) from None

    # ------------------------------------------------------------ the end

    async def _end(self, request: PushRequest) -> web.Response:
        """End all lanes, and answer when that is recorded; of a request that was passed on, one."""
        number = self.passed_to(request)
        if number is not None:
            await self._end_here(self.own[number])
            return answered({"ended": True})
        lanes = range(self.lanes)
        ended = await asyncio.gather(*(self._end_lane(n, request.path) for n in lanes))
        if not all(ended):
            raise NotTaken(503, f"lane {ended.index(False)} has not ended: send it again", 0.2)
        return answered({"ended": True})

    async def _end_lane(self, number: int, path: str) -> bool:
        """Whether the end of a lane is recorded."""
        try:
            if (lane := self.own.get(number)) is not None:
                await self._end_here(lane)
                return True
            return (await self.ask(number, path, b"", {})).status == 200
        except NotTaken:
            return False

    async def _end_here(self, lane: Lane) -> None:
        try:
            recorded = await asyncio.wait_for(lane.end(), ANSWER_SECONDS)
        except TimeoutError:
            recorded = False
        if not recorded:
            raise NotTaken(503, "it is not known whether the end is recorded: send it again", 0.2)


def _sent(request: PushRequest) -> tuple[str, int] | None:
    """The sender and sequence that a request says."""
    sender, sequence = request.headers.get(SENDER), request.headers.get(SEQUENCE)
    if sender is None and sequence is None:
        return None
    if not sender or sequence is None or len(sender) > SENDER_LENGTH:
        raise NotTaken(
            400, f"{SENDER} (up to {SENDER_LENGTH} characters) and {SEQUENCE} go together"
        )
    if not sender.isprintable():  # nor is a byte that is no UTF-8
        raise NotTaken(400, f"{SENDER}: {sender!a:.80} is no text")
    return sender, number_in(request.headers, SEQUENCE, SEQUENCES)
