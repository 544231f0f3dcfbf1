"""Requests of clients, handed from the threads that Ray calls to the one that runs the machine."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

from raystream.controller.protocol.messages.events import Drain, Event, Rescale, UpgradeTo

ANSWER_SECONDS = 20.0
"""How long the machine may take to say whether it takes a request up."""
ENDED = "the job has ended"


class Requests:
    """Requests that wait until the machine takes them up or refuses them. All are refused
    once the job has ended."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._answers: dict[int, Future[str]] = {}
        self._waiting: set[int] = set()  # requests that the machine has not heard yet
        self._closed = False
        self._lock = threading.Lock()

    def put(self, event: Event) -> None:
        """Have the machine hear a request without an answer."""
        self._events.put(event)

    def ask(self, request: Callable[[int], Event], seconds: float = ANSWER_SECONDS) -> str:
        """Have the machine hear a request, and wait for its answer.

        Returns why the request is refused; empty if the machine takes it up.

        Args:
            request: makes the event from the request's number.
            seconds: how long the answer may take.
        """
        with self._lock:
            if self._closed:
                return ENDED
            number, answer = self._new()
            self._waiting.add(number)
        self._events.put(request(number))
        try:
            return answer.result(seconds)
        except TimeoutError:
            with self._lock:
                if not answer.done():
                    waits = number in self._waiting
                    del self._answers[number]
                    self._waiting.discard(number)  # it is not heard any more
                    late = "did not take it up" if waits else "has it, and has not answered"
                    return f"the controller {late} within {seconds:g} s"
            return answer.result(0)

    def own(self, request: Callable[[int], Event], refused: Callable[[str], None]) -> Event:
        """The event of a request of the controller's own; `refused` is called if it is refused."""
        with self._lock:
            number, answer = self._new()
        answer.add_done_callback(lambda a: refused(a.result()) if a.result() else None)
        return request(number)

    def _new(self) -> tuple[int, Future[str]]:
        number, answer = next(self._numbers), Future[str]()
        self._answers[number] = answer
        return number, answer

    def heard(self) -> list[Event]:
        """All events that the machine has to hear now."""
        found = []
        while not self._events.empty():
            event = self._events.get()
            number = event.request if isinstance(event, Rescale | Drain | UpgradeTo) else 0
            with self._lock:
                wanted = not number or number in self._waiting
                self._waiting.discard(number)
            if wanted:
                found.append(event)
        return found

    def answer(self, number: int, refusal: str) -> None:
        """Give a request the machine's answer."""
        with self._lock:
            answer = self._answers.pop(number, None)
        if answer is not None:
            answer.set_result(refusal)

    def close(self) -> None:
        """Refuse all requests that wait, and all later ones: the job has ended."""
        with self._lock:
            self._closed = True
            left, self._answers = self._answers, {}
        for answer in left.values():
            answer.set_result(ENDED)
