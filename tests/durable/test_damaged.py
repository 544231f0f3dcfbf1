"""Saved images and manifests that are damaged, missing or of something else are refused by name."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from raystream.controller.planning.plans import make_plan
from raystream.durable.manifest import SavedChain, encode, manifest_name
from raystream.durable.saves import Saves
from raystream.durable.store import Store
from raystream.errors import StateError
from raystream.local.job import LocalJob
from raystream.testing import Collect
from tests.dataflow.shapes import SHAPES
from tests.durable.memory import Memory
from tests.durable.saved_jobs import checkpoint, everything, saved_words
from tests.gates import LIMIT_SECONDS


def test_damaged_images_are_refused_by_name(store: Store) -> None:
    saves, saved = saved_words(store)
    at = saved.images[-1]
    data = bytes(store.get(at.name))
    older = saves.newest().saved
    assert older == saved
    flipped = bytes([*data[:-1], data[-1] ^ 1])
    for broken in (flipped, b"", data[:-1]):
        store.put(at.name, broken)
        with pytest.raises(StateError, match=rf"{at.name} is damaged: its size or checksum"):
            everything(saves, saved)
        found = saves.newest()
        assert found.saved != saved
        assert at.name in found.refused[0]
    assert saves.newest(checksums=False).saved != saved, "the size is another"
    store.delete([at.name])
    with pytest.raises(StateError, match=rf"{at.name} is not there"):
        everything(saves, saved)


def test_small_images_are_checked_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket takes longer to answer than to send them. Large ones would take memory."""
    store = Memory()
    saves, saved = saved_words(store)
    chains = [chain for found in saved.chains.values() for chain in found]
    together, get, threads = threading.Barrier(len(chains)), store.get, set()
    first = {chain.images[0].name for chain in chains}

    def meet(name: str) -> bytes:
        if name in first:
            together.wait(LIMIT_SECONDS)
        threads.add(threading.current_thread())
        return get(name)

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", meet)
        assert saves.newest().saved == saved
    first.clear()
    threads.clear()
    monkeypatch.setattr("raystream.durable.saves.SMALL_BYTES", 0)
    monkeypatch.setattr(store, "get", meet)
    assert saves.newest().saved == saved
    assert threads == {threading.current_thread()}


def test_damaged_manifests_are_refused_by_name(store: Store) -> None:
    saves, saved = saved_words(store)
    name = manifest_name("words", saved.number, saved.checkpoint)
    data = bytes(store.get(name))
    for broken, why in ((data[:-9], "damaged or cut off"), (b"{}", "does not begin as one")):
        store.put(name, broken)
        found = saves.newest()
        assert found.saved is not None and found.saved.checkpoint == saved.checkpoint - 1
        assert [name in said and why in said for said in found.refused] == [True]
    store.put("words/cuts/readme.txt", b"not a manifest, so not looked at")
    assert len(saves.newest().refused) == 1


def test_images_of_something_else_are_refused(store: Store) -> None:
    saves, saved = saved_words(store)
    vertex, chains = next((v, c) for v, c in saved.chains.items() if saved.layout.shapes[v])
    sink = next(v for v in saved.chains if v != vertex)
    foreign = saved.chains[sink][0]
    swapped = SavedChain(chains[0].keys, foreign.images)
    wrong = replace(saved, chains={**saved.chains, vertex: (swapped, *chains[1:])})
    with pytest.raises(StateError, match=rf"is not what checkpoint .* says: it is the .*of {sink}"):
        everything(saves, wrong)


def test_an_operator_that_had_ended_before_its_state_class_changed_is_whole(store: Store) -> None:
    """It is stored as it was at its end, without rows."""
    saves, plan = Saves(store, "words"), make_plan(SHAPES["tumbling"].build(Collect(), 9, 0))
    job, found = LocalJob(plan), []
    number = saves.claim("run")
    job.turn()
    found.append(checkpoint(job, saves, number, "run", 1, {}))
    while not job.ended:
        job.turn()
    at = max(machine.position for machine in job.machines)
    found.append(checkpoint(job, saves, number, "run", at, {}))
    for saved in found:
        shapes = {v: shape and f"Other {shape}" for v, shape in saved.layout.shapes.items()}
        changed = replace(saved, layout=replace(saved.layout, shapes=shapes))
        if saved.checkpoint == at:
            assert everything(saves, changed)
            continue
        with pytest.raises(StateError, match="is not what checkpoint"):
            everything(saves, changed)


def test_an_image_that_is_too_old_is_refused(store: Store) -> None:
    saves, saved = saved_words(store)
    later = replace(saved, checkpoint=saved.checkpoint + 1)
    store.put(manifest_name("words", later.number, later.checkpoint), encode(later))
    with pytest.raises(
        StateError, match=rf"is older than checkpoint {later.checkpoint} of run 1 of words"
    ):
        everything(saves, later)
    found = saves.newest()
    assert found.saved == saved and "is older than" in found.refused[0]


def test_a_chain_without_the_oldest_image_that_it_needs_is_refused_by_name() -> None:
    saves, plan = (
        Saves(Memory(), "words"),
        make_plan(SHAPES["running batch"].build(Collect(), 9, 0)),
    )
    job, held = LocalJob(plan), {}
    number = saves.claim("run")
    job.turn()
    checkpoint(job, saves, number, "run", 1, held)
    job.turn()
    checkpoint(job, saves, number, "run", 2, held, anew=True)
    job.turn()
    saved = checkpoint(job, saves, number, "run", 3, held)
    assert saves.newest().saved == saved
    cut_off = {
        v: tuple(c._replace(images=c.images[1:]) if c.images[0].base else c for c in chains)
        for v, chains in saved.chains.items()
    }
    assert cut_off != saved.chains
    with pytest.raises(StateError, match=r"needs the image of checkpoint 2 first"):
        everything(saves, replace(saved, chains=cut_off))
