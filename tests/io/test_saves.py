"""Saved cuts in stores: whatever dies when, the newest whole one is found, and nothing else."""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.controller.planning import make_plan
from raystream.dataflow.instance import SourceInstance
from raystream.dataflow.plan import Plan
from raystream.dataflow.snapshot import capture, install, sample_of, settled
from raystream.dataflow.source import my_splits
from raystream.errors import OutputError, OvertakenError, StateError
from raystream.io.saves import Encoded, Saves
from raystream.io.store import Store, missing
from raystream.schema.types import KeyRange
from raystream.state.chain import Wanted
from raystream.state.image import Image
from raystream.state.saved import (
    Layout,
    Saved,
    SavedChain,
    claim_name,
    encode,
    manifest_name,
    named,
)
from raystream.testing import Collect
from raystream.testing.local import LocalJob
from tests.dataflow.cuts import random_ranges
from tests.dataflow.shapes import SHAPES
from tests.dataflow.test_l1 import written
from tests.examples import examples

GROUPS = 16


class DiedError(Exception):
    """The process died."""


class Memory:
    """A store whose user dies after `lives` more changes; `changed` sees every one."""

    url = "memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lives = -1
        self.changed: Callable[[], None] = lambda: None

    def _change(self) -> None:
        self.changed()
        if self.lives == 0:
            raise DiedError
        self.lives -= 1

    def put(self, name: str, data: Any) -> None:
        self._change()
        self.objects[name] = bytes(data)

    def claim(self, name: str, data: Any) -> bool:
        self._change()
        new = name not in self.objects
        self.objects.setdefault(name, bytes(data))
        return new

    def get(self, name: str) -> bytes:
        if name not in self.objects:
            raise missing(self.url, name)
        return self.objects[name]

    def sizes(self, folder: str) -> dict[str, int]:
        return {n: len(d) for n, d in self.objects.items() if n.startswith(f"{folder}/")}

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._change()
            self.objects.pop(name, None)

    def sweep(self, folder: str) -> None:
        """A put is all or nothing here."""


class Run:
    """A run of a job with one vertex, that saves cuts."""

    def __init__(self, saves: Saves, rng: random.Random) -> None:
        self.saves, self.rng = saves, rng
        self.number = saves.claim("run")
        before = saves.newest(checksums=False).saved
        self.cut = 0 if before is None else before.cut
        self.held: dict[KeyRange, list[Encoded]] = {keys: [] for keys in random_ranges(rng, GROUPS)}

    def save(self) -> Saved:
        """The next cut: deltas of some ranges, full images of the others."""
        self.cut += self.rng.randrange(1, 4)
        for chain in self.held.values():
            data = self.rng.randbytes(self.rng.randrange(4))
            base = chain[-1].cut if chain and self.rng.random() < 0.7 else 0
            chain[:] = [*(chain if base else []), Encoded(base, self.cut, data)]
        chains = [
            self.saves.put_chain(self.number, "v", keys, images)
            for keys, images in self.held.items()
        ]
        layout = Layout(GROUPS, 1, {"v": ""}, ())
        saved = Saved("job", self.number, "run", self.cut, 1, layout, {"v": tuple(chains)})
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
        assert (0 if found.saved is None else found.saved.cut) == committed

    for life in lives:
        store.lives, store.changed = life, check
        try:
            run = Run(saves, rng)
            while True:
                committed = run.save().cut
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
        cuts = [run.save(), run.save()]
        assert saves.drop(run.number)
        assert saves.drop(run.number) == []
    there = store.sizes("job")
    kinds = [at.kind for n in there if (at := named("job", n)) is not None]
    assert kinds.count("cuts") == 2 and kinds.count("runs") == 1
    assert {n for n in there if "images" in n} == {i.name for s in cuts for i in s.images}
    assert saves.newest(checksums=False).saved == cuts[1]


def test_an_image_is_stored_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    saves, keys = Saves(store, "job"), KeyRange(0, GROUPS)
    put: list[str] = []
    real = type(store).put
    monkeypatch.setattr(
        type(store), "put", lambda self, name, data: (put.append(name), real(self, name, data))
    )
    saves.put_chain(1, "v", keys, [Encoded(0, 5, b"full")])
    known = Encoded(0, 5, b"full", zlib.crc32(b"full"))
    found = saves.put_chain(1, "v", keys, [known, Encoded(5, 10, b"delta")])
    assert put == [image.name for image in found.images]


def test_two_jobs_share_a_place(store: Store) -> None:
    runs = [Run(Saves(store, name), random.Random(i)) for i, name in enumerate(("a", "a/b"))]
    assert [run.number for run in runs] == [1, 1]
    cuts = [_saved(run) for run in runs]
    for run in (*runs, *runs):
        _saved(run)
        run.saves.drop(run.number)
    assert cuts[0].cut and [s.job for s in cuts] == ["a", "a/b"]
    for run in runs:
        found = run.saves.newest(checksums=False)
        assert found.saved is not None and found.saved.job == run.saves.job and not found.refused


def _saved(run: Run) -> Saved:
    run.cut += 1
    chains = [
        run.saves.put_chain(run.number, "v", keys, [Encoded(0, run.cut, b"x")]) for keys in run.held
    ]
    layout = Layout(GROUPS, 1, {"v": ""}, ())
    saved = Saved(run.saves.job, run.number, "run", run.cut, 1, layout, {"v": tuple(chains)})
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
        saves.commit(replace(saved, cut=saved.cut + 1))
    found = saves.newest(checksums=False)
    assert found.saved is None
    assert "refers to 1 images that are not there" in found.refused[0]


# ---------------------------------------------------------------- real images


def checkpoint(
    job: LocalJob, saves: Saves, number: int, run: str, cut: int, held: dict, *, anew: bool = False
) -> Saved:
    """Save what all instances of a job know at a cut; `held`: their images so far. anew:
    their images are of all rows, where that can be, so that no older ones are needed."""
    chains: dict[str, list[SavedChain]] = {}
    shapes = {}
    positions = {id(s.machine): s.recorded.positions() for s in job.sources}
    for machine in job.machines:
        mine = held.setdefault((machine.vertex.name, machine.keys), [])
        since = mine[-1].cut if mine else 0
        old = since if anew and sample_of(machine) else 0
        wanted = Wanted(since, (old + 1, 0), cut) if old else Wanted(since)
        image = capture(machine, wanted, cut=cut, splits=positions.get(id(machine))).image()
        if old:
            mine.clear()
        settled(machine, since)
        if not (machine.ended and since >= machine.position):
            mine.append(Encoded(since, cut, image.encode()))
        shapes[machine.vertex.name] = image.header.shape
        chain = saves.put_chain(number, machine.vertex.name, machine.keys, mine)
        chains.setdefault(machine.vertex.name, []).append(chain)
    plan = job.plan
    saved = Saved(
        saves.job,
        number,
        run,
        cut,
        plan.cut_every,
        Layout(plan.groups, plan.ticks, shapes, ()),
        {v: tuple(c) for v, c in chains.items()},
    )
    saves.commit(saved)
    saves.drop(number)
    return saved


def resumed(saves: Saves, saved: Saved, plan: Plan) -> dict[str, list[list[Image]]]:
    """The chains of a saved cut, read for the ranges of another plan. Those of sources are put into
    instances that read nothing: where all splits are read on has to be known."""
    found: dict[str, list[list[Image]]] = {}
    for vertex, keys in plan.instances():
        chains = saves.images(saved, vertex.name, keys)
        if vertex.kind == "source":
            splits = install(SourceInstance(plan, vertex, keys), chains).splits
            mine = {name: group for group, name in my_splits(plan, vertex, keys)}
            assert {name: at[0] for name, at in splits.items()} == mine
        else:
            found.setdefault(vertex.name, []).extend(chains)
    return found


def planned(name: str, sink: Any, data: int, rng: random.Random) -> Plan:
    plan = make_plan(SHAPES[name].build(sink, 9, data), cut_every=rng.choice([1, 2, 3]))
    for vertex in plan.ranges:
        plan.ranges[vertex] = random_ranges(rng, plan.groups)
    return plan


@pytest.mark.parametrize("name", ["running batch", "tumbling", "sessions", "ledger", "diamond"])
@examples(6)
@given(st.integers(0, 2**16), st.integers(0, 2))
def test_going_on_with_other_ranges_loses_no_bit(name: str, seed: int, data: int) -> None:
    rng, saves = random.Random(seed), Saves(Memory(), name)
    whole = Collect()
    LocalJob(make_plan(SHAPES[name].build(whole, 9, data))).run()
    lives: list[tuple[int, Collect]] = []
    for life in range(rng.randrange(1, 4)):
        sink = Collect()
        number = saves.claim(f"run {life}")
        found = saves.newest()
        assert not found.refused
        plan = planned(name, sink, data, rng)
        images = {} if found.saved is None else resumed(saves, found.saved, plan)
        job, held = LocalJob(plan, resume=images), {}
        at = job.committed
        lives.append((at, sink))
        while not job.ended and rng.random() < 0.9:
            job.turn()
            at += 1
            if at % plan.cut_every == 0 or job.ended:
                anew = rng.random() < 0.3
                checkpoint(job, saves, number, f"run {life}", at, held, anew=anew)
    job.run()
    kept: dict[Any, Any] = {}
    for begun, sink in lives:  # what the one before wrote after the cut does not count
        kept = {at: rows for at, rows in kept.items() if at[0] <= begun} | written(sink)
    assert kept == written(whole)


def saved_words(store: Store) -> tuple[Saves, Saved]:
    """Three cuts of a job whose vertices have two ranges each; the last is returned."""
    saves, plan = Saves(store, "words"), make_plan(SHAPES["tumbling"].build(Collect(), 9, 0))
    for vertex in plan.ranges:
        plan.ranges[vertex] = [KeyRange(0, 100), KeyRange(100, plan.groups)]
    job, held = LocalJob(plan), {}
    number = saves.claim("run")
    for at in (1, 2, 3):
        job.turn()
        saved = checkpoint(job, saves, number, "run", at, held)
    return saves, saved


def everything(saves: Saves, saved: Saved) -> list[Image]:
    whole = KeyRange(0, saved.layout.groups)
    return [i for v in saved.chains for c in saves.images(saved, v, whole) for i in c]


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
            together.wait(10)
        threads.add(threading.current_thread())
        return get(name)

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", meet)
        assert saves.newest().saved == saved
    first.clear()
    threads.clear()
    monkeypatch.setattr("raystream.io.saves.SMALL_BYTES", 0)
    monkeypatch.setattr(store, "get", meet)
    assert saves.newest().saved == saved
    assert threads == {threading.current_thread()}


def test_damaged_manifests_are_refused_by_name(store: Store) -> None:
    saves, saved = saved_words(store)
    name = manifest_name("words", saved.number, saved.cut)
    data = bytes(store.get(name))
    for broken, why in ((data[:-9], "damaged or cut off"), (b"{}", "does not begin as one")):
        store.put(name, broken)
        found = saves.newest()
        assert found.saved is not None and found.saved.cut == saved.cut - 1
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
    with pytest.raises(StateError, match=rf"is not what cut .* says: it is the .*of {sink}"):
        everything(saves, wrong)


def test_an_image_that_is_too_old_is_refused(store: Store) -> None:
    saves, saved = saved_words(store)
    later = replace(saved, cut=saved.cut + 1)
    store.put(manifest_name("words", later.number, later.cut), encode(later))
    with pytest.raises(StateError, match=rf"is older than cut {later.cut} of run 1 of words"):
        everything(saves, later)
    found = saves.newest()
    assert found.saved == saved and "is older than" in found.refused[0]


def test_who_has_ended_is_at_every_later_cut(store: Store) -> None:
    job = LocalJob(make_plan(SHAPES["tumbling"].build(Collect(), 9, 0)))
    job.run()
    end = max(m.position for m in job.instances)
    saves, held = Saves(store, "words"), {}
    saved = checkpoint(job, saves, saves.claim("run"), "run", end, held)
    later = replace(saved, cut=end + 5)
    saves.commit(later)
    assert saves.newest().saved == later
    found = [i.header for i in everything(saves, later)]
    assert {h.cut for h in found} == {end} and all(h.standing.ended for h in found)


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
    with pytest.raises(StateError, match=r"needs the image of cut 2 first"):
        everything(saves, replace(saved, chains=cut_off))


def test_a_chain_is_read_in_parts(store: Store) -> None:
    saves, saved = saved_words(store)
    vertex = next(v for v in saved.chains if saved.layout.shapes[v])
    bounds = [0, 1, 5, 6, saved.layout.groups]
    for lo, hi in pairwise(bounds):
        chains = saves.images(saved, vertex, KeyRange(lo, hi))
        ends = [lo, *(end for c in chains for end in c[0].header.keys), hi]
        assert all(a == b for a, b in zip(ends[::2], ends[1::2], strict=True))
        for chain in chains:
            assert len({i.header.keys for i in chain}) == 1
            assert [i.header.base for i in chain] == [0, *(i.header.cut for i in chain[:-1])]
            assert chain[-1].header.cut == saved.cut
