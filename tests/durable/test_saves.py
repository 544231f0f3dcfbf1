"""Runs that save checkpoints: whenever one dies, the newest committed checkpoint is found."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.durable.manifest import Saved, SavedLayout, claim_name, manifest_name, named
from raystream.durable.saves import EncodedImage, Saves
from raystream.durable.store import Store
from raystream.errors import OutputError, OvertakenError
from raystream.schema.types import KeyRange
from tests.dataflow.random_ranges import random_ranges
from tests.durable.memory import DiedError, Memory
from tests.examples import examples

GROUPS = 16


class Run:
    """A run of a job with one vertex, that saves cuts."""

    def __init__(self, saves: Saves, rng: random.Random) -> None:
        self.saves, self.rng = saves, rng
        self.number = saves.claim("run")
        before = saves.newest(checksums=False).saved
        self.checkpoint = 0 if before is None else before.checkpoint
        self.held: dict[KeyRange, list[EncodedImage]] = {
            keys: [] for keys in random_ranges(rng, GROUPS)
        }

    def save(self) -> Saved:
        """The next cut: deltas of some ranges, full images of the others."""
        self.checkpoint += self.rng.randrange(1, 4)
        for chain in self.held.values():
            data = self.rng.randbytes(self.rng.randrange(4))
            base = chain[-1].checkpoint if chain and self.rng.random() < 0.7 else 0
            chain[:] = [*(chain if base else []), EncodedImage(base, self.checkpoint, data)]
        chains = [
            self.saves.put_chain(self.number, "v", keys, images)
            for keys, images in self.held.items()
        ]
        layout = SavedLayout(GROUPS, 1, {"v": ""}, ())
        saved = Saved("job", self.number, "run", self.checkpoint, 1, layout, {"v": tuple(chains)})
        self.saves.commit(saved)
        return saved


@examples(100)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_whenever_a_run_dies_the_newest_committed_cut_is_found(seed: int, lives: list[int]) -> None:
    rng, store, committed = random.Random(seed), Memory(), 0
    store.objects["other/cuts/000009-000000000009"] = b"not ours"
    saves = Saves(store, "job")

    def check() -> None:
        found = saves.newest(checksums=False)
        assert not found.refused
        assert (0 if found.saved is None else found.saved.checkpoint) == committed

    for life in lives:
        store.lives, store.changed = life, check
        try:
            run = Run(saves, rng)
            while True:
                committed = run.save().checkpoint
                check()
                saves.drop(run.number)
        except DiedError:
            store.changed = lambda: None
            check()
    assert store.objects["other/cuts/000009-000000000009"] == b"not ours"


def test_what_is_kept_is_two_cuts(store: Store) -> None:
    saves, rng = Saves(store, "job"), random.Random(7)
    run = Run(saves, rng)
    run.save()
    assert saves.drop(run.number) == []
    for _ in range(3):
        checkpoints = [run.save(), run.save()]
        assert saves.drop(run.number)
        assert saves.drop(run.number) == []
    there = store.sizes("job")
    kinds = [at.kind for n in there if (at := named("job", n)) is not None]
    assert kinds.count("cuts") == 2 and kinds.count("runs") == 1
    assert {n for n in there if "images" in n} == {i.name for s in checkpoints for i in s.images}
    assert saves.newest(checksums=False).saved == checkpoints[1]


def test_an_image_is_stored_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    saves, keys = Saves(store, "job"), KeyRange(0, GROUPS)
    put: list[str] = []
    real = type(store).put
    monkeypatch.setattr(
        type(store), "put", lambda self, name, data: (put.append(name), real(self, name, data))
    )
    saves.put_chain(1, "v", keys, [EncodedImage(0, 5, b"full")])
    known = EncodedImage(0, 5, b"full", zlib.crc32(b"full"))
    found = saves.put_chain(1, "v", keys, [known, EncodedImage(5, 10, b"delta")])
    assert put == [image.name for image in found.images]


def test_two_jobs_share_a_place(store: Store) -> None:
    runs = [Run(Saves(store, name), random.Random(i)) for i, name in enumerate(("a", "a/b"))]
    assert [run.number for run in runs] == [1, 1]
    checkpoints = [_saved(run) for run in runs]
    for run in (*runs, *runs):
        _saved(run)
        run.saves.drop(run.number)
    assert checkpoints[0].checkpoint and [s.job for s in checkpoints] == ["a", "a/b"]
    for run in runs:
        found = run.saves.newest(checksums=False)
        assert found.saved is not None and found.saved.job == run.saves.job and not found.refused


def _saved(run: Run) -> Saved:
    run.checkpoint += 1
    chains = [
        run.saves.put_chain(run.number, "v", keys, [EncodedImage(0, run.checkpoint, b"x")])
        for keys in run.held
    ]
    layout = SavedLayout(GROUPS, 1, {"v": ""}, ())
    saved = Saved(run.saves.job, run.number, "run", run.checkpoint, 1, layout, {"v": tuple(chains)})
    run.saves.commit(saved)
    return saved


def test_who_was_replaced_saves_no_more(store: Store) -> None:
    saves = Saves(store, "job")
    old = Run(saves, random.Random(1))
    old.save()
    new = Run(saves, random.Random(2))
    assert new.number == old.number + 1
    with pytest.raises(OvertakenError, match=r"job: run 2 has begun, so run 1 is over"):
        old.save()
    saved = new.save()
    new.save()
    assert saves.drop(old.number) == []
    new.save()
    assert manifest_name("job", 1, 1) not in store.sizes("job")
    assert saved.number == 2


def test_who_is_replaced_amid_a_put_is_told_that_it_saves_no_more(store: Store) -> None:
    run = Run(Saves(store, "job"), random.Random(3))
    run.save()
    put = store.put

    def slow(name: str, data: Any) -> None:
        if "/cuts/" in name:
            Saves(store, "job").claim("another")
        put(name, data)

    store.put = slow  # type: ignore[method-assign]
    with pytest.raises(OvertakenError, match="run 2 has begun, so run 1 is over"):
        run.save()


def test_runs_that_begin_together_get_different_numbers(store: Store) -> None:
    store.put(claim_name("job", 1), b"a")
    one = Saves(store, "job")
    one._there = dict  # what it saw before the other began
    assert one.claim("b") == 2


def test_a_cut_whose_images_are_gone_is_not_committed(store: Store) -> None:
    saves = Saves(store, "job")
    run = Run(saves, random.Random(1))
    saved = run.save()
    store.delete([saved.images[0].name])
    why = r"images/.* was stored and is not there(.|\n)*Do all nodes share that place"
    with pytest.raises(OutputError, match=why):
        saves.commit(replace(saved, checkpoint=saved.checkpoint + 1))
    found = saves.newest(checksums=False)
    assert found.saved is None
    assert "refers to 1 images that are not there" in found.refused[0]
