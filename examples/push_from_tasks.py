"""Tasks of an event loop push records into a job, which counts them.

A web service does the same: one client for all of its requests.

It prints:

    Counted(page='/home', n=3)
    Counted(page='/shop', n=3)

Run it:

    python examples/push_from_tasks.py
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import NamedTuple

import raystream as rs
from raystream.push import AsyncClient

PORT, TOKEN = 7712, "secret"


class View(NamedTuple):
    time: int
    page: str


class Counted(NamedTuple):
    page: str
    n: int


class Tally(rs.State):
    n: int = 0


@rs.operator(key="page", window=rs.tumbling(seconds=60))
class PerMinute:
    def process(self, view: View, tally: Tally) -> None:
        tally.n += 1

    def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
        yield Counted(key, tally.n)


def build() -> rs.Flow:
    flow = rs.Flow("views")
    source = rs.io.push(View, port=PORT, token=TOKEN, lanes=1)
    views = flow.source(source, epochs=rs.by_arrival(seconds=0.02))
    views.through(PerMinute()).to(rs.io.console())
    return flow


async def serve() -> None:
    async with AsyncClient(f"http://127.0.0.1:{PORT}", TOKEN) as client:
        views = [View(t, page) for t in range(3) for page in ("/shop", "/home")]
        await asyncio.gather(*map(client.push, views))
        await client.end()


if __name__ == "__main__":
    feeding = threading.Thread(target=lambda: asyncio.run(serve()))
    feeding.start()
    build().run()
    feeding.join()
