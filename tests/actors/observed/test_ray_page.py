"""The page in a real Chromium over a real job: scaled by its button, and seen to recover."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from raystream.actors.client.stopping import stop
from raystream.errors import Stopped
from tests.actors.helpers import parts
from tests.actors.jobs.test_ray_durable import Submitted
from tests.gates import LIMIT_SECONDS, Gate, until
from tests.page.browsers import chromium

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]
LIMIT = 1000 * LIMIT_SECONDS


@contextmanager
def page_of(job: str) -> Iterator[str]:
    """The address of the page of a job."""
    import ray

    words = "from raystream.cli import main; main()"
    gcs = ray.get_runtime_context().gcs_address
    process = subprocess.Popen(
        [sys.executable, "-c", words, "ui", job, "--address", gcs],
        stdout=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
    )
    late = threading.Timer(LIMIT_SECONDS, process.kill)
    late.start()
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        late.cancel()
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_SECONDS)
        process.stdout.close()


def test_scaled_by_its_button_and_seen_to_recover(tmp_path: Path) -> None:
    with chromium() as browser:  # no job begins where there is none
        scaled_and_recovered(tmp_path, browser)


def scaled_and_recovered(tmp_path: Path, browser: Any) -> None:
    pids: dict[str, int] = {}
    flow = parts.slow(tmp_path / "out", lines=100_000, paced=100.0, gate=Gate(tmp_path / "gate"))
    run = Submitted(flow, checkpoint_every=1000, on_progress=lambda s: pids.update(s.processes))
    elsewhere: list[str] = []
    with ended(run), page_of("slow") as url:
        page = browser.new_page()
        page.set_default_timeout(LIMIT)
        page.on("request", lambda r: elsewhere.append(r.url) if foreign(r.url) else None)
        stranger = page.goto(url.partition("?")[0])
        assert stranger.status == 403
        page.goto(url)
        assert "token" not in page.url
        table = page.locator(".rs-table").last
        table.get_by_text("count/0").wait_for()
        page.locator("svg.rs-graph").get_by_text("count", exact=True).wait_for()
        page.keyboard.press("s")
        page.get_by_role("spinbutton", name="instances").fill("2")
        page.get_by_role("button", name="Scale").last.click()
        table.get_by_text("count/2").wait_for()
        story = page.locator(".rs-story")
        story.get_by_text("scale out", exact=True).wait_for()
        until(lambda: "files/0" in pids)
        os.kill(pids["files/0"], signal.SIGKILL)
        story.get_by_text("recovery", exact=True).wait_for()
        table.get_by_text("files/0.1").wait_for()
        page.keyboard.press("c")
        page.locator(".q-dialog").get_by_role("button", name="Checkpoint").click()
        page.locator(".rs-said").get_by_text("is stored").wait_for()
        assert run.is_alive(), run.outcome
        page.keyboard.press("x")
        page.locator(".q-dialog").get_by_role("button", name="Stop").click()
        assert isinstance(run.ended(), Stopped)
        page.locator(".rs-end").wait_for()
    assert elsewhere == []


@contextmanager
def ended(run: Submitted) -> Iterator[None]:
    """End a run that is still there afterwards, because the test has failed."""
    try:
        yield
    finally:
        if run.is_alive():
            stop("slow", "auto", save=False)
            run.join(LIMIT_SECONDS)


def foreign(url: str) -> bool:
    where = urlsplit(url)
    return where.scheme in ("http", "https", "ws", "wss") and where.hostname != "127.0.0.1"
