"""An operator that asks a server on real Ray, while its instances die and move. The server answers
otherwise each time, so a job that asked twice and sent both answers on would contradict itself."""

from __future__ import annotations

import asyncio
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from tests.actors.helpers import parts
from tests.actors.jobs.test_ray_moves import Asks
from tests.flows import Word, split
from tests.gates import LIMIT_SECONDS, Gate, Slow, until

LINES = 60
pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]


class Oracle(socketserver.ThreadingTCPServer):
    """Answers each request with the next number, and keeps what it said to whom."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.lock = threading.Lock()
        self.said: dict[str, list[int]] = {}
        self.held = 0
        self.count = 0
        self.speaking = threading.Event()
        self.speaking.set()


class Answering(socketserver.StreamRequestHandler):
    server: Oracle

    def handle(self) -> None:
        request, oracle = self.rfile.readline().decode().strip(), self.server
        with oracle.lock:
            oracle.count += 1
            number = oracle.count
            oracle.said.setdefault(request, []).append(number)
            oracle.held += 1
        oracle.speaking.wait(LIMIT_SECONDS)
        with oracle.lock:
            oracle.held -= 1
        self.wfile.write(f"{number}\n".encode())


@pytest.fixture
def oracle() -> Iterator[Oracle]:
    with Oracle() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.speaking.set()
        server.shutdown()
        thread.join(LIMIT_SECONDS)


class Answer(NamedTuple):
    word: str
    number: int
    request: str


class Told(NamedTuple):
    word: str
    n: int
    digest: int


class Story(rs.State):
    n: int = 0
    digest: int = 7


@rs.operator(key="word", concurrency=64)
@dataclass(frozen=True)
class Ask:
    port: int

    async def process(self, word: Word) -> Answer:
        request = rs.request_id()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"{request}\n".encode())
            number = int(await reader.readline())  # nothing, if the server has gone
        finally:
            writer.close()
        return Answer(word.word, number, request)


def after(digest: int, number: int) -> int:
    return (digest * 31 + number) % 1_000_003


@rs.operator(key="word")
def tell(answer: Answer, story: Story) -> Iterator[Told]:
    """Depends on all answers of a word, and on their order."""
    story.n += 1
    story.digest = after(story.digest, answer.number)
    yield Told(answer.word, story.n, story.digest)


class KillsWhileAsking(parts.Killer):
    """Kills when there are requests that have no answer."""

    def __init__(self, gate: Gate, oracle: Oracle, *victims: str) -> None:
        super().__init__(gate, *victims, samples=2)
        self._oracle = oracle

    def __call__(self, sample: Any) -> None:
        super().__call__(sample)
        self._oracle.speaking.set()

    def _pid(self, processes: Any) -> int | None:
        self._oracle.speaking.clear()
        until(lambda: self._oracle.held)
        return super()._pid(processes)


def asked(tmp_path: Path, gate: Gate, oracle: Oracle, watch: Any, **options: Any) -> Any:
    """Run the flow until the gate is open; its two outputs are one history. Returns the report."""
    folders = [tmp_path / "answers", tmp_path / "told"]
    for folder in folders:
        folder.mkdir()
    lines = Slow(LINES, gate, row_seconds=0.02)  # each is two questions, and a connection each
    flow = rs.Flow("asked")
    words = flow.source(lines, epochs=rs.by_time(seconds=10), name="lines").through(split)
    answers = words.through(Ask(oracle.server_address[1]), name="ask")
    answers.to(parts.Files(folders[0]), name="answers")
    answers.through(tell).to(parts.Files(folders[1]), name="told")
    report = flow.run(cluster="auto", on_progress=watch, **options)
    sent = [Answer(*r) for _, _, r in parts.records(folders[0])]
    stories = [Told(*r) for _, _, r in parts.records(folders[1])]
    assert Counter(answer.word for answer in sent) == Counter(lines.words())
    assert len({answer.request for answer in sent}) == len(sent)
    assert all(answer.number in oracle.said[answer.request] for answer in sent)
    told: dict[str, list[Told]] = {}
    known: dict[str, Told] = {}
    for word, number, _ in sent:
        last = known.get(word, Told(word, 0, 7))
        known[word] = Told(word, last.n + 1, after(last.digest, number))
        told.setdefault(word, []).append(known[word])
    found = {word: [one for one in stories if one.word == word] for word in told}
    assert found == told
    return report


def test_each_answer_that_was_sent_on_is_the_one_that_was_recorded(
    tmp_path: Path, oracle: Oracle
) -> None:
    """The only place of the register dies, then an instance that waits for answers, then another
    one. What had no answer is asked again, and counts once."""
    victims = ("keeper/0", "ask/0", "ask/1")
    kill = KillsWhileAsking(Gate(tmp_path / "gate"), oracle, *victims)
    instances = {"ask": 2, "tell": 1, "lines": 1}
    report = asked(
        tmp_path, kill.gate, oracle, kill, instances=instances, spares=1, checkpoint_every=4
    )
    assert not kill.victims
    assert [n for r in report.recoveries for n in r.gone] == ["ask/0", "ask/1"]
    assert any(len(numbers) > 1 for numbers in oracle.said.values())


@pytest.mark.long
def test_it_stays_one_history_while_ranges_move(tmp_path: Path, oracle: Oracle) -> None:
    """One instance becomes two, and then one again, each by another way of moving."""
    gate = Gate(tmp_path / "gate")
    gate.folder.mkdir()
    asks = Asks(gate.folder / "open", ["scale asked ask=2", "scale asked ask=1 --handover"])
    report = asked(tmp_path, gate, oracle, asks, checkpoint_seconds=0.5, spares=2)
    assert asks.codes == [0, 0], asks.said
    assert [m.failed for m in report.moved] == ["", ""]
