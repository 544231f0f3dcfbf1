"""What cannot be taken: headers that are no text, requests to a lane that has ended or left, and of
clients whose token has expired."""

from __future__ import annotations

import asyncio
import http.client
import time
from contextlib import closing

import pytest

from raystream.api.batch import Batch
from raystream.errors import ConfigError
from raystream.io.push.lane import Lane, Waiting
from raystream.push import Client
from raystream.security.tokens import PUSH, signed
from tests.io.test_push import TOKEN, Item, running


@pytest.mark.parametrize(
    ("headers", "status", "why"),
    [
        ({"Authorization": b"Bearer \xff\xfe"}, 401, "show the token"),
        ({"Raystream-Sender": b"a\xff", "Raystream-Sequence": b"1"}, 400, "is no text"),
        ({"Raystream-Sender": b"a", "Raystream-Sequence": "\u0661".encode()}, 400, "whole number"),
    ],
)
def test_headers_that_are_no_text_are_refused(
    headers: dict[str, bytes], status: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running() as job, closing(http.client.HTTPConnection("127.0.0.1", job.port)) as asked:
        shown = {"Authorization": f"Bearer {TOKEN}".encode(), **headers}
        asked.request("POST", "/push", b'{"time": 1}', shown)
        answer = asked.getresponse()
        assert answer.status == status and why in answer.read().decode()
    assert not caplog.records and job.found == []


def test_a_token_that_expires_lets_a_client_in_until_then() -> None:
    with running() as job:
        over = signed(TOKEN, PUSH, time.time() - 1)
        assert job.post(b'{"n": 1}', Authorization=f"Bearer {over}")[0] == 401
        good = signed(TOKEN, PUSH, time.time() + 600)
        assert job.post(b'{"n": 2}', Authorization=f"Bearer {good}")[0] == 200
        with Client(job.url, good) as client:
            client.push({"n": 3, "text": "by a client"})
    assert sorted(item.n for item in job.found) == [2, 3]


@pytest.mark.parametrize("how", ["close", "end"])
def test_a_lane_that_has_ended_or_left_takes_nothing(how: str) -> None:
    loop = asyncio.new_event_loop()
    lane = Lane(0, loop)
    waiting = Waiting(
        Batch(Item, {"n": [1], "text": ["a"], "at": [None]}), None, loop.create_future()
    )
    assert lane.put(waiting) and lane.take(0.0) is waiting
    getattr(lane, how)()
    assert not lane.put(waiting) and lane.take(0.0) is None
    loop.close()


def test_when_a_client_gives_up_is_a_length_of_time() -> None:
    assert Client("http://127.0.0.1:1", "t", give_up="5m")._give_up == 300.0
    with pytest.raises(ConfigError, match=r"Client\(give_up='soon'\) is no length of") as raised:
        Client("http://127.0.0.1:1", "t", give_up="soon")
    assert raised.value.where is not None and raised.value.where.file == __file__
