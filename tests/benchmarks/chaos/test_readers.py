"""What clients that read a running word count take for right, and for wrong."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections import Counter
from typing import Any, NamedTuple

import pytest

from benchmarks.chaos.readers import Client, Found, Reader, State, Told
from benchmarks.shared import words
from raystream.dataflow.queries.request import Moment

LINES = words.Lines(rate=20, seconds=70)


class Answer(NamedTuple):
    key: tuple[str, int]
    row: dict[str, Any] | None
    moment: Moment


@pytest.mark.parametrize("epoch", [1, 29, 30, 31, 60, 69])
def test_the_rows_of_an_epoch_are_the_words_of_its_open_window(epoch: int) -> None:
    start = epoch // 30 * 30
    expected = Counter(
        word
        for split in LINES.splits()
        for _, batch in LINES.read(split, 0)
        for line in batch.records()
        if start <= line.time < epoch
        for word in line.text.split()
    )
    assert not State(LINES).rows(LINES.seconds)  # the end closes all windows
    assert State(LINES).rows(epoch) == {(word, start): n for word, n in expected.items()}


def test_a_wrong_row_and_an_earlier_epoch_are_noted() -> None:
    state = State(LINES)
    rows = state.rows(40)
    key, n = next(iter(rows.items()))
    reader = Reader(state, "auto", random.Random(1), say=lambda _: None)
    reader.check([Answer(key, {"n": n}, Moment(1, 40))], (1, 40))
    assert not reader.found.wrong
    for answer in (
        Answer(key, {"n": n + 1}, Moment(1, 40)),
        Answer(key, None, Moment(1, 40)),
        Answer((key[0], 0), {"n": 1}, Moment(1, 40)),
        Answer(key, {"n": n}, Moment(1, 39)),
    ):
        before = len(reader.found.wrong)
        reader.check([answer], (1, 40))
        assert len(reader.found.wrong) > before
    assert reader.found.answers == 5 and reader.found.rows == 4


def _dies_at_first(seen: tuple[int, int], pipe: Any) -> None:
    """A client that dies when it has seen one epoch, and ends when it has seen two."""
    epoch = seen[1] + 1
    pipe.send(Told(Found(answers=1, epochs={epoch}), (1, epoch), last=epoch == 2))
    pipe.close()
    os._exit(0 if epoch == 2 else 1)


def _dies(seen: tuple[int, int], pipe: Any) -> None:
    os._exit(1)


def starter(does: Any) -> Any:
    """Starts a process that does this."""
    context = multiprocessing.get_context("spawn")

    def start(seen: tuple[int, int]) -> tuple[Any, Any]:
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=does, args=(seen, theirs))
        process.start()
        theirs.close()
        return process, mine

    return start


def test_a_client_without_an_answer_is_no_proof() -> None:
    client = Client(starter(_dies))
    client.close()
    assert client.found == Found(died=1, wrong=["a client had no answer"])


def test_a_client_that_died_goes_on_with_what_it_has_seen() -> None:
    client = Client(starter(_dies_at_first))
    until = time.monotonic() + 60
    while not client.look() or not client.found.died:
        assert time.monotonic() < until
        time.sleep(0.01)
    client.close()
    assert client.found == Found(answers=2, epochs={1, 2}, died=1)
