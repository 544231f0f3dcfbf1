"""A client that pushes records into a running job whose source is `rs.io.push`.

    with Client("http://127.0.0.1:7700", token="secret") as client:
        for order in orders:
            client.push(order)

`AsyncClient` is the same for programs with an event loop. They need nothing but Python, and neither
Ray nor the job's code. What a client sends is sent again until it is recorded, and counts once:
each client has a name of its own and numbers what it sends.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime
import enum
import http.client
import json
import os
import random
import ssl
import time
import urllib.parse
import uuid
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from decimal import Decimal
from typing import Any

from raystream.errors import ConfigError, InputError, JobError
from raystream.schema.lengths import Seconds, seconds_of
from raystream.security.certificates import read
from raystream.security.contexts import NAME, Certificates, connecting

BATCH_RECORDS = 1000
BATCH_BYTES = 4 << 20
"""A client sends a batch when it has this many bytes, whatever its number of records."""
TIMEOUT_SECONDS = 75.0
"""How long an answer is waited for: longer than the job waits until a request is recorded."""
GIVE_UP_SECONDS = 300.0
GAP_SECONDS = 10.0
"""How long a job may say that a request before this one is missing: a lane that has moved may not
know at once what is recorded."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds before a request is sent again; they double each time."""
LINES = "application/jsonl"
ARROW = "application/vnd.apache.arrow.stream"


class Client:
    """Sends records in batches, one request after the other. Not for several threads at once.

    Args:
        addresses: where instances of the source listen: `http://host:7700`, or a list of these, of
            which one that does not answer is left for the next.
        token: that of the source.
        path: that of the source.
        sender: a name that no other client has, of up to 200 characters; a new one unless given.
        sequence: the number of the first request. A client that goes on under the name of an
            earlier one goes on after the last number of that one, too: `client.sequence`.
        batch: how many records are sent at once, at most.
        give_up: after how long a request that is not recorded is an error: seconds, a timedelta or
            text such as "5m".
        tls: the folder with the certificates, for a job that runs with `tls`; the client shows
            them as well. An https:// address without `tls` is that of a proxy before the job: its
            certificate is checked as browsers do, for the host name.

    Raises:
        ConfigError: an address or a length of time is none, or the certificates cannot be used.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        token: str,
        *,
        path: str = "/push",
        sender: str | None = None,
        sequence: int = 1,
        batch: int = BATCH_RECORDS,
        give_up: Seconds = GIVE_UP_SECONDS,
        tls: str | os.PathLike[str] | Certificates | None = None,
    ) -> None:
        given = [addresses] if isinstance(addresses, str) else [*addresses]
        self._tls = None
        if tls is not None:
            self._tls = connecting(tls if isinstance(tls, Certificates) else read(tls))
        self._addresses = [_address(address, tls is not None) for address in given]
        if not self._addresses:
            raise ConfigError("Client: at least one address")
        self._at = 0
        self._connection: http.client.HTTPConnection | None = None
        self._token, self._path = token, path
        self.sender = sender or uuid.uuid4().hex
        """The name of this client."""
        self.sequence = sequence
        """The number of the next request."""
        self._batch = batch
        self._give_up = give_up_of(give_up)
        self._lines: list[bytes] = []
        self._nbytes = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.flush()
        finally:
            self.close()

    def push(self, record: Any, /) -> None:
        """Send a record, with others: when it returns, it may not be recorded yet (`flush`).

        Args:
            record: a mapping of names to values, a named tuple or a dataclass.

        Raises:
            TypeError: it is nothing of these. Otherwise as `flush`.
        """
        line = f"{json.dumps(_object(record), default=_plain)}\n".encode()
        self._lines.append(line)
        self._nbytes += len(line)
        if len(self._lines) >= self._batch or self._nbytes >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Return when all that was pushed is recorded.

        Raises:
            InputError: the job refuses a record; nothing of the batch is taken.
            ConfigError: it does not accept the token.
            JobError: its input has ended, or it has not answered for long. What was pushed stays,
            and is sent again by the next call.
        """
        if self._lines:
            try:
                self._send(b"".join(self._lines), LINES)
            except InputError:
                self._forget()
                raise
            self._forget()

    def push_arrow(self, data: Any, /) -> None:
        """Send a PyArrow table or record batch, and return when it is recorded.

        Raises:
            As `flush`.
        """
        self.flush()
        if data.num_rows:
            self._send(arrow_body(data), ARROW)

    def end(self) -> None:
        """End the input of the job, for all clients.

        Raises:
            As `flush`.
        """
        self.flush()
        self._until(f"{self._path.rstrip('/')}/end", b"", {}, also=410)

    def close(self) -> None:
        """Close the connection. What was pushed and not flushed is not sent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------ requests

    def _forget(self) -> None:
        self._lines, self._nbytes = [], 0

    def _send(self, body: bytes, kind: str) -> None:
        self._until(
            self._path,
            body,
            {
                "Content-Type": kind,
                "Raystream-Sender": self.sender,
                "Raystream-Sequence": str(self.sequence),
            },
        )
        self.sequence += 1

    def request(self, path: str, body: bytes = b"", headers: Mapping[str, str] = {}) -> Any:
        """Post a request of another kind, again until it is answered, and return what the answer
        says (JSON). Without a body: get it.

        Args:
            path: what follows the path of the source, such as "/seal".

        Raises:
            As `flush`.
        """
        method = "POST" if body else "GET"
        return self._until(f"{self._path.rstrip('/')}{path}", body, dict(headers), method=method)

    def _until(
        self, path: str, body: bytes, headers: dict[str, str], also: int = 200, method: str = "POST"
    ) -> Any:
        """Send a request until it is answered with 200, or with the status `also`."""
        give_up, pause = time.monotonic() + self._give_up, FIRST_PAUSE
        gap = time.monotonic() + GAP_SECONDS
        while True:
            status, answer, again = self._once(method, path, body, headers)
            if status in (200, also):
                return answer
            said = answer.get("error") if isinstance(answer, dict) else answer
            if status == 401:
                raise ConfigError(f"the job does not accept the token: {said}")
            if status in (400, 404, 405, 413, 415) or (
                status == 409 and (not again or time.monotonic() > gap)
            ):
                raise InputError(f"the job refuses the request: {said}")
            if status == 410:
                raise JobError(str(said))
            if time.monotonic() > give_up:
                raise JobError(f"not recorded within {self._give_up:g} s: {said}")
            time.sleep(max(again, pause * random.uniform(0.5, 1.0)))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _once(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, Any, float]:
        """The status of an answer, what it says, and after how many seconds to ask again. The
        status is 0 if there is none."""
        host, port, secure = self._addresses[self._at]
        try:
            if self._connection is None:
                if self._tls is not None:
                    self._connection = _OfJob(host, port, self._tls)
                else:
                    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
                    self._connection = kind(host, port, timeout=TIMEOUT_SECONDS)
            self._connection.request(
                method, path, body or None, headers | {"Authorization": f"Bearer {self._token}"}
            )
            answer = self._connection.getresponse()
            said = answer.read().decode(errors="replace")
            again = answer.headers.get("Retry-After", "")
            if answer.status >= 500:
                self._next()
            return answer.status, _said(said), _seconds(again)
        except (OSError, http.client.HTTPException) as error:
            self._next()
            return 0, f"{host}:{port}: {type(error).__name__}: {error}", 0.0

    def _next(self) -> None:
        """Ask the next address from now on."""
        self.close()
        self._at = (self._at + 1) % len(self._addresses)


def give_up_of(given: Seconds) -> float:
    """After how many seconds a request that is not recorded is an error.

    Raises:
        ConfigError: it is no length of time.
    """
    return float(seconds_of("Client", "give_up", given, zero=True, error=ConfigError))


class AsyncClient:
    """The same for tasks of an event loop, any number of them:

        async with AsyncClient("http://127.0.0.1:7700", token="secret") as client:
            await client.push(order)

    What tasks push while a batch is on its way goes with the next one. `push` waits where the job
    is slower than what is pushed. Requests are sent by a thread, so the loop is never blocked.

    Args:
        client: as of `Client`.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        token: str,
        *,
        batch: int = BATCH_RECORDS,
        **client: Any,
    ) -> None:
        self._client = Client(addresses, token, batch=batch, **client)
        self._batch = batch
        self._waiting: list[Any] = []
        self._sending = asyncio.Lock()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self.flush()
        finally:
            self._client.close()

    async def push(self, record: Any, /) -> None:
        """As `Client.push`."""
        self._waiting.append(record)
        if len(self._waiting) >= self._batch:
            await self.flush()

    async def flush(self) -> None:
        """As `Client.flush`, of what all tasks have pushed."""
        async with self._sending:
            records, self._waiting = deque(self._waiting), []
            try:
                await _finished(asyncio.to_thread(self._send, records))
            finally:
                self._waiting = [*records, *self._waiting]

    async def end(self) -> None:
        """As `Client.end`."""
        await self.flush()
        async with self._sending:
            await _finished(asyncio.to_thread(self._client.end))

    def _send(self, records: deque[Any]) -> None:
        while records:
            self._client.push(records.popleft())
        self._client.flush()


async def _finished(call: Coroutine[Any, Any, None]) -> None:
    """Wait for a call, also where the task that waits is cancelled: a client is not for two."""
    task = asyncio.ensure_future(call)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def arrow_body(data: Any) -> bytes:
    """A PyArrow table or record batch as the body of a request."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write(data)
    return bytes(sink.getvalue().to_pybytes())


class _OfJob(http.client.HTTPConnection):
    """A connection to a server that shows a certificate of the job, whatever its host name is."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=TIMEOUT_SECONDS)
        self._tls = tls

    def connect(self) -> None:
        super().connect()
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=NAME)


def _address(text: str, secure: bool) -> tuple[str, int, bool]:
    url = urllib.parse.urlsplit(
        text if "://" in text else f"{'https' if secure else 'http'}://{text}"
    )
    if secure and url.scheme == "http":
        raise ConfigError(f"{text!r} is no address for TLS", hint="https://... is one.")
    try:
        port = url.port or 7700
    except ValueError:
        port = 0
    if url.scheme not in ("http", "https") or not url.hostname or not port:
        raise ConfigError(f"{text!r} is no address", hint="For example http://127.0.0.1:7700.")
    return url.hostname, port, url.scheme == "https"


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _said(text: str) -> Any:
    """The body of an answer: JSON, or the text of another server."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()[:200]


def _object(record: Any) -> Any:
    """A record as an object of JSON."""
    if isinstance(record, Mapping):
        return {name: _inner(value) for name, value in record.items()}
    if hasattr(record, "_asdict"):
        return _object(record._asdict())
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: _inner(getattr(record, f.name)) for f in dataclasses.fields(record)}
    raise TypeError(f"a {type(record).__name__} is no record: a mapping, named tuple or dataclass")


def _inner(value: Any) -> Any:
    """A value inside of a record: records in it are objects, too."""
    if isinstance(value, list | tuple) and not hasattr(value, "_asdict"):
        return [_inner(item) for item in value]
    nested = isinstance(value, Mapping) or hasattr(value, "_asdict")
    if nested or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return _object(value)
    return value


def _plain(value: Any) -> Any:
    """A value that JSON does not have, as the job reads it."""
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        micros = value // datetime.timedelta(microseconds=1)
        return f"{'-' * (micros < 0)}{abs(micros) // 1_000_000}.{abs(micros) % 1_000_000:06}"
    if isinstance(value, enum.Enum):
        kinds = {type(member.value) for member in type(value)}
        return value.value if kinds in ({int}, {str}) else value.name
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal | uuid.UUID):
        return str(value)
    if hasattr(value, "item"):  # a number of NumPy
        return value.item()
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be sent as JSON")
