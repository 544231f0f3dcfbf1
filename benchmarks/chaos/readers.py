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
from dataclasses import dataclass, field
from typing import Any

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
    wrong: list[str] = field(default_factory=list)
    """What was wrong, in words."""

    def add(self, other: Found) -> None:
        """Add what another client was answered."""
        self.answers += other.answers
        self.rows += other.rows
        self.failed += other.failed
        self.wrong += other.wrong
        self.epochs |= other.epochs


class Reader:
    """A client. It notes what it is answered.

    Args:
        state: what is right.
        address: of the Ray cluster.
        say: is told of what is wrong, and of requests that got no answer.
    """

    def __init__(
        self, state: State, address: str, rng: random.Random, say: Callable[[str], None] = print
    ) -> None:
        self.found = Found()
        self._state, self._address, self._rng, self._say = state, address, rng, say

    def run(self, stopping: Callable[[], bool]) -> None:
        """Read until the job ends, or it is told to stop."""
        seen = (0, 0)
        while not stopping():
            try:
                with rs.query(
                    NAME, OPERATOR, address=self._address, wait=WAIT_SECONDS, seen=seen
                ) as reader:
                    while not stopping():
                        self.ask(reader, seen)
                        seen = reader.seen
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


def _read(lines: words.Lines, address: str, seed: int, stop: Any, told: Any) -> None:
    """What a process does that reads."""
    reader = Reader(State(lines), address, random.Random(seed))
    try:
        reader.run(stop.is_set)
    except Exception as error:
        reader.found.wrong.append(f"{type(error).__name__}: {error}")
        raise
    finally:
        told.send(reader.found)


class Readers:
    """Clients that read, each in a process, from their start until they are closed or the job ends.

    Args:
        lines: what the job counts.
        count: how many clients.
        address: of the Ray cluster.
    """

    def __init__(self, lines: words.Lines, count: int, address: str, seed: int) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would share this one's Ray
        self._stop, self._begun = context.Event(), False
        pipes = [context.Pipe(duplex=False) for _ in range(count)]
        self._told = [there for there, _ in pipes]
        self._processes = [
            context.Process(target=_read, args=(lines, address, seed + i, self._stop, here))
            for i, (_, here) in enumerate(pipes)
        ]

    def begin(self) -> None:
        """Begin to read, once."""
        if not self._begun:
            self._begun = True
            for process in self._processes:
                process.start()

    def close(self) -> Found:
        """Read no more. Returns what all clients have found."""
        self._stop.set()
        found = Found()
        for process, told in zip(self._processes, self._told, strict=True):
            if self._begun and told.poll(2 * WAIT_SECONDS):
                found.add(told.recv())
            else:
                found.wrong.append("a client has not said what it found")
            if self._begun:
                process.join(WAIT_SECONDS)
                process.kill()
        return found
