"""Runs and processes of a sink to files that wake up when another one has taken their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.errors import JobError, OutputError
from raystream.io.output import manifest
from tests.io.kinds import batch
from tests.io.output.lives import ALL, HALVES, Row, began, opened, visible


def test_the_older_run_counts_until_all_were_opened(tmp_path: Path) -> None:
    sink = began(tmp_path)
    before = visible(tmp_path)
    one = opened(sink, HALVES[1], "two", 2, "one")
    one.write(3, HALVES[1], batch(Row, [Row(128, 3, "two")]))
    one.prepare(4)
    assert visible(tmp_path) == before
    with pytest.raises(JobError, match="has not ended"):
        rs.io.parts(tmp_path)
    other = opened(sink, HALVES[0], "two", 2, "one")
    other.prepare(4)
    assert {r.epoch for r in visible(tmp_path)} == {1, 2}, "nothing that may come again"
    for instance in (one, other):
        instance.commit(4)
    assert [r for r in visible(tmp_path) if r.epoch > 2] == [Row(128, 3, "two")]


def test_an_old_run_that_wakes_up_does_no_harm(tmp_path: Path) -> None:
    sink = rs.io.parquet(tmp_path)
    zombie = opened(sink, ALL, "one")
    zombie.write(1, ALL, batch(Row, [Row(0, 1, "one")]))
    zombie.prepare(2)
    zombie.write(3, ALL, batch(Row, [Row(0, 3, "one")]))
    two = opened(sink, ALL, "two", 2, "one")
    for wakes_up in (zombie.prepare, zombie.commit):
        with pytest.raises(OutputError, match="is another run's now"):
            wakes_up(4)
    two.write(3, ALL, batch(Row, [Row(0, 3, "two")]))
    two.prepare(4)
    two.commit(4)
    two.close()
    assert visible(tmp_path) == [Row(0, 1, "one"), Row(0, 3, "two")]


@pytest.mark.parametrize("sleeps_in", ["prepare", "commit", "close"])
@pytest.mark.parametrize("wakes_up", [2, 4, 6])
def test_a_process_that_sleeps_amid_a_write_does_no_harm_to_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeps_in: str, wakes_up: int
) -> None:
    """It sleeps between its look at what is there and its write, as long as it takes another to
    take its place and to get so far."""
    sink = rs.io.parquet(tmp_path)
    zombie = opened(sink, ALL, "one", generation=3)
    zombie.write(1, ALL, batch(Row, [Row(0, 1, "one")]))
    if sleeps_in != "prepare":
        zombie.prepare(2)
    successor: Any = None

    def goes_on(upto: int) -> None:
        nonlocal successor
        if successor is None:
            successor = opened(sink, ALL, "one", 0 if sleeps_in == "prepare" else 2, generation=7)
            for epoch in (1, 3):
                successor.write(epoch, ALL, batch(Row, [Row(0, epoch, "one")]))
        for checkpoint in range(2, upto + 1, 2):
            successor.commit(checkpoint)
        if upto == 6:
            successor.close()

    put = manifest._put

    def late(path: Path, text: str, *, lasting: bool) -> None:
        with monkeypatch.context() as awake:
            awake.setattr(manifest, "_put", put)
            goes_on(wakes_up)
        put(path, text, lasting=lasting)

    with monkeypatch.context() as asleep:
        asleep.setattr(manifest, "_put", late)
        zombie.close() if sleeps_in == "close" else getattr(zombie, sleeps_in)(2)
    with pytest.raises(OutputError, match="another process of this one has taken the place"):
        opened(sink, ALL, "one", 2, generation=6)
    if wakes_up < 6:
        goes_on(6)
    assert [tuple(r) for b in rs.io.read_parts(tmp_path, Row) for r in b.records()] == [
        (0, 1, "one"),
        (0, 3, "one"),
    ]


def test_a_run_that_begins_late_takes_nothing_from_one_that_went_on_from_the_same_cut(
    tmp_path: Path,
) -> None:
    """It was thought dead, and is only told at its next cut that another run has begun."""
    sink = rs.io.parquet(tmp_path)
    one = opened(sink, ALL, "one", number=1)
    one.write(1, ALL, batch(Row, [Row(0, 1, "one")]))
    one.commit(2)
    three = opened(sink, ALL, "three", 2, "one", number=3)
    with pytest.raises(OutputError, match="is another run's now"):
        opened(sink, ALL, "two", 2, "one", number=2)
    three.write(3, ALL, batch(Row, [Row(0, 3, "three")]))
    three.commit(4)
    assert visible(tmp_path) == [Row(0, 1, "one"), Row(0, 3, "three")]
    with pytest.raises(OutputError, match="is another run's now"):
        opened(sink, ALL, "two", 2, "one", number=2)
    four = opened(sink, ALL, "four", 4, "three", number=4)
    four.commit(6)
    assert visible(tmp_path) == [Row(0, 1, "one"), Row(0, 3, "three")]


def test_a_manifest_that_is_replaced_while_it_is_read_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor is there under another name, which the reader has not found."""
    sink = rs.io.parquet(tmp_path)
    one = opened(sink, ALL, "one", generation=3)
    one.write(1, ALL, batch(Row, [Row(0, 1, "one")]))
    one.commit(2)
    parse = manifest._parse

    def late(*args: Any) -> Any:
        monkeypatch.setattr(manifest, "_parse", parse)
        opened(sink, ALL, "one", 2, generation=7)
        return parse(*args)

    monkeypatch.setattr(manifest, "_parse", late)
    assert visible(tmp_path) == [Row(0, 1, "one")]
    (tmp_path / "_manifest-none-00000-00256.json").symlink_to("nowhere")
    assert visible(tmp_path) == [Row(0, 1, "one")], "a name without a file is not waited for"


def test_an_old_run_that_wakes_up_leaves_one_from_the_beginning_alone(tmp_path: Path) -> None:
    """Its manifest would be there beside the other, which replaces none: readers refused both."""
    sink = rs.io.parquet(tmp_path)
    zombie = opened(sink, ALL, "one")
    zombie.write(1, ALL, batch(Row, [Row(0, 1, "one")]))
    anew = opened(sink, ALL, "two")
    for wakes_up in (zombie.prepare, zombie.commit):
        with pytest.raises(OutputError, match="is another run's now"):
            wakes_up(2)
    zombie.close()
    anew.write(1, ALL, batch(Row, [Row(0, 1, "two")]))
    anew.commit(2)
    anew.close()
    assert visible(tmp_path) == [Row(0, 1, "two")]


def test_a_predecessor_that_wakes_up_does_no_harm(tmp_path: Path) -> None:
    """It would put back what its successor has committed, which nobody makes again."""
    sink = rs.io.parquet(tmp_path)
    zombie = opened(sink, ALL, "one")
    zombie.commit(2)
    two = opened(sink, ALL, "one", 2)
    two.commit(4)
    with pytest.raises(OutputError, match="another process of this one has taken the place"):
        zombie.prepare(4)
    two.commit(6)
    opened(sink, ALL, "one", 6)
