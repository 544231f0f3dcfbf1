"""Requests from other threads: whoever waits is answered, also by the end of the job."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

from raystream.actors.control.requests import ENDED, Requests
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.events import Event
from tests.gates import LIMIT_SECONDS


def drain(number: int) -> Event:
    return on.Drain(number, "a", "tested")


def numbers(requests: Requests, most: int) -> list[int]:
    """Of so many requests, as soon as they were made."""
    found: list[int] = []
    while len(found) < most:
        time.sleep(0.01)
        found += [e.request for e in requests.heard() if isinstance(e, on.Drain)]
    return found


def heard_of(requests: Requests, asked: Future[str]) -> list[int]:
    """The request of who still waits for the answer."""
    found: list[int] = []
    while not found and not asked.done():
        time.sleep(0.01)
        found += [e.request for e in requests.heard() if isinstance(e, on.Drain)]
    return found


def test_who_asks_is_told_what_the_machine_says() -> None:
    requests = Requests()
    with ThreadPoolExecutor(1) as pool:
        for refusal in ("", "no such node"):
            asked = pool.submit(requests.ask, drain, LIMIT_SECONDS)
            requests.answer(*numbers(requests, 1), refusal)
            assert asked.result(LIMIT_SECONDS) == refusal


def test_the_end_of_the_job_answers_all_who_wait_and_who_asks_later() -> None:
    requests = Requests()
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(requests.ask, drain, LIMIT_SECONDS) for _ in range(2)]
        first, _ = numbers(requests, 2)
        requests.close()
        assert [a.result(LIMIT_SECONDS) for a in asked] == [ENDED, ENDED]
    requests.answer(first, "too late")
    assert requests.ask(drain, LIMIT_SECONDS) == ENDED
    assert not requests.heard()


def test_a_machine_that_hears_nothing_is_not_waited_for() -> None:
    requests = Requests()
    assert "did not take it up" in requests.ask(drain, 0.0)
    assert not requests.heard()  # who was told so does not see it done after all


def test_a_machine_that_says_nothing_is_not_waited_for() -> None:
    requests = Requests()
    with ThreadPoolExecutor(1) as pool:
        seconds, said = 0.1, "did not take it up"
        while "did not take it up" in said:  # this machine was too slow to hear it in time
            seconds *= 3
            asked = pool.submit(requests.ask, drain, seconds)
            number = next(iter(heard_of(requests, asked)), 0)
            said = asked.result(LIMIT_SECONDS)
        assert number and "has not answered" in said
    requests.answer(number, "")


def test_the_controller_hears_why_its_own_request_is_refused() -> None:
    requests, refusals = Requests(), list[str]()
    for refusal in ("", "there is no other one"):
        event = requests.own(drain, refusals.append)
        assert isinstance(event, on.Drain)
        requests.answer(event.request, refusal)
    assert refusals == ["there is no other one"]
