"""Serves the lanes of a source that a process owns, and passes on what is for other ones.

A process listens on two ports. One is its own, and other processes of the job find it in the
directory. The other is the fixed one that clients know: one process of each node listens there, and
when that ends another one does.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web

from raystream.errors import ConfigError
from raystream.io.push.handling import Handling
from raystream.io.push.lane import Lane
from raystream.schema.types import SourceContext
from raystream.security.contexts import accepting, connecting

if TYPE_CHECKING:
    from raystream.io.push.flight import FlightPort

BIND_SECONDS = 0.2
"""How soon a process looks again whether the fixed port of its node is free."""
FLUSH_SECONDS = 1.0
"""How long a process that ends waits for the answers that are under way."""
GOODBYE_SECONDS = 0.05
"""How long a connection with TLS has, once the server has ended, to send the last answers."""
START_SECONDS = 60.0
LOOPBACK = "127.0.0.1"


class Hub:
    """What serves in a process: a thread with an event loop.

    Args:
        context: where the source runs.
        port, flight: the fixed ports, for HTTP and for Arrow Flight.
        settings: the arguments of `Handling`, without those that the hub has.

    Raises:
        ConfigError: the fixed port is in use, and this is the only process of the job.
    """

    def __init__(
        self,
        context: SourceContext,
        port: int,
        lanes: int,
        flight: int | None = None,
        **settings: Any,
    ) -> None:
        self.lanes: dict[int, Lane] = {}
        self._context, self._port = context, port
        self._flight, self._token = flight, settings["token"]
        self._doors: list[FlightPort] = []
        self._known: dict[int, Mapping[str, int]] = {}
        self._knowing = threading.Lock()
        self.address = ""
        """Its own address, to which other processes pass requests on."""
        self._accepting: ssl.SSLContext | None = None
        joining: ssl.SSLContext | None = None
        if context.certificates is not None:
            self._accepting = accepting(context.certificates)
            joining = connecting(context.certificates)
        self._handling = Handling(
            own=self.lanes, lanes=lanes, owner=self._owner, tls=joining, **settings
        )
        self._loop = asyncio.new_event_loop()
        self._started: Future[None] = Future()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="push", daemon=True)
        self._thread.start()
        self._started.result(START_SECONDS)

    # ------------------------------------------------------------ lanes

    def knows(self, number: int, sequences: Mapping[str, int]) -> None:
        """What others have recorded of the senders of a lane that is served, or is to be."""
        with self._knowing:
            if (lane := self.lanes.get(number)) is not None:
                lane.knows(sequences)
            else:
                self._known[number] = {**self._known.get(number, {}), **sequences}

    def serve(self, number: int) -> Lane:
        """Take requests for a lane from now on."""
        with self._knowing:
            lane = Lane(number, self._loop, self._known.pop(number, None))
            self.lanes[number] = lane
        self._context.directory.put(self._key(number), self.address)
        return lane

    def ended(self, number: int) -> None:
        """The end of a lane is recorded. This process says so; another may have read it."""
        lane = self.lanes.get(number) or self.serve(number)
        lane.end_recorded()

    def leave(self, lane: Lane) -> None:
        """The lane is not read here any more. One that has ended still says so."""
        if not lane.over:
            if self.lanes.get(lane.number) is lane:
                del self.lanes[lane.number]
                with suppress(RuntimeError):  # it has ended meanwhile
                    self._loop.call_soon_threadsafe(self._handling.left, lane.number)
            lane.close()

    def _owner(self, number: int) -> str:
        address = self._context.directory.get(self._key(number))
        return "" if address == self.address else address

    def _key(self, number: int) -> str:
        return f"push:{self._context.run}:{self._context.source}:{number}"

    def close(self) -> None:
        """End the server. Requests without an answer are refused: they are to be sent again."""
        if self._thread.is_alive():
            for lane in [*self.lanes.values()]:
                lane.close()
            with suppress(RuntimeError):  # it has ended meanwhile
                self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join(FLUSH_SECONDS + 5.0)

    # ------------------------------------------------------------ its thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        runner = web.AppRunner(
            self._handling.application(),
            access_log=None,
            shutdown_timeout=FLUSH_SECONDS,
            auto_decompress=False,
        )
        await runner.setup()
        try:
            own = _listening(self._context.host, 0)
            await self._site(runner, own)
            host, port = own.getsockname()[:2]
            self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            fixed, door = await self._bind(runner), self._open_flight()
            for there, name, at in ((fixed, "port", self._port), (door, "flight", self._flight)):
                if not there and not self._context.cluster:
                    raise ConfigError(
                        f"push({name}={at}): another program listens there",
                        hint="Choose another port.",
                    )
            self._started.set_result(None)
            while not (fixed and door) and not self._ending.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), BIND_SECONDS)
                if not self._ending.is_set():
                    fixed = fixed or await self._bind(runner)
                    door = door or self._open_flight()
            await self._ending.wait()
        finally:
            await asyncio.gather(*(asyncio.to_thread(each.close) for each in self._doors))
            await self._leave(runner)
            await self._handling.close()

    async def _bind(self, runner: web.AppRunner) -> bool:
        """Listen on the fixed port of the node; False if another one does. Clients on the node
        itself also find it at the loopback address, if nobody else listens there."""
        host = self._context.host
        try:
            fixed = _listening(host, self._port)
        except OSError:
            return False
        await self._site(runner, fixed)
        if host != LOOPBACK:
            with suppress(OSError):
                await self._site(runner, _listening(LOOPBACK, self._port))
        return True

    def _open_flight(self) -> bool:
        """Listen for Arrow Flight as `_bind` does for HTTP, if that is wanted."""
        if self._flight is None:
            return True
        from raystream.io.push.flight import FlightPort

        def listen(host: str) -> None:
            # This port is asked for first: a server of Flight takes longer to say that it is taken.
            _listening(host, self._flight or 0).close()
            self._doors.append(
                FlightPort(
                    host,
                    self._flight or 0,
                    source=self._context.source,
                    token=self._token,
                    answer=self._handling.answer,
                    loop=self._loop,
                    tls=self._context.certificates,
                )
            )

        try:
            listen(self._context.host)
        except OSError:
            return False
        if self._context.host != LOOPBACK:
            with suppress(OSError):
                listen(LOOPBACK)
        return True

    async def _leave(self, runner: web.AppRunner) -> None:
        """End the server. With TLS a connection would wait for the other side to say goodbye, too:
        it is given a moment to send what was answered."""
        server = None if self._accepting is None else runner.server
        left = [] if server is None else [each.transport for each in server.connections]
        await runner.cleanup()
        if left:
            await asyncio.sleep(GOODBYE_SECONDS)
            for transport in left:
                if transport is not None:
                    transport.abort()
            await asyncio.sleep(0)

    async def _site(self, runner: web.AppRunner, listening: socket.socket) -> None:
        """Take requests at a socket."""
        await web.SockSite(runner, listening, ssl_context=self._accepting).start()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024)
