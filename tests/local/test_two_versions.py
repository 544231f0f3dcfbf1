"""Two versions of a flow whose epochs are cut by arrival: the second takes those of the first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from raystream.local.comparing import Pair
from raystream.local.replay import Replay, replay_plan
from raystream.run import feed_of
from raystream.testing import Collect
from tests.flows import Line, Running, Tally, Word, split

KEPT = 50


class Dripping(rs.Source[Line]):
    """Two splits of lines, of which batches come one by one, with nothing in between."""

    waits = True

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a"), rs.Split("b")]

    def read(self, split: rs.Split, position: int, /) -> Iterator[tuple[int, rs.Batch[Line]]]:
        for i in range(position, 60):
            yield i, rs.Batch(Line, {"time": [], "text": []})
            yield i + 1, rs.Batch(Line, {"time": [i], "text": [f"{split.name} w{i % 5}"]})


@rs.operator(key="word")
def places(word: Word, tally: Tally) -> Iterator[Running]:
    """What it emits depends on the order of the words of both splits."""
    tally.n = (tally.n * 31 + word.time) % 1_000_003
    yield Running(word.word, tally.n)


def dripping(extra: bool, op: Any = places) -> rs.Flow:
    """extra: a source before it, so that vertices have other numbers."""
    flow = rs.Flow("dripping")
    if extra:
        more = flow.source(rs.io.iterable([Line(0, "x")], Line), name="more")
        more.to(Collect(), name="more out")
    lines = flow.source(Dripping(), epochs=rs.by_arrival(seconds=0.01), name="lines")
    lines.through(split).through(op, name="places").to(Collect(), name="out")
    return flow


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("extra", [False, True])
def test_two_versions_take_the_same_epochs_by_arrival(
    tmp_path: Path, extra: bool, fed: bool
) -> None:
    dripping(False).run(durable=tmp_path, checkpoint_every=4, keep=KEPT)
    saves = Saves(open_store(tmp_path), "dripping")
    saved = saves.kept()[-1]
    one, _ = replay_plan(dripping(False), saves, saved)
    two, _ = replay_plan(dripping(extra), saves, saved)
    feeds = (feed_of(one), feed_of(two)) if fed else (None, None)
    both = Pair(
        Replay(one, saves, keeps=True, feed=feeds[0]),
        Replay(two, saves, keeps=True, feed=feeds[1]),
    )
    with both.first, both.second:
        while compared := both.turn():
            assert not compared.differences
            kept = {epoch for r in (both.first, both.second) for _, epoch in r.boundaries}
            assert not kept or min(kept) > compared.epoch
        assert both.records > 50 and both.first.ended
    assert both.alone == (("more out",) if extra else ())
