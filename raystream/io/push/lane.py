"""What has come for a lane: taken by the thread that reads the lane, answered once it is recorded.

Requests come from the event loop of the hub, batches are taken by the reader of the split, and what
is recorded is told by the thread that computes.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from raystream.api.batch import Batch
from raystream.io.push.sequences import Sequences

LANE_BYTES = 32 << 20
"""A lane takes no more while the requests that have no answer have this many bytes."""
LANE_REQUESTS = 1024
"""A lane takes no more while this many requests have no answer."""


class Waiting(NamedTuple):
    """A request that is to be recorded."""

    batch: Batch[Any]
    sent: tuple[str, int] | None
    """Its sender and sequence, if it says them."""
    answer: asyncio.Future[bool]
    """Whether it is recorded. False: this process does not know, so it is to be sent again."""


class Lane:
    """A lane that this process owns.

    Args:
        loop: of the hub; its thread alone resolves answers.
        known: by sender the last sequence that was recorded before.
    """

    def __init__(
        self,
        number: int,
        loop: asyncio.AbstractEventLoop,
        known: Mapping[str, int] | None = None,
    ) -> None:
        self.number = number
        self.sequences = Sequences(known)
        """Used under the lock of the lane, by `put` and `recorded`; read by the loop."""
        self.ended = False
        """Whether the end has come: it takes nothing more."""
        self.held_bytes = self.held = 0
        """The bytes and number of requests that have no answer. Used by the loop only."""
        self._loop = loop
        self._closed = False
        self._changed = threading.Condition()
        self._came: deque[Waiting] = deque()
        self._taken: deque[tuple[int, Waiting]] = deque()
        self._ends: list[asyncio.Future[bool]] = []
        self._end_recorded = False

    def full(self, nbytes: int) -> bool:
        """Whether a request of this size has to wait. One alone is always taken."""
        crowded = self.held_bytes + nbytes > LANE_BYTES or self.held >= LANE_REQUESTS
        return self.held > 0 and crowded

    def knows(self, sequences: Mapping[str, int]) -> None:
        """Others have recorded these, by sender."""
        with self._changed:
            for sender, sequence in sequences.items():
                self.sequences.take(sender, sequence)
                self.sequences.record(sender, sequence)

    def put(self, request: Waiting) -> bool:
        """Have a request recorded. False: the lane is no longer here, or has ended."""
        with self._changed:
            if self._closed or self.ended:
                return False
            if request.sent is not None:
                self.sequences.take(*request.sent)
            self._came.append(request)
            self._changed.notify()
            return True

    def end(self) -> asyncio.Future[bool]:
        """Take nothing more. What has come is recorded, and then the end. Called by the loop.

        Returns:
            whether the end is recorded. False: this process does not know, so it is to be sent
            again.
        """
        answer: asyncio.Future[bool] = self._loop.create_future()
        with self._changed:
            self.ended = True
            if self._end_recorded or self._closed:
                answer.set_result(self._end_recorded)
            else:
                self._ends.append(answer)
            self._changed.notify()
        return answer

    def end_recorded(self) -> None:
        """The end is recorded: what is not by now never will be."""
        with self._changed:
            self.ended = self._end_recorded = True
            ends, self._ends = self._ends, []
            lost = self._unanswered()
            self._changed.notify()
        self._resolve(ends, True)
        self._resolve(lost, False)

    def take(self, seconds: float) -> Waiting | None:
        """The next request; None if none comes in this time, or ever."""
        with self._changed:
            if not self._came and not self.ended:
                self._changed.wait(seconds)
            return self._came.popleft() if self._came else None

    @property
    def over(self) -> bool:
        """Whether the end has come and all before it was taken."""
        with self._changed:
            return self.ended and not self._came

    def taken(self, number: int, request: Waiting) -> None:
        """Note under which number a request is to be recorded. Numbers rise."""
        with self._changed:
            self._taken.append((number, request))

    def recorded(self, upto: int) -> None:
        """Everything up to this number is recorded."""
        answers = []
        with self._changed:
            while self._taken and self._taken[0][0] <= upto:
                request = self._taken.popleft()[1]
                if request.sent is not None:
                    self.sequences.record(*request.sent)
                answers.append(request.answer)
        self._resolve(answers, True)

    def close(self) -> None:
        """The lane is no longer read here: clients are to send again what is not answered."""
        with self._changed:
            self._closed = True
            answers = [*self._unanswered(), *self._ends]
            self._ends = []
        self._resolve(answers, False)

    def _unanswered(self) -> list[asyncio.Future[bool]]:
        """The answers of all requests that have none; they are forgotten."""
        answers = [request.answer for _, request in self._taken]
        answers += [request.answer for request in self._came]
        self._taken.clear()
        self._came.clear()
        return answers

    def _resolve(self, answers: Collection[asyncio.Future[bool]], recorded: bool) -> None:
        def resolve() -> None:
            for answer in answers:
                if not answer.done():
                    answer.set_result(recorded)

        if answers and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(resolve)
