"""Jobs whose checkpoints tests save, and read again."""

from __future__ import annotations

from raystream.controller.planning.plans import make_plan
from raystream.dataflow.snapshot import capture, sample_of, settled
from raystream.durable.manifest import Saved, SavedChain, SavedLayout
from raystream.durable.saves import EncodedImage, Saves
from raystream.durable.store import Store
from raystream.local.job import LocalJob
from raystream.schema.types import KeyRange
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import Image
from raystream.testing import Collect
from tests.dataflow.shapes import SHAPES


def checkpoint(
    job: LocalJob,
    saves: Saves,
    number: int,
    run: str,
    checkpoint: int,
    held: dict,
    *,
    anew: bool = False,
) -> Saved:
    """Save what all instances of a job know at a cut; `held`: their images so far. anew:
    their images are of all rows, where that can be, so that no older ones are needed."""
    chains: dict[str, list[SavedChain]] = {}
    shapes = {}
    positions = {id(s.machine): s.recorded.positions() for s in job.sources}
    for machine in job.machines:
        mine = held.setdefault((machine.vertex.name, machine.keys), [])
        since = mine[-1].checkpoint if mine else 0
        old = since if anew and sample_of(machine) else 0
        wanted = (
            CheckpointRequest(since, (old + 1, 0), checkpoint) if old else CheckpointRequest(since)
        )
        image = capture(
            machine, wanted, checkpoint=checkpoint, splits=positions.get(id(machine))
        ).image()
        if old:
            mine.clear()
        settled(machine, since)
        if not (machine.ended and since >= machine.position):
            mine.append(EncodedImage(since, checkpoint, image.encode()))
        shapes[machine.vertex.name] = image.header.shape
        chain = saves.put_chain(number, machine.vertex.name, machine.keys, mine)
        chains.setdefault(machine.vertex.name, []).append(chain)
    plan = job.plan
    saved = Saved(
        saves.job,
        number,
        run,
        checkpoint,
        plan.checkpoint_every,
        SavedLayout(plan.groups, plan.ticks, shapes, ()),
        {v: tuple(c) for v, c in chains.items()},
    )
    saves.commit(saved)
    saves.drop(number)
    return saved


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
