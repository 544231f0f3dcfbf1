"""python -m benchmarks keeping: what a keeper takes for images, and how fast they come back.

A real keeper in a Ray of its own is sent the image of a range in parts of 8 MB, and then the range
is restored from it, as a new instance does it, without putting the rows into a table. The table
says how fast both went; how much memory the keeper's process took at most without what it shares
with the store (`own`), what the object store held at most, and what lay where at the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import ray
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.parts.restore import CHECKPOINT, WIDTH, planned, state
from raystream.actors.control.processes import KEEPER_GROUPS
from raystream.actors.keepers.fetching import fetch
from raystream.actors.keepers.keeper import Keeper
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.plan import Plan
from raystream.schema.types import KeyRange
from raystream.state.images.partition import partition
from raystream.state.keys import even_ranges

PART_BYTES = 8 << 20
AHEAD = 3
LOOK_SECONDS = 0.05


def used_of_store() -> int:
    """Bytes in the object store."""
    ask: Any = ray.available_resources  # it has no types
    total: Any = ray.cluster_resources
    name = "object_store_memory"
    return int(total().get(name, 0) - ask().get(name, 0))


class Memory:
    """Looks at a process, and at the object store, again and again."""

    def __init__(self, pid: int) -> None:
        self._pid, self._over = pid, threading.Event()
        self.own = self.store = 0
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            pages = (Path("/proc") / str(self._pid) / "statm").read_text().split()
            self.own = max(self.own, (int(pages[1]) - int(pages[2])) * 4096)
            self.store = max(self.store, used_of_store())

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


@contextmanager
def keeper_of(plan: Plan, budget: int, store: int) -> Iterator[Any]:
    """A keeper in a Ray of its own."""
    ray.init(num_cpus=1, object_store_memory=store, include_dashboard=False, log_to_driver=False)
    try:
        with TemporaryDirectory() as folder:
            groups = dict.fromkeys(KEEPER_GROUPS, 1) | {"park": 2}
            remote: Any = ray.remote  # its stubs do not know these options
            actor = remote(num_cpus=0, concurrency_groups=groups)(Keeper)
            yield actor.remote(plan, budget, folder)
    finally:
        ray.shutdown()


def parts_of(plan: Plan, megabytes: float) -> list[tuple[KeyRange, np.ndarray]]:
    """An image of `megabytes` in encoded parts."""
    sample = state(plan, "numbers", 10_000)
    size = len(sample.encode()) / 10_000
    image = state(plan, "numbers", int(megabytes * 1e6 / size))
    ranges = even_ranges(plan.groups, min(plan.groups, max(1, image.nbytes // PART_BYTES)))
    return [
        (part.header.keys, np.frombuffer(part.encode(), np.uint8))
        for part in partition(image, ranges)
    ]


def measure(megabytes: float, images: int, budget: int, store: int) -> dict[str, float]:
    """Ship the state of all ranges, each of `megabytes` megabytes, and restore it."""
    plan = planned("numbers")
    parts = parts_of(plan, megabytes)
    whole = KeyRange(0, plan.groups)
    nbytes = images * sum(len(data) for _, data in parts)
    with keeper_of(plan, budget, store) as keeper:
        memory = Memory(ray.get(keeper.pid.remote()))
        began = time.perf_counter()
        calls: list[Any] = []
        for vertex in range(images):
            for keys, data in parts:
                image = ("work/0", vertex, whole, 0, CHECKPOINT, 0, False, keys, data)
                calls.append(keeper.store.remote(*image))
                if len(calls) > AHEAD:
                    assert ray.get(calls.pop(0))
        assert all(ray.get(calls))
        shipped = time.perf_counter() - began
        use = ray.get(keeper.use.remote())
        sent_at_most, sent_store = memory.own, memory.store
        began = time.perf_counter()
        for vertex in range(images):
            fetched = fetch([keeper], Place(vertex, "work", whole, 0), CHECKPOINT)
            assert fetched is not None
            rows = sum(len(image) for chain in fetched.chains for image in chain)
            assert rows > 0
        restored = time.perf_counter() - began
        memory.stop()
    return {
        "bytes": nbytes,
        "shipped": nbytes / shipped,
        "restored": nbytes / restored,
        "own": sent_at_most,
        "own restoring": memory.own,
        "store": sent_store,
        "store restoring": memory.store,
        "memory": use.memory,
        "files": use.disk,
    }


def main(
    megabytes: Annotated[float, typer.Option(help="Of an image, in MB.")] = 500,
    images: Annotated[str, typer.Option(help="How many; as in 2,8 in turn.")] = "2,4",
    budget: Annotated[int, typer.Option(help="MiB of the object store for the keeper.")] = 512,
    store: Annotated[int, typer.Option(help="MiB of the object store.")] = 6000,
) -> None:
    """Ship images to a keeper and restore them from it."""
    table = Table("MB of images", "shipped MB/s", "restored MB/s", "own MB", "restoring",
                  "store MB", "restoring", "at the end in memory", "in files")  # fmt: skip
    for count in images.split(","):
        r = measure(megabytes, int(count), budget << 20, store << 20)
        table.add_row(*(f"{r[k] / 1e6:,.0f}" for k in r))
    Console(width=WIDTH).print(table)
