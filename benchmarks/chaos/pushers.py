"""Clients that push numbered records into a job, each a process that may be killed at any moment.

A client has a name of its own. Its request n holds the same records whenever it is made, and the
last one that was acknowledged is noted in a file. So a client that is started again goes on with
the request after that: what was on its way when it was killed comes again, under the same number.
Every other client pushes over Arrow Flight, the others over HTTP.

Now and then a request holds a record that is none, beside some that are. The job has to refuse it,
and none of its records may be in the output: they have numbers below 0.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from raystream.errors import InputError, JobError
from raystream.push import Client

REQUEST = 1_000
"""Records of a request."""
BUCKETS = 1_009
"""Records are counted by key: the number of the record modulo this."""
BAD_EVERY = 10
"""After so many requests comes one that is to be refused."""
GIVE_UP_SECONDS = 300.0
ANSWER_SECONDS = 75.0
_NOTE = struct.Struct("<qq")


@dataclass(frozen=True)
class Place:
    """Where clients push. port: of HTTP; flight: of Arrow Flight; source: its name in the flow."""

    port: int
    flight: int
    token: str
    source: str


@dataclass(frozen=True)
class PushTask:
    """What a client has to do.

    records: how many it has. rate: how many a second are due; 0: all at once. begun: the Unix time
    from which on they are due. note: the file that says how far it is.
    """

    place: Place
    client: int
    records: int
    rate: float
    begun: float
    note: Path

    @property
    def name(self) -> str:
        return f"client-{self.client}"

    def table(self, sequence: int) -> pa.RecordBatch:
        """The records of a request; there are none after the last one."""
        first = (sequence - 1) * REQUEST
        return _batch(self.client, np.arange(first, min(first + REQUEST, self.records)))

    def wait(self, sequence: int) -> None:
        """Wait until all records of a request are due."""
        if self.rate:
            due = self.begun + min(sequence * REQUEST, self.records) / self.rate
            time.sleep(max(0.0, due - time.time()))


def _batch(client: int, numbers: np.ndarray) -> pa.RecordBatch:
    columns = {
        "bucket": (numbers % BUCKETS).astype(np.int32),
        "client": np.full(len(numbers), client, np.int32),
        "number": numbers,
    }
    return pa.RecordBatch.from_pydict(columns)


class Way(Protocol):
    """How a client pushes."""

    def push(self, batch: pa.RecordBatch, sequence: int) -> None:
        """Return when a request is recorded.

        Raises:
            InputError: the job refuses it.
        """

    def bad(self, client: int, sequence: int) -> None:
        """Push a request that holds a record that is none. Raises as `push`."""


class OverHttp:
    """By the client of raystream."""

    def __init__(self, task: PushTask, sequence: int) -> None:
        place = task.place
        address = f"http://127.0.0.1:{place.port}"
        self._client = Client(
            address, place.token, sender=task.name, sequence=sequence, give_up=GIVE_UP_SECONDS
        )

    def push(self, batch: pa.RecordBatch, sequence: int) -> None:
        assert self._client.sequence == sequence
        self._client.push_arrow(batch)

    def bad(self, client: int, sequence: int) -> None:
        for number in (-1, -2, "none"):
            self._client.push({"bucket": 1, "client": client, "number": number})
        self._client.flush()


class OverFlight:
    """By pyarrow alone, as docs/connectors/push.md says."""

    def __init__(self, task: PushTask) -> None:
        self._task = task
        self._call: Any = None
        """The client, the writer and the reader of the call that is under way."""

    def push(self, batch: pa.RecordBatch, sequence: int) -> None:
        until = time.monotonic() + GIVE_UP_SECONDS
        while not self._pushed(batch, sequence, until):
            pass

    def bad(self, client: int, sequence: int) -> None:
        wrong = pa.RecordBatch.from_pydict(
            {"bucket": ["1", "1"], "client": [client] * 2, "number": ["-1", "none"]}
        )
        self._end()  # a call has one schema
        self.push(wrong, sequence)

    def _pushed(self, batch: pa.RecordBatch, sequence: int, until: float) -> bool:
        """Put a batch; whether it is recorded. Waits if it is not.

        Raises:
            InputError: the job refuses it.
        """
        try:
            if self._call is None:
                self._begin(batch, sequence)
            _, writer, answers = self._call
            writer.write_batch(batch)
            if answers.read() is not None:
                return True
            writer.close()  # which raises what is wrong
            said: dict[str, Any] = {}
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            said = json.loads(getattr(error, "extra_info", None) or b"{}")
            if said.get("status") == 400:
                self._end()
                raise InputError(str(said.get("error"))) from None
            if time.monotonic() > until:
                raise
        self._end()
        time.sleep(said.get("again", 0.2))
        return False

    def _begin(self, batch: pa.RecordBatch, sequence: int) -> None:
        place = self._task.place
        client = flight.connect(f"grpc://127.0.0.1:{place.flight}")
        path = (place.source, self._task.name, str(sequence))
        shown = [(b"authorization", f"Bearer {place.token}".encode())]
        options = flight.FlightCallOptions(timeout=ANSWER_SECONDS, headers=shown)
        to = flight.FlightDescriptor.for_path(*path)
        self._call = (client, *client.do_put(to, batch.schema, options))

    def _end(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            client, writer, _ = call
            with suppress(flight.FlightError, pa.ArrowException, OSError):
                writer.close()
            client.close()


def noted(path: Path) -> tuple[int, int]:
    """How many requests of a client were acknowledged, and how many refused."""
    data = path.read_bytes() if path.exists() else b""
    done, refused = _NOTE.unpack(data) if data else (0, 0)
    return done, refused


def push_all(task: PushTask) -> None:
    """Push what is left of a client's records. Runs in a process of its own.

    Raises:
        JobError: a request was taken that holds a record that is none.
    """
    done, refused = noted(task.note)
    way: Way = OverFlight(task) if task.client % 2 else OverHttp(task, done + 1)
    file = os.open(task.note, os.O_WRONLY | os.O_CREAT)
    begun = done

    def note() -> None:
        os.pwrite(file, _NOTE.pack(done, refused), 0)  # at once, or not at all

    while (batch := task.table(done + 1)).num_rows:
        task.wait(done + 1)
        way.push(batch, done + 1)
        done += 1
        note()
        if done > begun + 1 and done % BAD_EVERY == 0:
            try:
                way.bad(task.client, done + 1)
            except InputError:
                refused += 1
                note()
                continue
            raise JobError("a request that holds a record that is none was taken")


class Pushers:
    """The processes of all clients. One after the other is killed and started again.

    every: seconds from kill to kill, on average; 0: none is killed.
    """

    def __init__(self, tasks: Sequence[PushTask], every: float, rng: random.Random) -> None:
        self._tasks, self._every, self._rng = tasks, every, rng
        self._spawning = multiprocessing.get_context("spawn")
        self._processes = [self._started(task) for task in tasks]
        self._next = self._due()
        self.kills = 0
        """How often a client was killed."""

    def _started(self, task: PushTask) -> Any:
        process = self._spawning.Process(target=push_all, args=(task,), daemon=True)
        process.start()
        return process

    def _due(self) -> float:
        return time.monotonic() + self._rng.uniform(0.5, 1.5) * self._every

    def look(self) -> bool:
        """Kill a client if it is time, start those again that were killed. Whether all have ended.

        Raises:
            JobError: one has failed.
        """
        for n, process in enumerate(self._processes):
            if process.exitcode not in (None, 0, -9):
                raise JobError(f"{self._tasks[n].name} has failed: exit code {process.exitcode}")
            if process.exitcode == -9:
                self._processes[n] = self._started(self._tasks[n])
        running = [n for n, p in enumerate(self._processes) if p.exitcode is None]
        if running and self._every and time.monotonic() >= self._next:
            self.kill(self._rng.choice(running))
            self._next = self._due()
        return not running

    def kill(self, client: int) -> None:
        """Kill a client."""
        self._processes[client].kill()
        self.kills += 1

    def close(self) -> None:
        """End all of them."""
        for process in self._processes:
            process.kill()
            process.join()
