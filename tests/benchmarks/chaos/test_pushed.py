"""Clients that push and are killed, and how the output of the job is checked."""

from __future__ import annotations

import random
import secrets
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.chaos.pushed import CLIENTS, flow_of, read, wrong
from benchmarks.chaos.pushers import BAD_EVERY, BUCKETS, REQUEST, Place, Pushers, PushTask, noted
from raystream.errors import JobError
from raystream.push import Client
from tests.gates import until
from tests.processes import free_port

REQUESTS = 3 * BAD_EVERY
EACH = REQUESTS * REQUEST - 7


def test_clients_that_are_killed_go_on_and_what_is_refused_is_not_taken(tmp_path: Path) -> None:
    place = Place(free_port(), free_port(), secrets.token_urlsafe(16), "pushed")
    tasks = [
        PushTask(place, n, EACH, 8_000.0, time.time(), tmp_path / f"client-{n}")
        for n in range(CLIENTS)
    ]
    job = threading.Thread(target=lambda: flow_of(place, tmp_path / "out").run())
    pushers = Pushers(tasks, 0.0, random.Random(1))
    try:
        job.start()
        for client in (0, 1):  # over HTTP, over Flight
            until(lambda client=client: noted(tasks[client].note)[0] > 1)
            pushers.kill(client)
        until(pushers.look)
    finally:
        pushers.close()
        with Client(f"http://127.0.0.1:{place.port}", place.token) as client:
            client.end()
        job.join()
    done, refused = zip(*(noted(task.note) for task in tasks), strict=True)
    assert done == (REQUESTS,) * CLIENTS and all(refused)
    assert pushers.kills == 2
    assert wrong(EACH, *read(tmp_path / "out")) == 0


def test_a_client_that_fails_is_said(tmp_path: Path) -> None:
    place = Place(free_port(), free_port(), "x", "pushed")
    (tmp_path / "note").write_bytes(b"no note")
    pushers = Pushers([PushTask(place, 0, 1, 0.0, 0.0, tmp_path / "note")], 0.0, random.Random(1))
    try:
        with pytest.raises(JobError, match="client-0 has failed: exit code 1"):
            until(pushers.look)
    finally:
        pushers.close()


def right(each: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    client = np.repeat(np.arange(CLIENTS), each)
    number = np.tile(np.arange(each), CLIENTS)
    seen = [0] * BUCKETS
    nth = []
    for bucket in (number % BUCKETS).tolist():
        seen[bucket] += 1
        nth.append(seen[bucket])
    return client, number, np.array(nth)


@pytest.mark.parametrize("each", [1, 5, BUCKETS + 3])
def test_a_right_output_is_right_in_any_order(each: int) -> None:
    client, number, nth = right(each)
    order = np.random.default_rng(1).permutation(len(client))
    assert wrong(each, client[order], number[order], nth[order]) == 0


def test_what_is_missing_or_too_many_or_refused_is_wrong() -> None:
    each = BUCKETS + 3
    client, number, nth = right(each)
    assert wrong(each, client[1:], number[1:], nth[1:]) == 2  # the record, and its count
    twice = np.r_[0, np.arange(len(client))]
    assert wrong(each, client[twice], number[twice], nth[twice]) == 2
    number[5] = -1  # that was refused
    assert wrong(each, client, number, nth) == 4
    client, number, nth = right(each)
    nth[3] = 99
    assert wrong(each, client, number, nth) == 2
    assert wrong(each, *(np.zeros(0, np.int64),) * 3) == 2 * CLIENTS * each
