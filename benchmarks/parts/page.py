"""What the live page costs: the controller that is asked, the server that draws, the browser.

The job is made up: one operator of so many instances, whose counters grow from look to look. All
else is real. An actor of Ray answers as a controller does, and its processor time at one look a
second is compared with that of the same seconds without a look. The looks are drawn as `raystream
ui` draws them. With `--browser` a server in a process of its own shows them to a Chromium; its
main thread says for how long it was busy with each.
"""

from __future__ import annotations

import logging
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import ray
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from raystream.actors.cluster.connecting import start_ray
from raystream.controller.planning.plans import make_plan
from raystream.controller.protocol.journal import InstanceRecord, JournalEntry
from raystream.controller.protocol.members import Member
from raystream.controller.protocol.recovery import Place
from raystream.controller.reporting.report import Committed
from raystream.controller.reporting.status import Status, status_of
from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Progress
from raystream.errors import ConfigError, JobError
from raystream.page import watching
from raystream.page.layout import PARTS
from raystream.page.watching import LOOK_SECONDS, Watched, Watcher
from raystream.schema.types import KeyRange
from raystream.testing import Collect

ROOT = Path(__file__).parents[2]
RUN = "words-1234abcd"
NODES = {"n0": "10.0.0.1", "n1": "10.0.0.2"}
LIMIT_SECONDS = 60.0
GROUPS = 4096


class Word(NamedTuple):
    time: int
    word: str


class Count(rs.State):
    n: int = 0


@rs.operator(key="word")
def count(word: Word, row: Count) -> Iterator[Word]:
    row.n += 1
    yield word


class MadeUpJob:
    """What the controller of a job knows that has so many instances of one operator."""

    def __init__(self, instances: int, looks: int) -> None:
        flow = rs.Flow("words", key_groups=GROUPS)
        lines = flow.source(rs.io.iterable([Word(0, "")], Word), epochs=rs.by_time(seconds=1))
        lines.through(count, name="count").to(Collect(), name="files")
        self.plan: Plan = make_plan(flow)
        self._members = [*self._made(instances)]
        self._said = [
            [progress(m.record.place, float(t), 1 + i % 3) for i, m in enumerate(self._members)]
            for t in range(looks)
        ]
        self._entry = JournalEntry(started=time.time())

    def _made(self, instances: int) -> Iterator[Member]:
        for vertex in self.plan.vertices:
            many = instances if vertex.name == "count" else 1
            cuts = np.linspace(0, self.plan.groups, many + 1).astype(int).tolist()
            for i, (lo, hi) in enumerate(pairwise(cuts)):
                place = Place(vertex.id, vertex.name, KeyRange(lo, hi), i)
                yield Member(
                    InstanceRecord(
                        place=place,
                        process=f"{vertex.name}-{i}",
                        node=f"n{i % 2}",
                        pid=1000 + i,
                        address="",
                    )
                )

    def status(self, look: int) -> Status:
        """Its state at a look; there is one a second."""
        for member, said in zip(self._members, self._said[look % len(self._said)], strict=True):
            member.progress = said
        committed = Committed(epoch=look, age=0.5)
        now = self._entry.started + look
        return status_of(self.plan, RUN, self._entry, self._members, committed, now)


def progress(place: Place, t: float, times: int) -> Progress:
    """What an instance says that has `times` records a second for each of its key groups."""
    load = np.full(len(place.keys), int(times * t), np.int64)
    return Progress(
        vertex=place.operator,
        instance=place.index,
        name=place.name,
        position=int(t),
        seconds=t,
        records_in=int(load.sum()),
        records_out=int(load.sum()),
        busy=0.3 * times * t,
        cpu=0.3 * times * t,
        load=load.tobytes(),
        state_rows=int(10 * t),
        state_bytes=int(1000 * t),
    )


class MadeUpController:
    """Answers as the actor of a controller does."""

    def __init__(self, instances: int, looks: int) -> None:
        self._job = MadeUpJob(instances, looks)
        self._looks = 0

    def status(self) -> Status:
        """The next look."""
        self._looks += 1
        return self._job.status(self._looks)

    def cpu(self) -> float:
        """The seconds of processor time of this process so far."""
        return time.process_time()


class MadeUpWatcher(Watcher):
    """Looks at a made-up job."""

    job: MadeUpJob

    def _look(self) -> None:
        watched = self._runs.setdefault(RUN, Watched(RUN))
        watched.look(self.job.status(self.looks), NODES)
        self.looks += 1


def main(
    instances: Annotated[int, typer.Option(min=1, help="Of the job.")] = 500,
    looks: Annotated[int, typer.Option(min=2, help="One a second.")] = 30,
    browser: Annotated[bool, typer.Option(help="Have a Chromium show the page, too.")] = False,
) -> None:
    """The live page: what a look costs the controller, the server and the browser."""
    shown = Table("", "median", "most", title=f"a look at {instances:,} instances")
    idle, asked = controller_cpu(instances, looks)
    shown.add_row("controller: CPU without looks", f"{idle:.2%} of a core", "")
    shown.add_row("controller: CPU with a look a second", f"{asked:.2%} of a core", "")
    took = drawn(instances, looks)
    shown.add_row("server: CPU to draw it", *_ms(took))
    if browser:
        shown.add_row("browser: its main thread", *_ms(in_browser(instances, looks)))
    Console().print(shown)


def _ms(seconds: list[float]) -> tuple[str, str]:
    return f"{statistics.median(seconds) * 1e3:.1f} ms", f"{max(seconds) * 1e3:.1f} ms"


def controller_cpu(instances: int, looks: int) -> tuple[float, float]:
    """What part of a core the controller's process uses, without looks and with one a second."""
    start_ray(num_cpus=1, logging_level=logging.ERROR)
    try:
        remote: Any = ray.remote
        controller = remote(num_cpus=0)(MadeUpController).remote(instances, looks + 2)
        seen = ray.get(controller.status.remote(), timeout=LIMIT_SECONDS)
        assert len(seen.workers) == instances + 2
        shares = []
        for asks in (False, True):
            began, before = time.monotonic(), _cpu(controller)
            for _ in range(looks):
                due = time.monotonic() + LOOK_SECONDS
                if asks:
                    ray.get(controller.status.remote(), timeout=LIMIT_SECONDS)
                time.sleep(max(0.0, due - time.monotonic()))
            shares.append((_cpu(controller) - before) / (time.monotonic() - began))
        return shares[0], shares[1]
    finally:
        ray.shutdown()


def _cpu(controller: Any) -> float:
    used: float = ray.get(controller.cpu.remote(), timeout=LIMIT_SECONDS)
    return used


def drawn(instances: int, looks: int) -> list[float]:
    """The seconds of processor time in which each look is taken in and drawn."""
    job, watched, took = MadeUpJob(instances, looks), Watched(RUN), []
    for look in range(looks):
        status = job.status(look)
        began = time.thread_time()
        watched.look(status, NODES)
        assert watched.shown is not None
        for draw in PARTS.values():
            draw(watched.shown)
        took.append(time.thread_time() - began)
    return took[1:]  # the first loads what is needed


# ---- the browser ------------------------------------------------------------------------------


def in_browser(instances: int, looks: int) -> list[float]:
    """The seconds for which the main thread of a Chromium is busy in each second with one look."""
    with served(instances, looks) as url, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url)
        page.get_by_text(f"×{instances}").first.wait_for(timeout=LIMIT_SECONDS * 1e3)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        page.wait_for_timeout(3000)
        busy, shown = [_busy(session)], page.inner_text("body")
        for _ in range(looks):
            page.wait_for_timeout(LOOK_SECONDS * 1e3)
            busy.append(_busy(session))
        if page.inner_text("body") == shown:
            raise JobError("the page was not updated while it was measured")
        return [b - a for a, b in pairwise(busy)]


def _busy(session: Any) -> float:
    told = session.send("Performance.getMetrics")["metrics"]
    return next(float(m["value"]) for m in told if m["name"] == "TaskDuration")


@contextmanager
def chromium() -> Iterator[Any]:
    """The Chromium of this machine."""
    from playwright import sync_api

    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise ConfigError("there is no Chromium here", hint="Debian has it: apt install chromium.")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(instances: int, looks: int) -> Iterator[str]:
    """The address of a page, served by a process of its own."""
    command = [sys.executable, "-m", "benchmarks.parts.page", str(instances), str(looks)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    late = threading.Timer(LIMIT_SECONDS, server.kill)
    late.start()
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        late.cancel()
        if not url:
            raise ConfigError("the server of the page has ended")
        yield url
    finally:
        late.cancel()
        server.send_signal(signal.SIGINT)
        server.wait(LIMIT_SECONDS)


def _serve(instances: int, looks: int) -> None:
    from raystream.page.serving import serve

    MadeUpWatcher.job = MadeUpJob(instances, looks + int(LIMIT_SECONDS))
    watching.Watcher = MadeUpWatcher  # type: ignore[misc]
    with suppress(KeyboardInterrupt):
        serve("nowhere", tell=lambda url, _: print(url, flush=True))


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:]))
