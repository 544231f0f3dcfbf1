"""Who is asked for the images of a range, and what it means when somebody does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ActorUnschedulableError,
    GetTimeoutError,
    RayError,
)

from raystream.actors.keepers import fetching
from raystream.actors.keepers.fetching import (
    MORE_SECONDS,
    RESTORE_SECONDS,
    NotHeldError,
    fetch,
)
from raystream.controller.protocol.recovery import Place
from raystream.schema.types import KeyRange
from raystream.state.images.image_store import Stored
from raystream.state.keeping.kept_images import KeptPart

ALL = KeyRange(0, 16)
HALVES = KeyRange(0, 8), KeyRange(8, 16)
PLACE = Place(1, "count", ALL, 0)
BROKEN = ActorUnavailableError("no connection", b"0" * 16)


class Keeper:
    """A keeper that answers each question with the next of these: ranges or an error, and after how
    many seconds.

    Args:
        files: whether its images are in files. damaged: the parts that are, of those it is asked
            for by number, which is the first key group. dies_at: the part at which it dies.
    """

    def __init__(
        self,
        clock: Clock,
        *answers: tuple[float, list[KeyRange] | RayError],
        files: bool = False,
        damaged: tuple[int, ...] = (),
        dies_at: int | None = None,
    ) -> None:
        self.answers = iter(answers)
        self.read_parts: list[tuple[int, Any]] = []
        part = in_a_file if files else in_memory
        self.images = SimpleNamespace(remote=lambda *_: Call(clock.now, *next(self.answers), part))
        self.read = SimpleNamespace(remote=self._read)
        self.damaged, self.dies_at, self.clock = damaged, dies_at, clock

    def _read(self, number: int, keys: KeyRange | None = None) -> Any:
        self.read_parts.append((number, keys))
        if number == self.dies_at:
            return Call(self.clock.now, 0.0, ActorDiedError(), None)
        return None if number in self.damaged else f"part {number} from a file"


def in_memory(keys: KeyRange) -> KeptPart[str]:
    return KeptPart(keys.lo, keys, 10, f"image of {keys}")


def in_a_file(keys: KeyRange) -> KeptPart[str]:
    return KeptPart(keys.lo, keys, 10, None)


class Call:
    def __init__(
        self, now: float, seconds: float, answer: list[KeyRange] | RayError, part: Any
    ) -> None:
        self.at = now + seconds
        self.answer, self.part = answer, part


class Clock:
    """Time that passes while somebody waits."""

    now = 0.0

    def wait(self, calls: list[Call], num_returns: int, timeout: float) -> Any:
        self.now = min(self.now + timeout, max(self.now, min(c.at for c in calls)))
        return [c for c in calls if c.at <= self.now][:num_returns], []

    def get(self, call: Any, timeout: float) -> Any:
        if not isinstance(call, Call):
            return call
        if isinstance(call.answer, RayError):
            raise call.answer
        return [(keys, [Stored(5, None, (call.part(keys),), 10)]) for keys in call.answer]

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(ray, "wait", made.wait)
    monkeypatch.setattr(ray, "get", made.get)
    time = SimpleNamespace(monotonic=lambda: made.now, sleep=made.sleep)
    monkeypatch.setattr(fetching, "time", time)
    monkeypatch.setattr(fetching, "decode", lambda data: data)
    monkeypatch.setattr(fetching, "in_ranges", lambda images, ranges: images)
    return made


def test_parts_come_from_whoever_has_them(clock: Clock) -> None:
    first, second = Keeper(clock, (0.2, [HALVES[1]])), Keeper(clock, (0.1, [HALVES[0]]))
    fetched = fetch([first, second], PLACE, 5)
    assert fetched is not None and not fetched.whole
    assert [*fetched.chains] == [(f"image of {keys}",) for keys in HALVES]


def test_what_is_in_files_is_read_by_the_keeper(clock: Clock) -> None:
    keeper = Keeper(clock, (0.1, [ALL]), files=True)
    fetched = fetch([keeper], PLACE, 5)
    assert fetched is not None and not keeper.read_parts, "nothing is read before it is wanted"
    assert [*fetched.chains] == [("part 0 from a file",)]


def test_a_part_of_a_range_is_cut_by_the_keeper(clock: Clock) -> None:
    keeper = Keeper(clock, (0.1, [ALL]))
    fetched = fetch([keeper], Place(1, "count", HALVES[1], 0), 5)
    assert fetched is not None and not fetched.whole
    assert [*fetched.chains] == [("part 0 from a file",)]
    assert keeper.read_parts == [(0, HALVES[1])]


def test_where_a_file_is_damaged_another_copy_is_taken(clock: Clock) -> None:
    bad = Keeper(clock, (0.1, [ALL]), (0.1, []), files=True, damaged=(0,))
    good = Keeper(clock, (0.2, [ALL]), (0.2, [ALL]))
    fetched = fetch([bad, good], PLACE, 5)
    assert fetched is not None and fetched.whole == {bad, good}
    assert [*fetched.chains] == [(f"image of {ALL}",)]
    assert fetched.whole == {good}, "the next image goes in full to the one with the damaged file"


def test_where_a_keeper_dies_the_rest_comes_from_another_copy(clock: Clock) -> None:
    """In the same restore: what has come already is not fetched again."""
    dies = Keeper(clock, (0.1, [*HALVES]), files=True, dies_at=8)
    lives = Keeper(clock, (0.2, [*HALVES]), (0.1, [*HALVES]), files=True)
    fetched = fetch([dies, lives], PLACE, 5)
    assert fetched is not None
    assert [*fetched.chains] == [("part 0 from a file",), ("part 8 from a file",)]
    assert lives.read_parts == [(8, None)]


def test_the_next_image_goes_in_full_where_a_keeper_died(clock: Clock) -> None:
    dies = Keeper(clock, (0.1, [ALL]), files=True, dies_at=0)
    lives = Keeper(clock, (0.2, [ALL]), (0.1, [ALL]), files=True)
    fetched = fetch([dies, lives], PLACE, 5)
    assert fetched is not None and fetched.whole == {dies, lives}
    assert [*fetched.chains] == [("part 0 from a file",)]
    assert fetched.whole == {lives}


def test_the_death_of_the_only_keeper_of_a_part_is_told(clock: Clock) -> None:
    dies = Keeper(clock, (0.1, [ALL]), files=True, dies_at=0)
    fetched = fetch([dies, Keeper(clock, (0.1, []), (0.1, []))], PLACE, 5)
    assert fetched is not None
    with pytest.raises(ActorDiedError):
        [*fetched.chains]


def test_what_every_copy_has_damaged_is_not_held(clock: Clock) -> None:
    bad = Keeper(clock, (0.1, [ALL]), (0.1, []), files=True, damaged=(0,))
    fetched = fetch([bad], PLACE, 5)
    assert fetched is not None
    with pytest.raises(NotHeldError, match=r"count/0 \[0, 16\) at 5"):
        [*fetched.chains]


@pytest.mark.parametrize("dead", [ActorDiedError(), ActorUnschedulableError("its node is gone")])
def test_what_only_the_dead_had_is_lost(clock: Clock, dead: RayError) -> None:
    assert fetch([Keeper(clock, (0, dead)), Keeper(clock, (0, []))], PLACE, 5) is None
    assert fetch([], PLACE, 5) is None


def test_what_a_late_keeper_may_have_is_not_lost(clock: Clock) -> None:
    late, other = Keeper(clock, (1e9, [ALL])), Keeper(clock, (0, [HALVES[0]]))
    with pytest.raises(GetTimeoutError):
        fetch([late, other, Keeper(clock, (1e9, []))], PLACE, 5)
    assert clock.now == RESTORE_SECONDS, "all are waited for together"


def test_nobody_is_waited_for_long_who_is_not_needed(clock: Clock) -> None:
    frozen, slow, quick = (Keeper(clock, (seconds, [ALL])) for seconds in (1e9, 0.3, 0.1))
    fetched = fetch([frozen, slow, quick], PLACE, 5)
    assert fetched is not None and fetched.whole == {slow, quick}
    assert clock.now <= 0.3 + MORE_SECONDS


def test_a_keeper_out_of_reach_is_asked_again(clock: Clock) -> None:
    keeper = Keeper(clock, (0, BROKEN), (0, BROKEN), (0.1, [ALL]))
    fetched = fetch([keeper], PLACE, 5)
    assert fetched is not None and fetched.whole == {keeper}


def test_one_that_stays_out_of_reach_may_be_tried_again_later(clock: Clock) -> None:
    with pytest.raises(ActorUnavailableError):
        fetch([Keeper(clock, *[(0.0, BROKEN)] * 1000)], PLACE, 5)
    assert clock.now >= RESTORE_SECONDS


def test_one_that_was_out_of_reach_and_has_nothing_leaves_no_doubt(clock: Clock) -> None:
    assert fetch([Keeper(clock, (0, BROKEN), (0, []))], PLACE, 5) is None
