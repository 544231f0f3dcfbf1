"""Which balances the benchmark's original validator accepts, as a third opinion.

The original scripts of 2004 do not say which balance is right, but which ones they let pass: up to
two for a question, because a balance may be a minute old. Rules R (`lrb.oracle.sql`) name one
answer; it has to be among them. That holds for cars with a single journey: for re-entrant cars the
original charges the last segment of the journey before, which R does not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping

#: (vid, time, toll) of a notification.
Notification = tuple[int, int, int]
#: (vid, time, qid) of a question for a balance.
Question = tuple[int, int, int]
#: (result time, balance) of an answer.
Balance = tuple[int, int]


def accepted_balances(
    notifications: Iterable[Notification], questions: Iterable[Question]
) -> Mapping[tuple[int, int], set[Balance]]:
    """The accepted answers to each question, by (time, qid); none if the car was never notified.

    Cars must have made one journey each.
    """
    events: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for vid, time, toll in notifications:
        events[vid].append((time, toll))
    accounts = {vid: _account(sorted(found)) for vid, found in events.items()}
    return {(time, qid): _accepted(accounts.get(vid, []), time) for vid, time, qid in questions}


def _account(events: list[tuple[int, int]]) -> list[Balance]:
    """The balance at each event: the tolls announced before it."""
    balances, balance = [], 0
    for time, toll in events:
        balances.append((time, balance))
        balance += toll
    return balances


def _accepted(account: list[Balance], time: int) -> set[Balance]:
    """The four cases of the original, for the balances at a car's events and a question at `time`.

    It wants an event before the one before the latest in case 2, and so do we.
    """
    times = [at for at, _ in account]
    known = bisect_right(times, time)  # events 0 .. known - 1 are at or before the question
    accepted: set[Balance] = set()
    if known == 0:
        return accepted
    latest = known - 1
    if times[latest] == time:  # 1: the question comes with an event
        accepted.add(account[latest])
    if times[latest] > time - 30 and latest >= 2:  # 2: the old balance, true until the latest event
        accepted.add(account[latest - 1])
    recent = bisect_right(times, time - 60)
    if recent < known:  # 3: the earliest event of the last minute
        accepted.add(account[recent])
    else:  # 4: nothing happened for a minute
        accepted.add(account[latest])
    return accepted
