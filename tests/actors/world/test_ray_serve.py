"""An operator that asks a deployment of Ray Serve: the example, and on Ray while it dies."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from tests.actors.helpers import parts
from tests.docs.test_examples import ROOT, prints_what_it_says
from tests.flows import Line
from tests.gates import LIMIT_SECONDS, Gate, Slow, until

serve = pytest.importorskip("ray.serve", reason='Ray Serve is missing: pip install "ray[serve]"')
example = importlib.import_module("examples.ask_serve")
LINES = 60
pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.usefixtures("on_ray", "serving")]


@pytest.fixture
def serving(on_ray: None) -> Iterator[None]:
    """Ray Serve without its HTTP server."""
    serve.start(proxy_location="Disabled")
    yield
    serve.shutdown()


class Moody:
    """A deployment that answers otherwise each time, and keeps what it said to whom."""

    def __init__(self) -> None:
        self.said: dict[str, list[int]] = {}
        self.count = self.held = 0
        self.speaking = asyncio.Event()
        self.speaking.set()

    async def __call__(self, text: str) -> int:
        self.count += 1
        number = self.count
        self.said.setdefault(text, []).append(number)
        self.held += 1
        await asyncio.wait_for(self.speaking.wait(), LIMIT_SECONDS)
        self.held -= 1
        return number

    async def speak(self, loud: bool) -> None:
        self.speaking.set() if loud else self.speaking.clear()

    async def holds(self) -> int:
        return self.held

    async def all(self) -> dict[str, list[int]]:
        return self.said


class KillsWhileAsking(parts.Killer):
    """Kills when there are requests that have no answer."""

    def __init__(self, gate: Gate, critic: Any, *victims: str) -> None:
        super().__init__(gate, *victims, samples=2)
        self._critic = critic

    def __call__(self, sample: Any) -> None:
        super().__call__(sample)
        self._critic.speak.remote(True).result()

    def _pid(self, processes: Any) -> int | None:
        self._critic.speak.remote(False).result()
        until(lambda: self._critic.holds.remote().result())
        return super()._pid(processes)


@rs.operator()
def review(line: Line) -> Iterator[example.Review]:
    yield example.Review(line.time, f"{line.time} {line.text}")


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    prints_what_it_says(ROOT / "examples" / "ask_serve.py", capsys)


def test_what_a_deployment_said_counts_once_though_it_was_asked_twice(tmp_path: Path) -> None:
    """The instance that asks dies while it waits for answers."""
    deployed = serve.deployment(max_ongoing_requests=100)(Moody)
    critic = serve.run(deployed.bind(), name="critic", route_prefix=None)
    kill = KillsWhileAsking(Gate(tmp_path / "gate"), critic, "judge/0")
    flow = rs.Flow("reviews")
    lines = Slow(LINES, kill.gate, row_seconds=0.02)
    read = flow.source(lines, epochs=rs.by_time(seconds=10), name="lines")
    judged = read.through(review).through(example.judge, name="judge")
    judged.to(parts.Files(tmp_path), name="files")
    report = flow.run(cluster="auto", on_progress=kill, spares=1, checkpoint_every=4)
    assert [n for r in report.recoveries for n in r.gone] == ["judge/0"]
    said = critic.all.remote().result()
    found = [example.Judged(*record) for _, _, record in parts.records(tmp_path)]
    assert len({one.text for one in found}) == len(found)
    assert {one.text for one in found} == {*said}
    assert all(one.stars in said[one.text] for one in found)
    assert any(len(numbers) > 1 for numbers in said.values())
