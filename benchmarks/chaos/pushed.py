"""Records that clients push while the job and the clients are struck, each sought in the output.

Each record must be there once, and with the right count of its key: an operator numbers the records
of each key, and these numbers must be 1, 2, 3 ... without a gap. Of the requests that the job has
refused nothing may be there.
"""

from __future__ import annotations

import random
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import raystream as rs
from benchmarks.chaos.faults import Chains
from benchmarks.chaos.pushers import BUCKETS, Place, Pushers, PushTask, noted
from benchmarks.chaos.works import Answers
from raystream.errors import JobError
from raystream.push import Client

CLIENTS = 4
LANES = 8
LOOK_SECONDS = 0.1
END_SECONDS = 120.0
"""How long the end of the input may take."""


class Pushed(NamedTuple):
    bucket: rs.Int32
    client: rs.Int32
    number: rs.Int64


class Numbered(NamedTuple):
    """A record, and how many there were of its bucket by then."""

    client: rs.Int32
    number: rs.Int64
    nth: rs.Int64


class Seen(rs.State):
    n: rs.Int64 = 0


@rs.operator(key="bucket")
def number(records: rs.Batch[Pushed], rows: rs.Rows[Seen]) -> rs.Batch[Numbered]:
    nth = rows["n"][rows.index] + rows.nth + 1
    rows["n"] += rows.counts
    columns = {"client": records["client"], "number": records["number"], "nth": nth}
    return rs.Batch(Numbered, columns)


def flow_of(place: Place, folder: Path) -> rs.Flow:
    """The job: what is pushed, numbered by bucket, to files."""
    flow = rs.Flow("pushed")
    source = rs.io.push(
        Pushed, port=place.port, flight=place.flight, lanes=LANES, token=place.token
    )
    records = flow.source(source, epochs=rs.by_arrival(), name=place.source)
    records.through(number, name="count").to(rs.io.parquet(folder), name="counts")
    return flow


@dataclass(frozen=True)
class PushedWork:
    """See the module.

    rate: records a second of all clients together. every: seconds from one kill of a client to the
    next, on average; 0: none is killed.
    """

    rate: int
    every: float
    seed: int
    chains: Chains = (("pushed", "count", "counts"),)

    def run(self, tell: Callable[[Any], None], seconds: int, **options: Any) -> Answers:
        """Run it until so many records as fall into so many seconds were pushed, and check them.

        Raises:
            JobError: a client has failed.
        """
        each = max(1, self.rate * seconds // CLIENTS)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            place = Place(_port(), _port(), secrets.token_urlsafe(16), "pushed")
            clients = _Clients(self, place, each, folder)

            def look(sample: Any) -> None:
                clients.look()
                tell(sample)

            try:
                report = flow_of(place, folder / "out").run(
                    checkpoint_seconds=1.0,
                    instances={"pushed": 2, "count": 2},
                    on_progress=look,
                    **options,
                )
            finally:
                clients.close()
            clients.look()
            found = read(folder / "out")
            print(clients.told(), flush=True)
        return Answers.of(report, len(found[0]), wrong(each, *found))


class _Clients(threading.Thread):
    """Sees to the clients, and ends the input of the job when all of them have ended."""

    def __init__(self, work: PushedWork, place: Place, each: int, folder: Path) -> None:
        super().__init__(name="clients", daemon=True)
        begun = time.time()
        self._tasks = [
            PushTask(place, n, each, work.rate / CLIENTS, begun, folder / f"client-{n}")
            for n in range(CLIENTS)
        ]
        self._place = place
        self._pushers = Pushers(self._tasks, work.every, random.Random(work.seed))
        self._ended = threading.Event()
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self._pushers.look():
                if self._ended.wait(LOOK_SECONDS):
                    return
            address = f"http://127.0.0.1:{self._place.port}"
            with Client(address, self._place.token, give_up=END_SECONDS) as last:
                last.end()
        except Exception as error:
            self._error = error

    def look(self) -> None:
        """See whether all is well.

        Raises:
            JobError: a client has failed.
        """
        if self._error is not None:
            raise JobError(f"the clients have failed: {self._error}")

    def told(self) -> str:
        """What they did, in a line."""
        done, refused = zip(*(noted(task.note) for task in self._tasks), strict=True)
        return (
            f"{CLIENTS} clients, killed {self._pushers.kills} times: {sum(done):,} requests were"
            f" acknowledged, {sum(refused):,} refused"
        )

    def close(self) -> None:
        self._ended.set()
        self.join(END_SECONDS)
        self._pushers.close()


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as tried:
        return int(tried.getsockname()[1])


def read(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each record in the output its client, its number, and its number in its bucket."""
    batches = [b for b in rs.io.read_parts(folder, Numbered) if len(b)]
    columns = ("client", "number", "nth")
    found = [np.concatenate([np.zeros(0, np.int64), *(b[c] for b in batches)]) for c in columns]
    return found[0], found[1], found[2]


def wrong(each: int, client: np.ndarray, number: np.ndarray, nth: np.ndarray) -> int:
    """How many records are missing or too many, and how many counts.

    each: how many records each client has pushed; all of them were acknowledged.
    """
    sizes = CLIENTS * np.bincount(np.arange(each) % BUCKETS, minlength=BUCKETS)
    first = np.cumsum(sizes) - sizes
    bucket = number % BUCKETS
    real = (client >= 0) & (client < CLIENTS) & (number >= 0) & (number < each)
    counted = real & (nth >= 1) & (nth <= sizes[bucket])
    places = (first[bucket] + nth - 1)[counted]
    records = (client * each + number)[real]
    return sum(
        int(np.abs(np.bincount(those, minlength=CLIENTS * each) - 1).sum()) + int((~fits).sum())
        for those, fits in ((records, real), (places, counted))
    )
