"""A job ends, with the operator named, before its state has filled a node."""

from __future__ import annotations

from typing import Any

import pytest

from raystream.controller.options import Options
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.errors import StateError
from raystream.native.memory import MemoryUse
from tests.controller.protocol.driven import Driven

GB = 1_000_000_000


def running() -> Driven:
    job = Driven(Options(spares=1))
    job.start()
    job.at(5)
    return job


def said(own: int, node: int, limit: int = 18 * GB, rows: int = 0) -> dict[str, Any]:
    return {"memory": MemoryUse(own, node, limit), "state_rows": rows}


def ended(job: Driven) -> StateError | None:
    ends = job.all(do.End)
    assert all(isinstance(e.error, StateError) for e in ends)
    return ends[0].error if ends else None  # type: ignore[return-value]


def test_the_instance_that_takes_most_is_named() -> None:
    job = running()
    node = next(m.record.node for m in job.machine.members if m.name == "count/0")
    beside = [m.name for m in job.machine.members if m.record.node == node and m.name != "count/0"]
    job.at(6, only="count/0", **said(12 * GB, 17 * GB, rows=48_000_000))
    assert ended(job) is None
    for name in beside:
        job.at(6, only=name, **said(1 * GB, 19 * GB))
    if not beside:
        job.at(7, only="count/0", **said(12 * GB, 19 * GB, rows=48_000_000))
    error = ended(job)
    assert error is not None
    assert error.message.startswith("count has no memory left: count/0 keeps 48,000,000 rows")
    assert "its process takes 12.0 GB" in error.message and "of 18.0 GB" in error.message
    assert error.where is not None and "rs.forget" in error.hint
    assert job.machine.ended
    assert [kill.process for kill in job.all(do.Kill)] == [job.process("count")]


def test_a_node_that_others_have_filled_is_no_fault_of_the_job() -> None:
    job = running()
    for m in list(job.machine.members):
        job.at(6, only=m.name, **said(1 * GB, 19 * GB))
    assert ended(job) is None


def test_a_copy_of_the_state_counts_as_well() -> None:
    job = running()
    job.at(6, only="count/0", **said(6 * GB, 19 * GB), state_bytes=4 * GB)
    assert ended(job) is not None


def test_a_system_that_says_nothing_ends_no_job() -> None:
    job = running()
    job.at(6, only="count/0", **said(0, 0, 0))
    assert ended(job) is None


def die(job: Driven, *, no_memory: bool) -> None:
    """The process of `count` dies, and another one takes its place."""
    dead = job.process("count")
    job.hear(on.Gone(dead, "killed", no_memory=no_memory))
    if ended(job) is not None:
        return
    for hire in job.all(do.Hire):
        if hire.process not in job.attempts:
            job.hear(on.Hired(hire.process, "b", 9))
    process = job.all(do.Become)[-1].process
    assert process != dead
    job.hear(job.became(process, f"grpc://{process}"))


@pytest.mark.parametrize("silent", [False, True])
def test_a_range_that_dies_of_it_twice_is_given_up_whatever_was_committed(silent: bool) -> None:
    job = running()
    for position in (25, 45):
        assert ended(job) is None
        before = job.machine.journal.committed
        job.at(position, **(said(1 * GB, 179 * GB // 10) if silent else {}))
        job.tick()
        assert job.machine.journal.committed > before
        die(job, no_memory=not silent)
    error = ended(job)
    assert error is not None and "was killed for it, again" in error.message


def test_other_deaths_do_not_count() -> None:
    job = running()
    for position in range(25, 225, 20):
        job.at(position, **said(1 * GB, 2 * GB))
        job.tick()
        die(job, no_memory=False)
    assert ended(job) is None
