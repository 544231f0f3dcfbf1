"""State of a class that has changed since is upgraded, or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import pytest

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.snapshot import capture
from raystream.errors import StateError
from raystream.local.job import LocalJob
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import Image, decode
from raystream.testing import Collect
from tests.dataflow.snapshot.job_at import Build
from tests.dataflow.test_l1 import written
from tests.flows import Rows, Running, Word


class Old(rs.State):
    n: int = 0


class New(rs.State):
    n: int = 0


class Renamed(rs.State):
    total: int = 0

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> Self:
        if old["n"] > 2:
            raise ValueError("too many")
        return cls(total=old["n"])


@rs.operator(key="word")
def count(word: Word, state: Old) -> Iterator[Running]:
    state.n += 1
    yield Running(word.word, state.n)


@rs.operator(key="word")
def count_new(word: Word, state: New) -> Iterator[Running]:
    state.n += 1
    yield Running(word.word, state.n)


@rs.operator(key="word")
def count_renamed(word: Word, state: Renamed) -> Iterator[Running]:
    state.total += 1
    yield Running(word.word, state.total)


def counting(op: Any) -> Build:
    def build(sink: Collect) -> rs.Flow:
        flow = rs.Flow("counting")
        rows = Rows(Word, (tuple(Word(t, "ab"[t % 2]) for t in range(9)),))
        words = flow.source(rows, epochs=rs.by_time(seconds=1))
        words.through(op, name="count").to(sink, name="sink")
        return flow

    return build


def chains_at(build: Build, sink: Collect, epoch: int, full: int) -> dict[str, list[list[Image]]]:
    """Chains of a job that was cut at two epochs."""
    job, chains = LocalJob(make_plan(build(sink))), {}
    for at in range(1, epoch + 1):
        job.turn()
        if at in (full, epoch):
            for machine in job.instances:
                image = capture(machine, CheckpointRequest(full if at > full else 0)).image()
                chains.setdefault(machine.vertex.name, [[]])[0].append(decode(image.encode()))
    return chains


def test_state_of_a_class_that_changed_is_upgraded() -> None:
    sink, uncut = Collect(), Collect()
    LocalJob(make_plan(counting(count)(uncut))).run()
    chains = chains_at(counting(count), sink, 4, 2)
    LocalJob(make_plan(counting(count_renamed)(sink)), resume=chains).run()
    assert written(sink) == written(uncut)


def test_a_changed_class_without_an_upgrade_is_refused_and_it_says_how_to_declare_one() -> None:
    chains = chains_at(counting(count), Collect(), 4, 2)
    with pytest.raises(StateError) as error:
        LocalJob(make_plan(counting(count_new)(Collect())), resume=chains)
    assert str(error.value) == (
        "the image of count [0, 256) at checkpoint 2 holds other state than count keeps now\n"
        "  stored: Old(n: int64) by word: str\n"
        "  now:    New(n: int64) by word: str\n"
        "  To go on with these rows declare in New:\n"
        "    @classmethod\n"
        "    def upgrade(cls, old: Mapping[str, Any]) -> Self: ..."
    )


def test_an_error_in_an_upgrade_is_told_with_its_line() -> None:
    chains = chains_at(counting(count), Collect(), 6, 2)
    with pytest.raises(StateError) as error:
        LocalJob(make_plan(counting(count_renamed)(Collect())), resume=chains)
    assert error.value.message == "Renamed.upgrade raised ValueError: too many"
    assert error.value.where is not None
    assert error.value.where.text == 'raise ValueError("too many")'
    assert "of the image of count [0, 256) at delta 2 to 6" in error.value.hint
    assert isinstance(error.value.__cause__, ValueError)
