"""An instance that begins with the rows that others have left on disk has, after the images that
are newer, what it would have from all images; and it does not read those rows."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raystream.actors.worker.driving.fair_lock import Turns
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.instances.making import make_instance
from raystream.dataflow.logic import tiered
from raystream.dataflow.snapshot import capture, install, note_rows
from raystream.errors import StateError
from raystream.local.job import LocalJob
from raystream.schema.types import KeyRange
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import Image
from raystream.state.images.partition import partition
from raystream.state.keys import even_ranges
from raystream.state.segments import cold_rows
from raystream.state.tiers import tiered_table
from raystream.state.tiers.object_tier import ObjectTier
from raystream.state.tiers.removed_keys import RemovedKeys
from raystream.state.tiers.row_folder import RowFolder, left_at
from raystream.state.tiers.tiered_table import TieredTable
from raystream.testing import Collect
from tests.dataflow.random_ranges import random_ranges
from tests.dataflow.test_tiers import COMPILED, ROWS_LEAVE, flow_of, rows_leave, same_images
from tests.gates import LIMIT_SECONDS

__all__ = ["rows_leave"]  # a fixture
NAMES = ["running batch", "sliding", "sessions", "ledger", *list(COMPILED)[2:]]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "LEAST_AT_ONCE", 5)
    monkeypatch.setattr(cold_rows, "FOLD_BYTES", 2000)
    monkeypatch.setattr(cold_rows, "UNSTORED_MOST", 2)
    monkeypatch.setattr(tiered_table, "FOLD_EACH_BYTES", 1)  # a fold takes longer than checkpoints
    monkeypatch.setattr(tiered_table, "FOLD_TIMES", 1)


class History:
    """A job with rows on disk, and the deltas of its checkpoints."""

    def __init__(self, name: str, seed: int, where: Path, memory: int = 1) -> None:
        plan = make_plan(flow_of(name, Collect(), seed), checkpoint_every=2)
        plan.state_memory = memory
        for vertex in plan.ranges:
            plan.ranges[vertex] = even_ranges(plan.groups, 3)
        self.job, self.plan, self.where = LocalJob(plan), plan, where
        self.deltas: dict[int, dict[KeyRange, list[Image]]] = defaultdict(lambda: defaultdict(list))
        self.noting: Callable[[Any, Image], None] = lambda machine, image: note_rows(machine)
        for i, machine in enumerate(self.tiers()):
            machine.table.keep_in(RowFolder.made(where, "run", str(i)))

    def tiers(self) -> list[Any]:
        return [m for m in self.job.machines if isinstance(m.table, TieredTable)]

    def turn(self) -> None:
        """One epoch; a new checkpoint is captured, and committed."""
        base = self.job.committed
        self.job.turn()
        if self.job.committed == base:
            return
        for machine in self.tiers():
            if not machine.ended:
                image = capture(machine, CheckpointRequest(base)).image()
                self.noting(machine, image)
                self.deltas[machine.vertex.id][machine.keys].append(image)
        self.job.settle()

    def whole(self, vertex: int) -> Image:
        """The image of all rows, from the instances."""
        from raystream.state.images.partition import merge

        mine = [m for m in self.tiers() if m.vertex.id == vertex]
        return merge([capture(m).image() for m in sorted(mine, key=lambda m: m.keys)])

    def restored(self, vertex: int, keys: KeyRange, process: str) -> Any:
        """A new instance, of what is left and newer images; None if nothing is left that helps."""
        machine = make_instance(self.plan, self.plan.vertices[vertex], keys)
        shape = machine.table.shape.fingerprint
        at = self.plan.vertices[vertex].name, shape, keys, self.job.committed
        files = RowFolder.made(self.where, "next", process)
        found = left_at(self.where, "run", *at)
        if found is None:
            return None
        files.take(found, self.plan.groups)
        left = files.left
        assert left is not None
        chains = []
        for held, images in self.deltas[vertex].items():
            if part := held.common(keys):
                upto = left.upto(part)
                newer = [i for i in images if i.header.checkpoint > upto] or images[-1:]
                if not upto or newer[0].header.base != upto < newer[0].header.checkpoint:
                    return None
                chains.append([partition(i, [part])[0] for i in newer])
        machine.table.keep_in(files)
        install(machine, chains, self.job.committed, since=left.upto)
        assert not any(s.file._known.any() for s in left.segments), "a page was read"
        return machine


@pytest.mark.parametrize("rows_leave", ROWS_LEAVE, indirect=True)
@pytest.mark.parametrize("name", NAMES)
def test_rows_that_were_left_and_newer_images_are_the_state(
    name: str, rows_leave: int, tmp_path: Path
) -> None:
    rng = random.Random(sum(map(ord, name)))
    history = History(name, rng.randrange(100), tmp_path, rows_leave)
    began, unread, number = 0, 0, 0
    while not history.job.ended:
        history.turn()
        for vertex in [*history.deltas] if rng.random() < 0.5 else []:
            if any(m.ended for m in history.tiers()):
                continue
            if history.job.committed != {m.position for m in history.tiers()}.pop():
                continue
            whole = history.whole(vertex)
            for keys in random_ranges(rng, history.plan.groups):
                number += 1
                machine = history.restored(vertex, keys, str(number))
                if machine is None:
                    continue
                began += 1
                unread += machine.table.cold_count
                mine = partition(whole, [keys])[0]
                assert len(machine.table) == len(mine)
                same_images(mine, capture(machine).image())
                counted = machine.table.count_by_group()
                assert counted.sum() == counted[slice(*keys)].sum() == len(mine)
    assert began > 2
    assert unread > 2


def test_what_is_left_is_opened_again_and_again(tmp_path: Path) -> None:
    """A successor of a successor; each has its own names for the files, and deletes its own."""
    history = History("ledger", 3, tmp_path)
    for _ in range(12):
        history.turn()
    while history.job.committed != history.tiers()[0].position:
        history.turn()
    vertex, keys = history.tiers()[0].vertex.id, history.tiers()[0].keys
    first = history.restored(vertex, keys, "1")
    want = capture(first).image()
    note_rows(first)
    machine = make_instance(history.plan, history.plan.vertices[vertex], keys)
    files = RowFolder.made(tmp_path, "last", "1")
    at = machine.vertex.name, machine.table.shape.fingerprint, keys, history.job.committed
    found = left_at(tmp_path, "next", *at)
    assert found is not None
    files.take(found, history.plan.groups)
    assert files.left is not None
    first.table._folder.remove()
    images = history.deltas[vertex][keys]
    newer = [i for i in images if i.header.checkpoint > files.left.upto(keys)] or images[-1:]
    machine.table.keep_in(files)
    install(machine, [newer], history.job.committed, since=files.left.upto)
    same_images(want, capture(machine).image())


def test_files_go_when_a_newer_checkpoint_is_committed(tmp_path: Path) -> None:
    history = History("ledger", 3, tmp_path)
    most = 0
    for _ in range(30):
        if history.job.ended:
            break
        committed = history.job.committed
        history.turn()
        for machine in history.tiers() if history.job.committed > committed else ():
            table = machine.table
            folder = table._folder
            rows = {p.stem for p in folder.path.glob("*.rows")}
            kept = set().union(*folder._kept.values(), {s.name for s in table.cold.segments})
            writing = 1 if table.cold._folding is not None else 0
            assert len(rows - kept) <= writing
            most = max(most, len(list(folder.path.glob("at-*"))))
    assert 0 < most <= 3


def test_keys_whose_rows_were_removed_are_not_remembered(tmp_path: Path) -> None:
    """Rows that were written with a manifest stay in memory; the operator removes them there."""
    plan = make_plan(flow_of("ledger", Collect(), 3))
    plan.state_memory = 20_000
    keys = KeyRange(0, plan.groups)
    machine = make_instance(plan, plan.vertex("ledger"), keys)
    table: ObjectTier = machine.table  # type: ignore[assignment]
    table.keep_in(RowFolder.made(tmp_path, "run", "1"))
    removed = 0
    for epoch in range(1, 40):
        for key in range(5 * epoch, 5 * epoch + 5):
            table.hot.touch(key, epoch)
        for key in [k for k in table._clean if k in table.hot.rows]:
            table.hot.remove(key, epoch)
            removed += 1
        table.note_removals()
        table.shrink()
        if epoch % 5 == 0:
            table.note("ledger", keys, epoch)
            table.settle(epoch)
            assert table._clean <= table.hot.rows.keys()
    assert removed > 20


@pytest.mark.parametrize("kind", [".rows", ".foot", ".heap"])
def test_torn_files_are_not_opened(kind: str, tmp_path: Path) -> None:
    """The successor takes all images then."""
    history = History("ledger", 3, tmp_path)
    for _ in range(12):
        history.turn()
    machine = history.tiers()[0]
    at = machine.vertex.name, machine.table.shape.fingerprint, machine.keys, history.job.committed
    found = left_at(tmp_path, "run", *at)
    assert found is not None
    for path in found[0][0].glob(f"*{kind}"):
        path.write_bytes(path.read_bytes()[:-10])
    files = RowFolder.made(tmp_path, "next", "1")
    files.take(found, history.plan.groups)
    assert files.left is None


def test_images_that_leave_a_gap_are_refused(tmp_path: Path) -> None:
    history = History("ledger", 3, tmp_path)
    for _ in range(12):
        history.turn()
    machine = history.tiers()[0]
    new = make_instance(history.plan, machine.vertex, machine.keys)
    last = history.deltas[machine.vertex.id][machine.keys][-1]
    with pytest.raises(StateError, match="does not build on the rows on disk at 1"):
        install(new, [[last]], history.job.committed, since=lambda _: 1)


@pytest.mark.parametrize("name", ["sliding", "ledger", "compiled, sliding"])
def test_a_look_up_while_rows_are_noted_finds_none_that_were_removed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the lock that each step holds. What was removed may be on disk, and is hidden there
    also while the segment is written that says so."""
    history, turns, taken = History(name, 1, tmp_path), Turns(), RemovedKeys.writing
    looks: list[Callable[[], None]] = []
    threads, found = list[threading.Thread](), list[int]()

    @contextmanager
    def writing(removed: RemovedKeys, dtype: Any) -> Iterator[Any]:
        with taken(removed, dtype) as records:
            for look in looks:
                threads.append(threading.Thread(target=look))
                threads[-1].start()
                threads[-1].join(0.01)  # it has to wait for the lock
            yield records

    def noting(machine: Any, image: Image) -> None:
        def look() -> None:
            with turns:
                found.append(len(machine.table.look_up(image.gone).at))

        machine.table.use_guard(turns)
        looks.append(look)
        note_rows(machine)
        looks.clear()
        for thread in threads:
            thread.join(LIMIT_SECONDS)

    monkeypatch.setattr(RemovedKeys, "writing", writing)
    history.noting = noting
    while not history.job.ended:
        history.turn()
    assert found and not any(found)
