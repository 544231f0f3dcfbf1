"""Looks at all jobs of a cluster, again and again, for the page.

One thread does it for all who look at the page, so ten browsers cost a controller what one does.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from ray.exceptions import RayError

from raystream.actors.client.jobs import asked
from raystream.actors.client.watching import node_names
from raystream.actors.control.actor_names import CONTROLLER, actor, job_of, running
from raystream.controller.reporting.status import Status
from raystream.controller.reporting.views import History, JobPicture, view
from raystream.errors import RaystreamError

LOOK_SECONDS = 1.0
"""How long it is from one look to the next."""
ENDED_MAX = 20
"""How many jobs that have ended are still shown."""
TOLD_ITS_SUBMITTER = "the job has ended; its submitter was told how"


@dataclass
class Watched:
    """A run that is watched."""

    run: str
    """Its name."""
    history: History = field(default_factory=History)
    """What is kept of it."""
    now: Status | None = None
    """The last moment."""
    shown: JobPicture | None = None
    """How it is shown; None until it has something to show."""
    ended: str = ""
    """How it has ended; empty while it runs."""

    def look(self, now: Status, nodes: dict[str, str]) -> None:
        """Take the next moment."""
        self.history.add(now, self.now)
        self.shown = view(now, self.now, nodes)
        self.now = now

    def end(self, how: str, nodes: dict[str, str]) -> None:
        """Note how it has ended."""
        self.ended = how
        if self.now is not None:
            self.shown = view(self.now, None, nodes, how)


class Watcher:
    """Watches the jobs of the cluster to which this process is connected.

    Args:
        job: the name of the only job or run to be shown; "" for all.
    """

    def __init__(self, job: str = "") -> None:
        self._job = job
        self._runs: dict[str, Watched] = {}
        self._over = threading.Event()
        self.looks = 0
        """How many looks were taken."""

    @property
    def runs(self) -> dict[str, Watched]:
        """The runs by name: those that run first, then the last that have ended."""
        runs = self._runs.copy()
        return dict(sorted(runs.items(), key=lambda r: bool(r[1].ended)))

    def start(self) -> None:
        """Begin to watch, on a thread."""
        threading.Thread(target=self._watch, name="watcher", daemon=True).start()

    def stop(self) -> None:
        """End the watching."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.is_set():
            due = time.monotonic() + LOOK_SECONDS
            with suppress(RayError):  # the head may be busy, or gone
                self._look()
            self._over.wait(max(0.05, due - time.monotonic()))

    def _look(self) -> None:
        nodes, there = node_names(), running()
        for run in there:
            if self._job in ("", run, job_of(run)) and run not in self._runs:
                self._runs[run] = Watched(run)
        for watched in [w for w in self._runs.values() if not w.ended]:
            self._look_at(watched, nodes)
        for name in [n for n, w in self._runs.items() if w.ended][:-ENDED_MAX]:
            del self._runs[name]
        self.looks += 1

    def _look_at(self, watched: Watched, nodes: dict[str, str]) -> None:
        controller = actor(watched.run, CONTROLLER)
        if controller is None:
            watched.end(TOLD_ITS_SUBMITTER, nodes)
            return
        with suppress(RaystreamError):  # a controller that is busy is asked again
            status = asked(watched.run, controller.status)
            if status is not None:
                watched.look(status, nodes)
            elif (outcome := asked(watched.run, controller.outcome)) is not None and outcome.ended:
                watched.end(outcome.ended, nodes)
