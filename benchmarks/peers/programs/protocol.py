"""What a program is asked, as JSON in its first argument, and what it answers in its last line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

MASK = 2**64 - 1


class Task(NamedTuple):
    """work: w1, w2 or latency. form: which of the system's forms. path: of the input; rows: in it.
    scratch: an empty folder. rate: of latency, records a second; warm: seconds that do not count.
    The rest describes W2: bytes and words of a line, lines in a second of event time, and seconds
    of a window.
    """

    work: str
    form: str
    path: str
    rows: int
    distinct: int
    checkpoint_seconds: float
    scratch: str
    rate: int
    warm: float
    line_bytes: int
    words_per_line: int
    lines_per_second: int
    window_seconds: int


def asked() -> Task:
    """The task of this process."""
    return Task(**json.loads(sys.argv[1]))


class Totals:
    """Adds up answers, between the first record and the last answer.

    Latencies, if any, are in seconds.
    """

    def __init__(self) -> None:
        self.rows = self.sum_n = self.checksum = 0
        self.began = self.ended = 0.0
        self.late: list[float] = []

    def begin(self) -> None:
        """The first record is about to come."""
        if not self.began:
            self.began = time.perf_counter()

    def counts(self, answers: Iterable[tuple[int, int]]) -> None:
        """Of W1: (key, n)."""
        for key, n in answers:
            self.rows += 1
            self.sum_n += n
            self.checksum += n * key

    def end(self) -> None:
        """The last answer has come."""
        self.ended = time.perf_counter()

    def tell(self) -> None:
        """Say it; call it last."""
        answers = {"rows": self.rows, "sum_n": self.sum_n, "checksum": self.checksum & MASK}
        tell(self.ended - self.began, answers, latency_ms=percentiles(self.late))


def percentiles(late: list[float]) -> dict[str, float] | None:
    """Of latencies in seconds: milliseconds."""
    if not late:
        return None
    late = sorted(late)
    at = {f"p{p}": late[min(len(late) - 1, len(late) * p // 100)] * 1e3 for p in (50, 99)}
    return {**at, "n": len(late)}


def tell(seconds: float, answers: dict[str, int], **more: Any) -> None:
    """Say what was found. more: `latency_ms`; `ends`, if there was an answer for each key only at
    these numbers of records."""
    print(json.dumps({"seconds": seconds, "answers": answers, **more}), flush=True)
