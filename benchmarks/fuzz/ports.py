"""The ports of a job, as a job opens them, in this process."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pyarrow as pa

import raystream as rs
from benchmarks.fuzz.noise import changed, noise
from benchmarks.fuzz.target import Struck, Wrong
from raystream.actors.keepers.register_port import RegisterPort
from raystream.actors.network import frames
from raystream.actors.network.claims import ClaimConnection
from raystream.actors.network.connections import Joining
from raystream.actors.network.frames import (
    ACCEPTED,
    CLAIM,
    CLAIMS,
    EPOCH,
    HELD,
    PIECES,
    REFUSED,
    REPLY,
    TICKET,
    Reader,
)
from raystream.actors.network.wire import Ticket
from raystream.actors.worker.shell import Role, Shell
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.assignment import Assignment, Serving
from raystream.dataflow.register import Boundaries, Boundary, HeldBoundary
from raystream.io.push.source import Pushed
from raystream.page.doors import Doors
from raystream.push import arrow_body
from raystream.schema.types import KeyRange, LocalDirectory, SourceContext
from raystream.security.certificates import made
from raystream.security.contexts import NAME, Certificates, connecting
from raystream.security.credentials import Credentials

HOST = "127.0.0.1"
ANSWER_SECONDS = 30.0
"""Seconds within which a port answers a client that may have what it asks for; otherwise it
hangs."""
SILENT_SECONDS = 0.1
"""Seconds to wait for an answer that may not come, such as to half a request."""
ANSWER_BYTES = 1 << 20
TOKEN = "the-token-of-this-run-of-the-job"
WRONG = "x" * len(TOKEN)
END = Boundary(1, 1, False)


class Reading(NamedTuple):
    time: int
    text: str = ""
    value: float = 0.0


class Listening:
    """A port, and how to speak to it."""

    def __init__(self, address: str, certificates: Certificates | None) -> None:
        host, _, port = address.rpartition(":")
        self._where = host, int(port)
        self._tls = None if certificates is None else connecting(certificates)

    def said(self, data: bytes, *, tls: bool, seconds: float = SILENT_SECONDS) -> bytes:
        """The answer to some bytes.

        Args:
            tls: speak TLS, if the port does.
            seconds: how long to wait while nothing comes.
        """
        found = b""
        with ExitStack() as after:
            connection = after.enter_context(socket.create_connection(self._where, ANSWER_SECONDS))
            with suppress(OSError):  # it was ended at once, or nothing comes
                if tls and self._tls is not None:
                    connection = after.enter_context(
                        self._tls.wrap_socket(connection, server_hostname=NAME)
                    )
                connection.sendall(data)
                connection.settimeout(seconds)
                while len(found) < ANSWER_BYTES and not _whole(found):
                    if not (more := connection.recv(1 << 16)):
                        break
                    found += more
        return found


def _whole(answer: bytes) -> bool:
    """Whether an answer of HTTP, or a frame that refuses, is complete. The connection may stay open
    after that."""
    head, ends, body = answer.partition(b"\r\n\r\n")
    if answer.startswith(b"HTTP/") and ends:
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return length.isdigit() and len(body) >= int(length)
    return answer[:1] == bytes([REFUSED])


# ------------------------------------------------------------------------------ the data port


class Rows:
    """A source of ten records."""

    record = Reading

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("rows")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Reading]]]:
        times = np.arange(10)
        yield 10, rs.Batch(Reading, {"time": times, "text": [""] * 10, "value": times / 2})


class DataPort:
    """The port of an instance of a source."""

    def __init__(self, certificates: Certificates | None = None) -> None:
        flow = rs.Flow("struck")
        flow.source(Rows(), epochs=rs.by_time(seconds=1), name="rows").to(rs.io.console())
        plan = make_plan(flow, checkpoint_every=1000)
        role = Role(vertex=0, keys=KeyRange(0, plan.groups), name="rows/0", index=0)
        credentials = Credentials(TOKEN, certificates)
        self._shell = Shell(plan, role, credentials=credentials)
        self._joining = Joining(credentials)
        (self._edge,) = self._shell.vertex.outputs
        reader = Serving(self._edge.consumer, role.keys, "sink/0", "nowhere:1")
        mine = Serving(0, role.keys, "rows/0", self._shell.address)
        self._shell.assign(Assignment(1, (mine, reader)))
        self._listening = Listening(self._shell.address, certificates)
        self._keys = role.keys

    def close(self) -> None:
        """End the instance."""
        self._shell.stop()

    def _frame(self, token: str) -> bytes:
        ticket = Ticket(token, "sink/0", self._edge.id, self._keys, 1).pack()
        return frames.packed(TICKET, ticket)

    def strike(self, draw: random.Random, struck: Struck) -> None:
        """Send noise, or a ticket that is nearly right, never with the token."""
        data = noise(draw) if draw.random() < 0.2 else changed(draw, self._frame(WRONG))
        said = self._listening.said(data, tls=draw.random() < 0.8)
        if said and said[0] in (ACCEPTED, PIECES, EPOCH, REPLY):
            raise Wrong(f"{said[:100]!r} to {data[:200]!r}")
        if b"token-of-this" in said:
            raise Wrong(f"the token in {said[:100]!r}")
        struck.note(len(data), "no" if said else "nothing")

    def lives(self) -> None:
        """Subscribe as a consumer of the job does."""
        with self._joining.connect(self._shell.address) as connection, Reader(connection) as reader:
            connection.settimeout(ANSWER_SECONDS)
            connection.sendall(self._frame(TOKEN))
            found = reader.read()
        if found is None or found.kind != ACCEPTED:
            raise Wrong(f"a consumer of the job was answered {found}")


class ClaimPort:
    """The port of a keeper."""

    def __init__(self, certificates: Certificates | None = None) -> None:
        self._joining = Joining(Credentials(TOKEN, certificates))
        self._port = RegisterPort(self._joining)
        self._port.ask(lambda register: register.fill(1, Boundaries()))
        self._address = self._port.address(HOST)
        self._listening = Listening(self._address, certificates)
        self._epoch = 0

    def close(self) -> None:
        """Close the port."""
        self._port.stop()

    def strike(self, draw: random.Random, struck: Struck) -> None:
        """Send noise, or a first frame and a claim that are nearly right, never with the token."""
        claim = msgpack.packb([1, 1, {"a": Boundary(5, 5, False, rows=b"rows")}])
        frame = frames.packed(CLAIMS, WRONG.encode()) + frames.packed(
            CLAIM, b"", [memoryview(claim)]
        )
        data = noise(draw) if draw.random() < 0.2 else changed(draw, frame)
        said = self._listening.said(data, tls=draw.random() < 0.8)
        if (said and said[0] in (ACCEPTED, HELD)) or b"token-of-this" in said:
            raise Wrong(f"{said[:100]!r} to {data[:200]!r}")
        struck.note(len(data), "no" if said else "nothing")

    def lives(self) -> None:
        """Claim as an instance of the job does."""
        self._epoch += 1
        line, wanted = ClaimConnection(self._address, self._joining, ANSWER_SECONDS), {"b": END}
        try:
            if line.claim(1, self._epoch, wanted) != {"b": HeldBoundary(END, self._epoch)}:
                raise Wrong("a claim of the job was not taken")
            if any(name != "b" for name, _ in line.look(1, 1, ["a", "b"]) or ()):
                raise Wrong("a stranger has claimed")
        finally:
            line.close()


# ------------------------------------------------------------------------------ the push port

_LINES = b'{"time": 1, "text": "a"}\n{"time": 2, "value": 1.5}\n'
_TABLE = pa.table({"time": range(50), "text": ["abc"] * 50, "value": [1.5] * 50})


def _ipc(compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, _TABLE.schema, options=options) as writer:
        writer.write_table(_TABLE)
    return bytes(sink.getvalue().to_pybytes())


_SEAL = {"query": "q", "batch": 1, "order": ["time"], "attempts": [["a", {"0": 1}]]}
BODIES: dict[str, tuple[str, bytes]] = {
    "": ("application/jsonl", _LINES),
    "?arrow": ("application/vnd.apache.arrow.stream", arrow_body(_TABLE)),
    "?zstd": ("application/vnd.apache.arrow.stream", _ipc("zstd")),
    "?lz4": ("application/vnd.apache.arrow.stream", _ipc("lz4")),
    "/stage": ("application/jsonl", _LINES),
    "/seal": ("application/json", json.dumps(_SEAL).encode()),
    "/drop": ("application/json", json.dumps(_SEAL).encode()),
}
"""The type and the body of a request, by its path below that of the source."""
_HEADERS = {
    "Raystream-Sender": "somebody", "Raystream-Sequence": "7", "Raystream-Lane": "0",
    "Raystream-Query": "q", "Raystream-Attempt": "a", "Raystream-Part": "0", "Raystream-To": "1",
    "Content-Encoding": "gzip", "Expect": "100-continue",
}  # fmt: skip


class PushPort:
    """The fixed port of a push source with two lanes, which records everything at once."""

    def __init__(self, certificates: Certificates | None = None) -> None:
        with socket.socket() as free:
            free.bind((HOST, 0))
            port = free.getsockname()[1]
        self._source = Pushed(Reading, port, 2, "/push", TOKEN, 1 << 20)
        context = SourceContext("run", "pushed", HOST, False, LocalDirectory(), certificates)
        self._source.open(context)
        self._over = threading.Event()
        for split in self._source.splits():
            threading.Thread(target=self._take, args=(split,), daemon=True).start()
        self._listening = Listening(f"{HOST}:{port}", certificates)
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            with suppress(Wrong):
                self.lives()
                return
        self.lives()

    def _take(self, split: rs.Split) -> None:
        for number, *_ in self._source.read(split, 0):
            self._source.acknowledge(split, number)
            if self._over.is_set():
                return

    def close(self) -> None:
        """End the source."""
        self._over.set()
        self._source.close()

    def _request(self, draw: random.Random, token: str, *, damaged: bool) -> bytes:
        """A request that is nearly right.

        Args:
            damaged: damage the body alone, so that the token always arrives.
        """
        path, (kind, body) = draw.choice([*BODIES.items()])
        body = changed(draw, body, [b for _, b in BODIES.values()])
        shown = {"Host": HOST, "Authorization": f"Bearer {token}", "Content-Type": kind}
        for name, value in _HEADERS.items():
            if draw.random() < (0.1 if name in ("Content-Encoding", "Expect") else 0.5):
                text = changed(draw, value.encode()) if draw.random() < 0.3 else value.encode()
                shown[name] = bytes(c for c in text if 31 < c < 127).decode()
        shown |= {"Content-Length": f"{len(body)}", "Connection": "close"}
        head = f"POST /push{path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in shown.items())
        data = f"{head}\r\n".encode() + body
        return data if damaged else changed(draw, data)

    def strike(self, draw: random.Random, struck: Struck) -> None:
        """Send noise, a request with another token that is damaged anywhere, or a request with the
        token and a damaged body."""
        which = draw.random()
        if which < 0.1:
            data, allowed = noise(draw), False
        elif which < 0.5:
            data, allowed = self._request(draw, WRONG, damaged=False), False
        else:
            data, allowed = self._request(draw, TOKEN, damaged=True), True
        said = self._listening.said(data, tls=draw.random() < 0.9)
        status = said[9:12].decode("latin-1") if said.startswith(b"HTTP/1.") else ""
        if status.startswith("2") and not allowed:
            raise Wrong(f"{said[:200]!r} to {data[:300]!r}")
        if status.startswith("5") and status != "503":
            raise Wrong(f"{said[:200]!r} to {data[:3000]!r}")
        if TOKEN.encode() in said and not allowed:
            raise Wrong(f"the token in {said[:200]!r}")
        struck.note(len(data), status or "nothing")

    def lives(self) -> None:
        """Push a record."""
        head = f"POST /push HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n"
        body = b'{"time": 1}'
        said = self._listening.said(
            f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body,
            tls=True,
            seconds=ANSWER_SECONDS,
        )
        if not said.startswith(b"HTTP/1.1 200"):
            raise Wrong(f"a record was answered {said[:200]!r}")


# ------------------------------------------------------------------------------ the page


class PagePort:
    """The port of the page: its doors, in the page's server, before a stub that answers all that it
    is asked."""

    def __init__(self, certificates: Certificates | None = None) -> None:
        import uvicorn

        with socket.socket() as free:
            free.bind((HOST, 0))
            self._port = free.getsockname()[1]

        async def inside(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "websocket":
                await send({"type": "websocket.accept"})
                return
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"inside"})

        app: Any = Doors(inside, token=TOKEN, port=self._port)
        config = uvicorn.Config(
            app, host=HOST, port=self._port, log_config=None, lifespan="off", access_log=False
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        self._listening = Listening(f"{HOST}:{self._port}", None)

    def close(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join(ANSWER_SECONDS)

    def _request(self, token: str, *, socket_too: bool) -> bytes:
        lines = [f"GET /?a=b&token={token} HTTP/1.1", f"Host: {HOST}", "Connection: close"]
        lines += [f"Cookie: raystream_page_{self._port}={token}"]
        if socket_too:
            lines[0] = f"GET /_nicegui_ws/socket.io/?EIO=4&token={token} HTTP/1.1"
            lines[2] = "Connection: Upgrade"
            lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13"]
            lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        return "\r\n".join([*lines, "", ""]).encode()

    def strike(self, draw: random.Random, struck: Struck) -> None:
        """Send noise, or a request with another token."""
        if draw.random() < 0.2:
            data = noise(draw)
        else:
            data = changed(draw, self._request(WRONG, socket_too=draw.random() < 0.4))
        said = self._listening.said(data, tls=False)
        status = said[9:12].decode("latin-1") if said.startswith(b"HTTP/1.") else ""
        if status == "101" or status[:1] in ("2", "3") or b"inside" in said:
            raise Wrong(f"{said[:200]!r} to {data[:300]!r}")
        if status.startswith("5"):
            raise Wrong(f"{said[:200]!r} to {data[:3000]!r}")
        struck.note(len(data), status or "nothing")

    def lives(self) -> None:
        """Open the page with its cookie."""
        head = f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n"
        cookie = f"Cookie: raystream_page_{self._port}={TOKEN}\r\n\r\n"
        request = (head + cookie).encode()
        said = self._listening.said(request, tls=False, seconds=ANSWER_SECONDS)
        if b"inside" not in said:
            raise Wrong(f"the page was answered {said[:200]!r}")


PORTS: dict[str, Any] = {"data": DataPort, "claims": ClaimPort, "push": PushPort, "page": PagePort}
WITH_TLS = ("data", "claims", "push")
"""The ports that speak TLS if the job does."""


@contextmanager
def port(name: str, *, tls: bool) -> Iterator[Any]:
    """A port of a job; with TLS, if it has that."""
    certificates = made(days=1) if tls else None
    found = PORTS[name](certificates)
    try:
        yield found
    finally:
        found.close()
