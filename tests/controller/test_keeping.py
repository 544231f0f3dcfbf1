"""Nodes where no keeper can begin."""

from __future__ import annotations

from raystream.controller import commands as do
from raystream.controller.keeping import LASTING_SECONDS, REST_MAX_SECONDS
from tests.controller.driven import NODES, Driven

TICK = 0.25


def on(job: Driven, node: str) -> list[do.Keep]:
    return [k for k in job.all(do.Keep) if k.node == node]


def fail(job: Driven, seconds: float, tick: float = TICK) -> None:
    """Have every keeper of one node die as soon as it is asked for."""
    for _ in range(int(seconds / tick)):
        job.tick()
        if any(p.node == "b" for p in job.machine.journal.posts):
            job.hear(do.Gone(on(job, "b")[-1].process, "its process died: no such module"))
        job.now += tick


def test_where_no_keeper_can_begin_it_is_tried_ever_less_often() -> None:
    job = Driven()
    job.start()
    fail(job, 30.0)
    early = len(on(job, "b"))
    fail(job, 300.0)
    later = len(on(job, "b")) - early
    assert 4 <= early <= 10 and 300 / REST_MAX_SECONDS - 2 <= later <= 300 / REST_MAX_SECONDS + 2
    assert len(on(job, "a")) == 1
    assert "node b has no keeper" in job.machine.unstored
    assert "no such module" in job.machine.unstored
    fail(job, 60_000.0, REST_MAX_SECONDS)  # most of a day
    assert len(on(job, "b")) - early > 1000
    job.tick(("a",))
    assert not job.machine.unstored


def test_once_one_has_begun_all_is_forgotten() -> None:
    job = Driven()
    job.start()
    fail(job, 5.0)
    job.now += REST_MAX_SECONDS
    job.tick()
    begun = on(job, "b")[-1]
    assert not job.machine.unstored
    job.now += LASTING_SECONDS
    job.tick()
    assert job.machine.journal.posts[-1].process == begun.process
    for _ in range(3):  # each had lasted
        said = job.hear(do.Gone(on(job, "b")[-1].process, "killed"))
        assert [c.node for c in said if isinstance(c, do.Keep)] == ["b"]
        assert "has no keeper" not in job.machine.unstored
        job.now += LASTING_SECONDS


def test_one_that_fails_once_is_replaced_at_once() -> None:
    job = Driven()
    job.start()
    job.now += LASTING_SECONDS
    for node in NODES:
        said = job.hear(do.Gone(on(job, node)[-1].process, "killed"))
        assert [c.node for c in said if isinstance(c, do.Keep)] == [node]
        said = job.hear(do.Gone(on(job, node)[-1].process, "killed"))
        assert [c.node for c in said if isinstance(c, do.Keep)] == [node]
        said = job.hear(do.Gone(on(job, node)[-1].process, "killed"))
        assert not [c for c in said if isinstance(c, do.Keep)]
