"""Clients that read the rows of a running word count, and hold each answer against its epoch.

Which rows there are at the end of an epoch follows from the lines (`State`). An answer names its
epoch. So whatever dies meanwhile, an answer is right or wrong, and no client may be told of an
earlier epoch than it has seen.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import raystream as rs
from benchmarks.shared import words
from raystream.errors import RaystreamError, StateError

NAME, OPERATOR = "words", "count"
"""The job, and its operator that keeps rows."""
KEYS = 20
"""How many keys a request asks for."""
WAIT_SECONDS = 180
"""How long an answer may take: the owner may be dead, and so may the controller."""
SAY_SECONDS = 1.0
"""How often a client says what it has found."""
COMMITTED, SCAN = 0.2, 0.02
"""How many of the requests read the committed checkpoint, and how many read all of its rows."""
SHOWN = 5
"""So many wrong answers are shown at most."""
KEPT_SECONDS = 4 * words.WINDOW_SECONDS
"""Seconds of lines whose words are counted only once."""


class State:
    """The rows of `words.CountWords` at the end of each epoch, from the lines."""

    def __init__(self, lines: words.Lines) -> None:
        self._lines = lines
        self._counted = OrderedDict[int, Any]()
        self._numbers = {word: i for i, word in enumerate(words.WORDS.tolist())}

    def rows(self, epoch: int) -> dict[tuple[str, int], int]:
        """By word and beginning of the window, how often the word has come. An epoch is a second of
        lines; a window is closed with the epoch at its end, or with the last one, and its rows are
        gone."""
        start = epoch - epoch % words.WINDOW_SECONDS
        if epoch in (start, self._lines.seconds):
            return {}
        counts = sum(self._of(t) for t in range(start, epoch))
        return {(str(words.WORDS[i]), start): int(counts[i]) for i in np.flatnonzero(counts)}

    def _of(self, second: int) -> Any:
        """How often each word comes in a second."""
        if second not in self._counted:
            found = np.zeros(len(words.WORDS), np.int64)
            for split in self._lines.splits():
                for _, batch in self._lines.read(split, second):
                    said = [w for line in batch["text"].to_pylist() for w in line.split()]
                    np.add.at(found, [self._numbers[w] for w in said], 1)
                    break
            self._counted[second] = found
            if len(self._counted) > KEPT_SECONDS:
                self._counted.popitem(last=False)
        return self._counted[second]


@dataclass
class Found:
    """What clients were answered."""

    answers: int = 0
    """How many answers: a row, or that there is none."""
    rows: int = 0
    """How many of them were rows."""
    epochs: set[int] = field(default_factory=set)
    """Of which epochs."""
    failed: int = 0
    """How many requests got no answer."""
    died: int = 0
    """How often a client died, as Ray ends it with the raylet of its node."""
    wrong: list[str] = field(default_factory=list)
    """What was wrong, in words."""

    def add(self, other: Found) -> None:
        """Add what another client was answered."""
        self.answers += other.answers
        self.rows += other.rows
        self.failed += other.failed
        self.died += other.died
        self.wrong += other.wrong
        self.epochs |= other.epochs


class Reader:
    """A client. It notes what it is answered.

    Args:
        state: what is right.
        address: of the Ray cluster.
        seen: the run and the epoch that it has seen before.
        say: is told of what is wrong, and of requests that got no answer.
    """

    def __init__(
        self,
        state: State,
        address: str,
        rng: random.Random,
        seen: tuple[int, int] = (0, 0),
        say: Callable[[str], None] = print,
    ) -> None:
        self.found, self.seen = Found(), seen
        self._state, self._address, self._rng, self._say = state, address, rng, say

    def run(self, stopping: Callable[[], bool]) -> None:
        """Read until the job ends, or it is told to stop. stopping: is asked after each request."""
        while not stopping():
            try:
                with rs.query(
                    NAME, OPERATOR, address=self._address, wait=WAIT_SECONDS, seen=self.seen
                ) as reader:
                    while not stopping():
                        self.ask(reader, self.seen)
                        self.seen = reader.seen
            except StateError:  # the input has ended, and its rows are gone
                return
            except RaystreamError as error:
                if "has ended" in str(error):
                    return
                self.found.failed += 1
                self._say(f"a reader: {error}")
                time.sleep(1.0)

    def ask(self, reader: Any, seen: tuple[int, int]) -> None:
        """One request, and whether its answers are right."""
        rng = self._rng
        if rng.random() < SCAN:
            table = reader.scan()
            columns = (table.column(name).to_pylist() for name in ("word", "window_start", "n"))
            rows = {(word, start): n for word, start, n in zip(*columns, strict=True)}
            if rows != self._state.rows(reader.seen.epoch):
                self._note(f"the rows at the checkpoint of epoch {reader.seen.epoch} differ")
            self._count(len(rows), len(rows), {reader.seen.epoch})
            return
        window = max(0, seen[1] // words.WINDOW_SECONDS + rng.choice((-1, 0, 0, 0, 1)))
        ranks = {min(int(rng.paretovariate(0.5)), len(words.WORDS) - 1) for _ in range(KEYS)}
        keys = [(str(words.WORDS[r]), window * words.WINDOW_SECONDS) for r in sorted(ranks)]
        self.check(reader.get_many(keys, committed=rng.random() < COMMITTED), seen)

    def check(self, answers: Sequence[Any], seen: tuple[int, int]) -> None:
        """Hold answers against their epochs, and against what was seen before."""
        for answer in answers:
            expected = self._state.rows(answer.moment.epoch).get(answer.key)
            n = None if answer.row is None else answer.row["n"]
            if n != expected:
                self._note(f"{answer.key} at {answer.moment}: {n}, and {expected} is right")
            if answer.moment < seen:
                self._note(f"{answer.key} at {answer.moment}, after {seen}")
        rows = sum(answer.row is not None for answer in answers)
        self._count(len(answers), rows, {answer.moment.epoch for answer in answers})

    def _count(self, answers: int, rows: int, epochs: set[int]) -> None:
        self.found.answers += answers
        self.found.rows += rows
        self.found.epochs |= epochs

    def _note(self, wrong: str) -> None:
        self.found.wrong.append(wrong)
        if len(self.found.wrong) <= SHOWN:
            self._say(f"wrong: {wrong}")


class Told(NamedTuple):
    """What a client says now and then."""

    found: Found
    """What it has found since it last said so."""
    seen: tuple[int, int]
    """The run and the epoch that it has seen."""
    last: bool
    """Whether it has ended."""


def _read(lines: words.Lines, address: str, seed: int, seen: Any, stop: Any, pipe: Any) -> None:
    """What a process does that reads."""
    reader, due = Reader(State(lines), address, random.Random(seed), seen), 0.0

    def say(*, last: bool) -> None:
        pipe.send(Told(reader.found, reader.seen, last))
        reader.found = Found()

    def stopping() -> bool:
        nonlocal due
        if time.monotonic() > due:
            say(last=False)
            due = time.monotonic() + SAY_SECONDS
        stopped: bool = stop.is_set()
        return stopped

    try:
        reader.run(stopping)
    except Exception as error:
        reader.found.wrong.append(f"{type(error).__name__}: {error}")
        raise
    finally:
        say(last=True)


class Client:
    """A process that reads. Ray ends it when the raylet of its node dies; then it is started again,
    and goes on with what it has seen.

    Args:
        start: starts a process, with what was seen before; returns that and the end of its pipe.
    """

    def __init__(self, start: Callable[[tuple[int, int]], tuple[Any, Any]]) -> None:
        self.found, self._seen, self._start = Found(), (0, 0), start
        self._process, self._pipe = start(self._seen)
        self._ended = False

    def look(self, *, again: bool = True) -> bool:
        """Take what it says. again: it is started again if it has died. Returns whether it has
        ended."""
        died = not self._process.is_alive()  # asked first: what it said before is in the pipe
        with suppress(EOFError, OSError):
            while self._pipe.poll():
                told = self._pipe.recv()
                self.found.add(told.found)
                self._seen, self._ended = told.seen, told.last
        if died and not self._ended and again:
            self.found.died += 1
            self._process, self._pipe = self._start(self._seen)
        return self._ended or died

    def close(self) -> None:
        """Wait until it has ended."""
        until = time.monotonic() + 2 * WAIT_SECONDS
        while not self.look(again=False) and time.monotonic() < until:
            time.sleep(0.1)
        self._process.join(WAIT_SECONDS if self._ended else 0)
        if self._process.is_alive():
            self.found.wrong.append("a client has not ended")
            self._process.kill()
        elif not self._ended:
            self.found.died += 1
        if not self.found.answers:
            self.found.wrong.append("a client had no answer")


class Readers:
    """Clients that read, each in a process, from their start until they are closed or the job ends.

    Args:
        lines: what the job counts.
        count: how many clients.
        address: of the Ray cluster.
    """

    def __init__(self, lines: words.Lines, count: int, address: str, seed: int) -> None:
        self._context = multiprocessing.get_context("spawn")  # a fork would share this one's Ray
        self._lines, self._count, self._address, self._seed = lines, count, address, seed
        self._stop = self._context.Event()
        self._clients: list[Client] = []

    def look(self) -> None:
        """Begin to read, or go on: take what clients say, and start those again that have died."""
        for client in self._clients:
            client.look()
        while len(self._clients) < self._count:
            self._clients.append(Client(self._started))

    def _started(self, seen: tuple[int, int]) -> tuple[Any, Any]:
        self._seed += 1
        mine, theirs = self._context.Pipe(duplex=False)
        args = self._lines, self._address, self._seed, seen, self._stop, theirs
        process = self._context.Process(target=_read, args=args)
        process.start()
        theirs.close()
        return process, mine

    def close(self) -> Found:
        """Read no more. Returns what all clients have found."""
        self._stop.set()
        found = Found()
        for client in self._clients:
            client.close()
            found.add(client.found)
        return found
