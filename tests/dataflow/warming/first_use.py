"""Says what a flow compiles or loads though it was warmed, in a process of its own; it is called
by `python -m tests.dataflow.warming.first_use rows`, or another name of FLOWS."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from numba.core.dispatcher import Dispatcher

import raystream as rs
from lrb.query.flow import build
from lrb.query.source import look_through
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.instances.making import make_receiving
from raystream.dataflow.snapshot import Captured, capture, install
from raystream.dataflow.warming import warm, warm_vertex
from raystream.local.job import LocalJob
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import decode
from raystream.testing import Collect
from tests.flows import (
    CompiledLedger,
    CountWords,
    Rows,
    Running,
    Tally,
    Word,
    ledger_flow,
    word_flow,
)
from tests.lrb.random_traffic import random_traffic
from tests.lrb.rows import write_prepared


@rs.operator(key="word")
def total(words: rs.Batch[Word], rows: rs.Rows[Tally]) -> rs.Batch[Running]:
    rows["n"] += rows.counts
    return rs.Batch(Running, {"word": words["word"], "n": rows["n"][rows.index]})


def many_words() -> rs.Flow:
    """Keys for several pages of an index; each comes twice, in epochs apart."""
    words = tuple(Word(i // 1000, f"word-{i % 4000}") for i in range(8000))
    flow = rs.Flow("many-words")
    source = Rows(Word, (words,), batch=500)
    flow.source(source, epochs=rs.by_time(seconds=1)).through(total).to(Collect())
    return flow


def linear_road(folder: Path) -> rs.Flow:
    rows, history = random_traffic(seed=1, roads=2, cars=100)
    data = look_through(write_prepared(folder / "data", rows, history))
    return build(data, Collect(), speed=None, epoch=20)


FLOWS: dict[str, Callable[[Path], rs.Flow]] = {
    "rows": lambda _: many_words(),
    "windows": lambda _: word_flow(Collect(), CountWords()),
    "ledger": lambda _: ledger_flow(Collect(), op=CompiledLedger()),
    "linear road": linear_road,
}

Used = set[tuple[str, str, str]]


def used() -> Used:
    """All jitted functions that are ready, and for which types."""
    found = [d for d in gc.get_objects() if isinstance(d, Dispatcher)]
    return {(d.__module__, d.__name__, str(types)) for d in found for types in d.overloads}


def late(flow: rs.Flow) -> tuple[Used, Used]:
    """What was used for the first time while an instance of each vertex, made ready as one that is
    placed, took all epochs and had checkpoints taken; and when these were restored by processes
    that stood by."""
    plan = make_plan(flow)
    for vertex in plan.vertices:
        for _ in warm_vertex(plan, vertex):
            pass
    job = LocalJob(plan)
    before = used()
    chains = _checkpoints(job)
    worked = used()
    for _ in warm(plan):
        pass
    ready = used()
    for instance, images in chains:
        full, *deltas = map(decode, images)
        install(make_receiving(plan, instance.vertex, instance.keys), [[full, *deltas]])
    return worked - before, used() - ready


def _checkpoints(job: LocalJob) -> list[tuple[ReceivingInstance, list[memoryview]]]:
    """A full image and deltas of each operator, over a whole run. Each is made an epoch after it
    was captured: what changes meanwhile is put aside."""
    chains = {id(m): (m, list[memoryview]()) for m in job.instances if m.vertex.kind == "operator"}
    captured, since = dict[int, Captured](), dict.fromkeys(chains, 0)
    while not job.ended or captured:
        if not job.ended:
            job.turn()
        for at, (instance, images) in chains.items():
            if at in captured:
                images.append(captured.pop(at).image().encode())
            if instance.position > since[at]:
                captured[at] = capture(instance, CheckpointRequest(since[at]))
                since[at] = instance.position
    job.finish()
    return list(chains.values())


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        worked, restored = late(FLOWS[sys.argv[1]](Path(folder)))
    for what in sorted(worked):
        print("worked:", *what)
    for what in sorted(restored):
        print("restored:", *what)
