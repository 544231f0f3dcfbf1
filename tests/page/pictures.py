"""Makes the pictures of docs/page.md, of a made-up job: `python -m tests.page.pictures docs`.

They show the real page in a real Chromium; only what the controller would say is made up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from raystream.actors.cluster.connecting import listens
from raystream.controller.protocol.totals import Histogram, OperatorTotals, Totals
from raystream.controller.reporting.status import Worker
from raystream.controller.reporting.story import Told
from raystream.page.watching import Watched, Watcher
from tests.controller.reporting.test_views import job
from tests.gates import LIMIT_SECONDS
from tests.page.browsers import chromium

ROOT = Path(__file__).parents[2]

STORY = (
    Told(
        t=4.0,
        kind="recovery",
        what="count/0 replaced by count/1, which went on from epoch 120",
        because="count/0 died: its process died",
        phases=(("restore", 0.5),),
    ),
    Told(
        t=9.0,
        kind="scale out",
        what="count/1 became count/2 [0, 512), count/3 [512, 1024), from epoch 600 (replay)",
        because="count/1 used 84% of its CPU in 2 reports, above 70%",
        phases=(("place", 0.02), ("restore", 0.3), ("replay", 1.2)),
        nbytes=12_300_000,
    ),
)
BEGINS = 1_780_000_000
"""When the jobs began, in seconds since 1970."""
SMALL, LARGE = "words-1234abcd", "large-5678abcd"
SIZES = {SMALL: 4, LARGE: 497}
"""How many instances count has in each."""


class MadeUp(Watcher):
    """Watches jobs that are made up."""

    def _look(self) -> None:
        t = self.looks + 1.0
        taken = Histogram()
        for second in range(int(t)):
            taken = taken.plus(0.02, 5).plus(0.3 if second % 7 == 0 else 0.04)
        for run, instances in SIZES.items():
            status = job(
                instances,
                t,
                run=run,
                story=tuple(told for told in STORY if told.t < t),
                totals=Totals(
                    latency={"files": taken},
                    checkpoints=taken,
                    operators={"count": OperatorTotals(late=3)},
                ),
            )
            status = replace(status, date_ticks=1, workers=tuple(_dated(w) for w in status.workers))
            watched = self._runs.setdefault(run, Watched(run))
            watched.look(status, {"n0": "10.0.0.1", "n1": "10.0.0.2"})
        self.looks += 1


def _dated(worker: Worker) -> Worker:
    """An instance whose watermark is a date."""
    said = worker.progress
    assert said is not None
    return replace(worker, progress=replace(said, watermark=BEGINS + said.position))


@contextmanager
def served(*words: str) -> Iterator[tuple[str, str]]:
    """The page in a process of its own: the address that operates, and the one that looks."""
    command = [sys.executable, "-m", "tests.page.pictures", "serve", *words]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert server.stdout is not None
    late = threading.Timer(LIMIT_SECONDS, server.kill)
    late.start()
    try:
        operates, looks = (server.stdout.readline().strip() for _ in range(2))
        assert listens(urlsplit(operates).netloc)  # it is told who can open it
        yield operates, looks
    finally:
        late.cancel()
        server.send_signal(signal.SIGINT)
        server.wait(LIMIT_SECONDS)
        server.stdout.close()


def take(folder: Path) -> None:
    """Take the pictures."""
    with chromium() as browser, served() as (url, _):
        for name, width, scheme, run in (
            ("light", 1280, "light", SMALL),
            ("dark", 1280, "dark", SMALL),
            ("phone-light", 390, "light", SMALL),
            ("phone", 390, "dark", SMALL),
            ("500-light", 1280, "light", LARGE),
            ("500", 1280, "dark", LARGE),
        ):
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            page = context.new_page()
            page.goto(url)
            page.locator(".rs-tag.rs-t-scale-out").wait_for()
            if run != SMALL:
                page.get_by_label("job").click()
                page.get_by_role("option", name=run).click()
                page.get_by_text("×497").wait_for()
            page.wait_for_timeout(2000)  # graphs are drawn after what is said of them
            page.screenshot(path=folder / f"page-{name}.png", full_page=run == SMALL)


def main() -> None:
    """Take the pictures, or serve the page."""
    if sys.argv[1] != "serve":
        take(Path(sys.argv[1]))
        return
    import raystream.page.watching as watching
    from raystream.page.serving import serve

    watching.Watcher = MadeUp  # type: ignore[misc]
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    with suppress(KeyboardInterrupt):
        serve(
            "nowhere",
            tls=sys.argv[2] if len(sys.argv) > 2 else None,
            tell=lambda url, looks: print(url, looks, sep="\n", flush=True),
        )


if __name__ == "__main__":
    main()
