"""Rows of state of a running job over HTTP, for programs that are not Python or not near Ray.

    POST /OPERATOR   {"keys": [...], "committed": false, "seen": [run, epoch]}
    answer           {"seen": [run, epoch],
                      "rows": [{"key": ..., "row": {...} or null, "run": 1, "epoch": 7}, ...]}

The server is a client of the job and keeps no state, so several servers may run side by side. Each
request shows the server's token. With `seen` it asks for no earlier state than that moment.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp import web

from raystream.actors.client.querying import KeyState, StateReader, query
from raystream.actors.client.state_text import plain
from raystream.dataflow.queries.looking import KEYS_MAX
from raystream.dataflow.queries.request import Moment
from raystream.errors import ConfigError, JobError, RaystreamError
from raystream.io.push.requests import NotTaken, answered

BODY_BYTES = 1 << 20
"""A request has at most this many bytes."""
AT_ONCE = 8
"""The server works on at most this many requests at once; others wait."""
OPERATORS_MAX = 64
"""The server keeps readers for at most this many operators, whatever a client asks for."""
AGAIN_SECONDS = 0.5
"""A client may ask again after this time (`Retry-After`)."""


class StateServer:
    """Answers requests for rows of state of one job.

    Args:
        job: the name of a job, or of one of its runs.
        address: that of the job's Ray cluster.
        token: what each request has to show.
        wait: seconds that an answer may take.
    """

    def __init__(self, job: str, *, address: str, token: str, wait: float) -> None:
        self._job, self._address, self._token, self._wait = job, address, token.encode(), wait
        self._idle: dict[str, queue.SimpleQueue[StateReader]] = {}
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="state")

    def application(self) -> web.Application:
        """The application that serves the requests."""
        made = web.Application(client_max_size=BODY_BYTES)
        made.router.add_post("/{operator}", self._post)
        return made

    def close(self) -> None:
        """Close all connections to the job."""
        self._threads.shutdown(cancel_futures=True)
        for idle in self._idle.values():
            while not idle.empty():
                idle.get().close()

    async def _post(self, request: web.Request) -> web.Response:
        try:
            shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(shown.encode(errors="replace"), self._token):
                raise NotTaken(401, "a request shows the token: Authorization: Bearer TOKEN")
            keys, committed, seen = _asked(await request.read())
            operator = request.match_info["operator"]
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._threads, self._answer, operator, keys, committed, seen
            )
        except NotTaken as refusal:
            return refusal.response()

    def _answer(
        self, operator: str, keys: list[Any], committed: bool, seen: Moment
    ) -> web.Response:
        """Read rows, on a thread, with a reader that no other thread uses meanwhile."""
        try:
            reader = self._reader(operator)
            reader.seen = seen
            found = reader.get_many([_tuples(key) for key in keys], committed=committed)
        except ConfigError as error:
            raise NotTaken(400, str(error)) from None
        except JobError as error:
            raise NotTaken(503, str(error), AGAIN_SECONDS) from None
        except RaystreamError as error:
            raise NotTaken(410, str(error)) from None
        self._idle[operator].put(reader)
        rows = [as_json(key, each) for key, each in zip(keys, found, strict=True)]
        return answered({"seen": list(reader.seen), "rows": rows})

    def _reader(self, operator: str) -> StateReader:
        """An idle reader of an operator, or a new one. A reader that raised is not used again."""
        try:
            return self._idle[operator].get_nowait()
        except (KeyError, queue.Empty):
            made = query(self._job, operator, address=self._address, wait=self._wait)
            if operator not in self._idle and len(self._idle) >= OPERATORS_MAX:
                made.close()
                raise ConfigError(f"at most {OPERATORS_MAX} operators are asked for") from None
            self._idle.setdefault(operator, queue.SimpleQueue())
            return made


def serve_state(
    job: str,
    address: str,
    *,
    host: str,
    port: int,
    token: str,
    wait: float,
    tell: Callable[[str], None],
) -> None:
    """Answer requests until the process is interrupted. See `StateServer`.

    Args:
        host: the address at which the server listens.
        port: 0 for any that is free.
        tell: called with the URL of the server once it listens.

    Raises:
        ConfigError: the server cannot listen there.
    """
    server = StateServer(job, address=address, token=token, wait=wait)

    async def run() -> None:
        runner = web.AppRunner(server.application(), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            (bound, *_) = runner.addresses
            shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
            tell(f"http://{shown}:{bound[1]}")
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    try:
        asyncio.run(run())
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="Give another port, or 0 for any that is free.",
        ) from None
    finally:
        server.close()


def _asked(body: bytes) -> tuple[list[Any], bool, Moment]:
    try:
        asked = json.loads(body)
        keys, committed = asked["keys"], asked.get("committed", False)
        run, epoch = asked.get("seen", (0, 0))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        keys = run = epoch = committed = None
    whole = type(run) is type(epoch) is int and type(committed) is bool
    if not (whole and isinstance(keys, list) and all(map(_is_key, keys))):
        example = '{"keys": ["a", "b"], "committed": false, "seen": [0, 0]}'
        raise NotTaken(400, f"a request is an object like {example}")
    if len(keys) > KEYS_MAX:
        raise NotTaken(400, f"a request is for {KEYS_MAX} keys at most, not {len(keys)}")
    return keys, bool(committed), Moment(run, epoch)


def _is_key(key: Any) -> bool:
    parts = key if isinstance(key, list) else [key]
    return all(part is None or isinstance(part, str | int) for part in parts)


def _tuples(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


def as_json(key: Any, found: KeyState) -> dict[str, Any]:
    """An answer for one key as JSON: bytes in base64, decimals and dates as text."""
    row = None if found.row is None else {n: plain(v) for n, v in found.row.items()}
    return {"key": plain(key), "row": row, "run": found.moment.run, "epoch": found.moment.epoch}
