"""Sinks of files when a new run goes on from a saved cut of another: what came later is discarded,
nothing is lost and nothing is there twice, whatever the ranges, and wherever it is interrupted."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import InputError, OutputError
from raystream.io.output.manifest import read_manifests
from tests.dataflow.random_ranges import random_ranges
from tests.examples import examples
from tests.io.output.lives import (
    ALL,
    GROUPS,
    HALVES,
    Life,
    Row,
    began,
    files,
    opened,
    rows,
    visible,
)


@examples(25)
@given(st.integers(0, 2**32), st.sampled_from(["parquet", "csv"]))
def test_runs_that_go_on_from_cuts_write_every_epoch_once(seed: int, kind: str) -> None:
    """Every second epoch is a cut. Each run writes its own name: what the one before had after the
    cut has to go, all up to it has to stay. Readers never see what is not saved."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sink = getattr(rs.io, kind)(folder)
        writer: dict[int, str] = {}  # by epoch, whose rows count
        saved, saver = 0, ""
        for number in range(rng.randrange(2, 6)):
            life = Life(sink, rng, f"run-{number}", saved, saver)
            before = Counter(_expected(writer, saved)) if saved else None
            life.open(rng.randrange(4))
            if len(life.instances) < len(life.ranges):
                if before is not None:
                    assert before <= Counter(visible(folder)), "the older run is still what counts"
                if rng.random() < 0.5:
                    continue  # it dies before all were opened
                life.open(GROUPS)
            writer = {e: w for e, w in writer.items() if e <= saved}
            assert sorted(visible(folder)) == _expected(writer, saved)
            committed = saved
            for _ in range(rng.randrange(4)):
                committed += 2
                life.write(committed)
                writer |= {e: life.name for e in range(1, committed + 1) if e not in writer}
                assert sorted(visible(folder)) == _expected(writer, saved)
                if rng.random() < 0.3:
                    life.restart(committed)
                if rng.random() < 0.6:
                    saved, saver = committed, life.name
                    life.show(saved)
        life = Life(sink, rng, "last", saved, saver)
        life.open(GROUPS)
        last = saved + 5
        life.write(last, ahead=0)
        for one in life.instances.values():
            one.prepare(last)
            one.commit(last)
            one.close()
        writer = {e: writer[e] if e <= saved else "last" for e in range(1, last + 1)}
        found = [r for b in rs.io.read_parts(folder, Row) for r in b.records()]
        assert sorted(found) == _expected(writer, last)
        listed = {p.path for p in rs.io.parts(folder)}
        lists = {folder / name for m in read_manifests(folder) for name in m.lists}
        manifests = set(folder.glob("_manifest-last-*"))
        assert files(folder) == listed | manifests | lists, "nothing else"


@pytest.mark.parametrize("seed", range(6))
def test_so_they_do_when_their_parts_are_in_lists(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raystream.io.output.manifest.LIST_PARTS", 1 + seed % 2)
    test_runs_that_go_on_from_cuts_write_every_epoch_once.hypothesis.inner_test(seed, "csv")


class KilledError(BaseException):
    """Nothing is done after it."""


def test_wherever_a_run_dies_that_removes_lists_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raystream.io.output.manifest.LIST_PARTS", 2)
    for lives in count():
        sink = began(tmp_path / str(lives), upto=14)
        ops = iter(range(lives))
        with monkeypatch.context() as patch:
            for name in ("os.replace", "os.unlink"):  # which `Path.unlink` is, too
                patch.setattr(name, partial(_mortal, getattr(os, name[3:]), ops))
            try:
                opened(sink, ALL, "two", 10, "one")
                break
            except KilledError:
                known = any(sink.folder.glob("_manifest-two-*"))
        for keys in HALVES:
            opened(sink, keys, "three", 8, "one")
        epochs = sorted(r.epoch for r in visible(sink.folder))
        assert epochs == [e for e in range(1, 9) for _ in HALVES]
        named = {sink.folder / name for m in read_manifests(sink.folder) for name in m.lists}
        listed = {p.path for p in rs.io.parts(sink.folder, partial=True)}
        manifests = set(sink.folder.glob("_manifest-three-*"))
        left = files(sink.folder) - named - listed - manifests
        assert not known or not left, "of who has a manifest nothing is left"
    assert lives > 10


def _mortal(call: Any, ops: Any, *args: Any, **options: Any) -> Any:
    if next(ops, None) is None:
        raise KilledError
    return call(*args, **options)


def _expected(writer: dict[int, str], upto: int) -> list[Row]:
    return sorted(r for e in range(1, upto + 1) for r in rows(e, ALL, writer[e]))


def test_parts_are_taken_over_by_the_range_of_their_first_key_group(tmp_path: Path) -> None:
    sink = began(tmp_path)
    thirds = [rs.KeyRange(0, 100), rs.KeyRange(100, 200), rs.KeyRange(200, 256)]
    for keys in thirds:
        opened(sink, keys, "two", 2, "one")
    found = rs.io.parts(tmp_path, partial=True)
    assert [(p.after, p.upto, p.keys) for p in found] == [(0, 2, keys) for keys in HALVES]
    assert {p.path for p in found} == files(tmp_path) - set(tmp_path.glob("_manifest-two-*"))


def test_a_run_from_the_beginning_keeps_nothing(tmp_path: Path) -> None:
    sink = began(tmp_path)
    opened(sink, HALVES[0], "two", 2, "one")
    for keys in HALVES:
        opened(sink, keys, "three")
    assert visible(tmp_path) == []
    assert files(tmp_path) == set(tmp_path.glob("_manifest-three-*"))


@pytest.mark.parametrize(
    ("checkpoint", "resumed", "lost", "missing"),
    [
        (6, "one", "", r"\[0, 256\) up to epoch 6"),  # it had not come so far
        (2, "other", "", r"\[0, 256\) up to epoch 2"),
        (2, "", "", r"\[0, 256\) up to epoch 2"),
        (2, "one", "_manifest-one-00128-00256.json", r"\[128, 256\) up to epoch 2"),
        (2, "one", "Row/one-000000000-000000002-00128-00256-000.parquet", r"\[128, 256\)"),
    ],
)
def test_output_that_is_lost_is_missed(
    checkpoint: int, resumed: str, lost: str, missing: str, tmp_path: Path
) -> None:
    sink = began(tmp_path)
    if lost:
        (tmp_path / lost).unlink()
    there = files(tmp_path)
    with pytest.raises(OutputError, match=rf"lacks output of the key groups {missing}"):
        opened(sink, ALL, "two", checkpoint, resumed)
    assert files(tmp_path) == there


def test_a_successor_in_the_same_run_misses_lost_output_too(tmp_path: Path) -> None:
    sink = began(tmp_path)
    (tmp_path / "_manifest-one-00128-00256.json").unlink()
    with pytest.raises(OutputError, match=r"lacks output of the key groups \[128, 256\)"):
        opened(sink, HALVES[1], "one", 4)
    with pytest.raises(OutputError, match=r"lacks output of the key groups \[0, 128\).*epoch 6"):
        opened(sink, HALVES[0], "one", 6)


def test_a_run_that_went_on_from_less_does_not_hold_the_cut(tmp_path: Path) -> None:
    """Two goes on from 2, so what one had after that is gone; three cannot go on from one's 4."""
    sink = began(tmp_path)
    opened(sink, ALL, "two", 2, "one").prepare(6)
    with pytest.raises(OutputError, match="lacks output"):
        opened(sink, ALL, "three", 4, "one")
    assert visible(tmp_path)
    opened(sink, ALL, "three", 2, "one")
    assert {r.epoch for r in visible(tmp_path)} == {1, 2}


def test_runs_that_have_nothing_to_do_with_each_other_are_refused(tmp_path: Path) -> None:
    opened(rs.io.parquet(tmp_path / "a"), ALL, "one")
    opened(rs.io.parquet(tmp_path / "b"), ALL, "two")
    for path in (tmp_path / "b").glob("_manifest*"):
        path.rename(tmp_path / "a" / path.name)
    with pytest.raises(InputError, match="holds output of several runs: one, two"):
        rs.io.parts(tmp_path / "a")


def test_instances_may_open_at_the_same_moment(tmp_path: Path) -> None:
    rng = random.Random(5)
    for number in range(10):
        sink = began(tmp_path / str(number))
        ranges = random_ranges(rng, GROUPS)
        with ThreadPoolExecutor(len(ranges)) as pool:
            list(pool.map(lambda keys, s=sink: opened(s, keys, "two", 2, "one"), ranges))
        found = rs.io.parts(sink.folder, partial=True)
        assert [(p.after, p.upto, p.keys) for p in found] == [(0, 2, keys) for keys in HALVES]
        assert files(sink.folder) == {p.path for p in found} | set(
            sink.folder.glob("_manifest-two-*")
        )


def test_what_was_not_listed_goes_when_the_run_has_gone(tmp_path: Path) -> None:
    """A run died after it had named a part and before it listed it, and amid writing others."""
    sink = began(tmp_path)
    for name in (
        "one-000000004-000000006-00128-00256-000.parquet",
        ".00128-00256-x1.tmp",
        ".00000-00128-x2.tmp",
    ):
        (tmp_path / "Row" / name).write_bytes(b"half")
    (tmp_path / "Row" / "notes.parquet").write_bytes(b"mine")
    for keys in (rs.KeyRange(0, 60), rs.KeyRange(60, 256)):
        opened(sink, keys, "two", 4, "one")
    parts = {p.path for p in rs.io.parts(tmp_path, partial=True)}
    assert set((tmp_path / "Row").iterdir()) == {*parts, tmp_path / "Row" / "notes.parquet"}
