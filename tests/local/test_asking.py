"""Operators that ask the world, in one process: what is asked, how often, and what goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import ConfigError, OperatorError
from raystream.local.job import run_local
from raystream.testing.collect import Collect


class Ask(NamedTuple):
    time: rs.Int64
    user: int


class Said(NamedTuple):
    time: rs.Int64
    user: int
    what: str = ""


ASKS = [Ask(t, t % 5) for t in range(60)]


def run(op: Any, **given: Any) -> list[Any]:
    return [*collected(op, **given).records()]


def collected(op: Any, on_error: Any = "end", **options: Any) -> Collect:
    sink, flow = Collect(), rs.Flow("asks", key_groups=8)
    asks = flow.source(rs.io.iterable(ASKS, Ask), epochs=rs.by_time(seconds=7), name="asks")
    asks.through(op, on_error=on_error).to(sink)
    run_local(flow, **options)
    return sink


def answers(records: list[Any]) -> list[tuple[int, int]]:
    return [(said.time, said.user) for said in records]


async def one(ask: Ask) -> Said:
    await asyncio.sleep(0.001 * (ask.time % 3))
    return Said(ask.time, ask.user)


async def maybe(ask: Ask) -> Said | None:
    return Said(ask.time, ask.user)


async def several(ask: Ask) -> list[Said]:
    return [Said(ask.time, ask.user)]


async def generated(ask: Ask) -> AsyncIterator[Said]:
    yield Said(ask.time, ask.user)


def plain(ask: Ask) -> Said:
    return Said(ask.time, ask.user)


def yielded(ask: Ask) -> Iterator[Said]:
    yield Said(ask.time, ask.user)


def batched(asks: list[Ask]) -> list[Said]:
    return [Said(ask.time, ask.user) for ask in asks]


async def awaited(asks: list[Ask]) -> list[Said | None]:
    return [Said(ask.time, ask.user) for ask in asks]


@pytest.mark.parametrize(
    ("function", "options"),
    [
        *((f, {}) for f in (one, maybe, several, generated)),
        *((f, {"recorded": True}) for f in (plain, yielded)),
        (batched, {"recorded": True, "batch": 7}),
        (awaited, {"batch": 7}),
    ],
)
def test_answers_go_on_in_the_order_of_their_records(function: Any, options: Any) -> None:
    assert answers(run(rs.operator(**options)(function))) == [tuple(ask) for ask in ASKS]


def test_a_keyed_one_asks_for_a_key_one_after_the_other() -> None:
    under_way: Counter[int] = Counter()
    order: dict[int, list[int]] = {}

    @rs.operator(key="user", concurrency=64, ordered=False)
    async def ask_user(ask: Ask) -> Said:
        under_way[ask.user] += 1
        assert under_way[ask.user] == 1
        await asyncio.sleep(0.002 if ask.time % 2 else 0.0)
        order.setdefault(ask.user, []).append(ask.time)
        under_way[ask.user] -= 1
        return Said(ask.time, ask.user)

    found = run(ask_user, instances={"ask_user": 2}, seed=3)
    for user in range(5):
        times = [ask.time for ask in ASKS if ask.user == user]
        assert order[user] == [said.time for said in found if said.user == user] == times


def test_no_more_calls_are_under_way_than_it_says_and_epochs_are_asked_ahead() -> None:
    now, most, together = 0, 0, set[int]()
    full = asyncio.Event()

    @rs.operator(concurrency=9)
    async def ask(ask: Ask) -> Said:
        nonlocal now, most
        now += 1
        most = max(most, now)
        together.add(ask.time // 7)
        if now == 9:
            full.set()
        await full.wait()
        now -= 1
        return Said(ask.time, ask.user)

    assert len(run(ask)) == len(ASKS)
    assert most == 9  # which is more than the 7 records of an epoch


def test_a_call_that_fails_is_made_again_under_the_same_id() -> None:
    ids: dict[int, list[str]] = {}

    @rs.operator(retries=3)
    async def ask(ask: Ask) -> Said:
        ids.setdefault(ask.time, []).append(rs.request_id())
        if ask.time == 5 and len(ids[5]) < 3:
            raise ConnectionError("busy")
        return Said(ask.time, ask.user)

    assert len(run(ask)) == len(ASKS)
    assert len(ids[5]) == 3
    assert len({name for names in ids.values() for name in names}) == len(ASKS)
    with pytest.raises(ConfigError, match="where no answer is recorded"):
        rs.request_id()


def test_what_fails_for_the_last_time_ends_the_job_with_the_users_line() -> None:
    @rs.operator(key="user", retries=1)
    async def ask(ask: Ask) -> Said:
        if ask.time == 23:
            raise ValueError("not that one")  # here
        return Said(ask.time, ask.user)

    with pytest.raises(OperatorError, match="ask raised ValueError: not that one") as raised:
        run(ask)
    assert raised.value.where is not None
    assert "# here" in raised.value.where.text
    assert "key 3" in raised.value.hint


def test_what_fails_is_a_record_of_a_second_stream() -> None:
    @rs.operator(recorded=True, retries=0, timeout=0.2, batch=4)
    def ask(asks: list[Ask]) -> list[Said]:
        if any(ask.time == 9 for ask in asks):
            raise ValueError("no")
        if any(ask.time == 11 for ask in asks):
            threading.Event().wait(5)
        return [Said(ask.time, ask.user) for ask in asks]

    found = run(ask, on_error="stream")
    failed = {one.time: one.reason for one in found if isinstance(one, rs.FailedRecord)}
    assert failed == {9: "ValueError: no", 11: "TimeoutError: no answer within 0.2 s"}
    assert len(found) == len(ASKS)


@pytest.mark.parametrize("answer", [[], [1], None, 3, "ab"])
def test_a_wrong_answer_is_refused_in_words(answer: Any) -> None:
    @rs.operator(recorded=True, batch=4)
    def ask(asks: list[Ask]) -> list[Said]:
        return answer  # type: ignore[no-any-return]

    with pytest.raises(OperatorError, match=r"ask returned .* for 4 records|answered with"):
        run(ask)


@pytest.mark.parametrize("answer", [Ask(1, 1), 3, Said("x", 1)])  # type: ignore[arg-type]
def test_an_answer_that_does_not_fit_is_refused_before_it_is_recorded(answer: Any) -> None:
    @rs.operator(recorded=True)
    def ask(ask: Ask) -> Said:
        return answer  # type: ignore[no-any-return]

    with pytest.raises(OperatorError, match=r"answered with|does not fit|raised"):
        run(ask)
    failed = run(ask, on_error="stream")
    assert len(failed) == len(ASKS)
    assert all(isinstance(one, rs.FailedRecord) for one in failed)


def test_checking_mode_makes_everything_again_and_asks_nothing_again() -> None:
    asked: Counter[int] = Counter()

    @rs.operator(key="user", recorded=True)
    def ask(ask: Ask) -> Said:
        asked[ask.time] += 1
        return Said(ask.time, ask.user, f"{rs.random()} {rs.now()}")

    assert len(run(ask, check=True, checkpoint_every=2)) == len(ASKS)
    assert set(asked.values()) == {1}


def test_time_and_chance_are_those_of_the_machine() -> None:
    @rs.operator(recorded=True)
    def ask(ask: Ask) -> Said:
        assert abs(rs.now() - time.time()) < 3600
        return Said(ask.time, ask.user, str(rs.random()))

    found = run(ask)
    assert len({said.what for said in found}) == len(ASKS)
    assert all(0 <= float(said.what) < 1 for said in found)


def test_elsewhere_they_are_refused_with_the_users_line() -> None:
    @rs.operator()
    def plain(ask: Ask) -> Iterator[Said]:
        yield Said(ask.time, ask.user, str(rs.random()))

    with pytest.raises(
        OperatorError, match=r"rs\.random\(\) was called where no answer is recorded"
    ):
        run(plain)
