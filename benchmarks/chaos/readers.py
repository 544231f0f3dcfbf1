"""Clients that read the rows of a running word count, and hold each answer against its epoch.

Which rows there are at the end of an epoch follows from the lines (`State`). An answer names its
epoch. So whatever dies meanwhile, an answer is right or wrong, and no client may be told of an
earlier epoch than it has seen.
"""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import raystream as rs
from benchmarks.shared import words
from raystream.errors import JobError, RaystreamError, StateError

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
    """The rows of `words.CountWords` at the end of each epoch, from the lines. Threads share it."""

    def __init__(self, lines: words.Lines) -> None:
        self._lines, self._lock = lines, threading.Lock()
        self._counted = OrderedDict[int, Any]()
        self._numbers = {word: i for i, word in enumerate(words.WORDS.tolist())}

    def rows(self, epoch: int) -> dict[tuple[str, int], int]:
        """By word and beginning of the window, how often the word has come. An epoch is a second of
        lines; a window is closed with the epoch at its end, and its rows are gone."""
        start = epoch - epoch % words.WINDOW_SECONDS
        if start == epoch:
            return {}
        with self._lock:
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


class Readers:
    """Clients that read, each on a thread, from their start until they are closed or the job ends.

    Args:
        state: what is right.
        count: how many clients.
        address: of the Ray cluster.
        say: is told of requests that got no answer.
    """

    def __init__(
        self, state: State, count: int, address: str, seed: int, say: Callable[[str], None]
    ) -> None:
        self.found = Found()
        self._state, self._address, self._say = state, address, say
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed + i),), daemon=True)
            for i in range(count)
        ]
        self._begun = False

    def begin(self) -> None:
        """Begin to read, once."""
        if not self._begun:
            self._begun = True
            for thread in self._threads:
                thread.start()

    def close(self) -> Found:
        """Read no more. Returns what was found."""
        self._stop.set()
        for thread in self._threads if self._begun else ():
            thread.join(2 * WAIT_SECONDS)
            if thread.is_alive():
                self._note("a client has not come to an end")
        return self.found

    def _run(self, rng: random.Random) -> None:
        seen = (0, 0)
        while not self._stop.is_set():
            try:
                with rs.query(
                    NAME, OPERATOR, address=self._address, wait=WAIT_SECONDS, seen=seen
                ) as reader:
                    while not self._stop.is_set():
                        self._ask(reader, rng, seen)
                        seen = reader.seen
            except StateError:  # the input has ended, and its rows are gone
                return
            except (RaystreamError, OSError) as error:
                if isinstance(error, JobError) and "has ended" in str(error):
                    return
                with self._lock:
                    self.found.failed += 1
                self._say(f"a reader: {error}")
                self._stop.wait(1.0)
            except Exception as error:
                return self._note(f"{type(error).__name__}: {error}")

    def _ask(self, reader: Any, rng: random.Random, seen: tuple[int, int]) -> None:
        """One request, and whether its answers are right."""
        if rng.random() < SCAN:
            table = reader.scan()
            columns = (table.column(name).to_pylist() for name in ("word", "window_start", "n"))
            rows = {(word, start): n for word, start, n in zip(*columns, strict=True)}
            if rows != self._state.rows(reader.seen.epoch):
                self._note(f"the rows at the checkpoint of epoch {reader.seen.epoch} differ")
            return self._count(len(rows), len(rows), {reader.seen.epoch})
        window = max(0, seen[1] // words.WINDOW_SECONDS + rng.choice((-1, 0, 0, 0, 1)))
        ranks = {min(int(rng.paretovariate(0.5)), len(words.WORDS) - 1) for _ in range(KEYS)}
        keys = [(str(words.WORDS[r]), window * words.WINDOW_SECONDS) for r in sorted(ranks)]
        answers = reader.get_many(keys, committed=rng.random() < COMMITTED)
        self._check(answers, seen)

    def _check(self, answers: Sequence[Any], seen: tuple[int, int]) -> None:
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
        with self._lock:
            self.found.answers += answers
            self.found.rows += rows
            self.found.epochs |= epochs

    def _note(self, wrong: str) -> None:
        with self._lock:
            self.found.wrong.append(wrong)
            if len(self.found.wrong) <= SHOWN:
                self._say(f"wrong: {wrong}")
