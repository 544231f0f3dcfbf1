"""Images that do not belong to an instance are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raystream.dataflow.snapshot import capture, install
from raystream.errors import StateError
from raystream.schema.types import KeyRange
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import Image
from raystream.state.images.partition import partition
from tests.dataflow.snapshot.job_at import fresh, job_at
from tests.flows import CountWords, running, word_flow


def test_images_of_something_else_are_refused() -> None:
    job = job_at(lambda sink: word_flow(sink, CountWords()), 5)
    (machine,) = job.by_vertex[1]
    image = capture(machine).image()
    target = fresh(lambda sink: word_flow(sink, CountWords()), "CountWords")

    def refused(bad: Image | list[Image], complaint: str) -> None:
        with pytest.raises(StateError, match=complaint):
            install(target, [bad if isinstance(bad, list) else [bad]])

    other = replace(image, header=replace(image.header, operator="x"))
    refused(other, "the image of x .* was put into CountWords")
    other = replace(image, header=replace(image.header, groups=16))
    refused(other, "of 16 key groups was put into CountWords, which has 256")
    delta = capture(machine, CheckpointRequest(3)).image()
    refused(delta, "delta 3 to 5 needs the image of checkpoint 3 first")
    refused([image, delta], "the image of .* delta 3 to 5 does not apply to .* checkpoint 5")
    later = capture(machine, CheckpointRequest(3, (4, 0), 4)).image()
    refused(later, "delta 3 to 5 needs the image of checkpoint 4 first")
    install(target, [[image]])


def test_parts_that_do_not_tile_the_range_are_refused() -> None:
    job = job_at(lambda sink: word_flow(sink, CountWords()), 5)
    (machine,) = job.by_vertex[1]
    image = capture(machine).image()
    target = fresh(lambda sink: word_flow(sink, CountWords()), "CountWords")
    target.keys = KeyRange(10, 100)

    def refused(complaint: str, *bounds: tuple[int, int], change: object = None) -> None:
        parts = partition(image, [KeyRange(*b) for b in bounds])
        if change is not None:
            parts[-1] = replace(parts[-1], header=replace(parts[-1].header, **change))
        with pytest.raises(StateError, match=complaint):
            install(target, [[part] for part in parts])

    refused(
        r"\[20, 100\) at checkpoint 5 was put into an instance of \[10, 100\)\n  Cut", (20, 100)
    )
    refused(r"no image of CountWords \[90, 100\) was put into", (10, 50), (50, 90))
    refused(r"\[60, 100\) .*, where key groups up to 50 are there", (60, 100), (10, 50))
    refused(r"\[40, 100\) .*, where key groups up to 50 are there", (10, 50), (40, 100))
    refused(r"\[50, 101\) at checkpoint 5 was put into", (10, 50), (50, 101))
    refused(
        "checkpoint 5 does not belong .* 6: .* two checkpoints",
        (10, 50),
        (50, 100),
        change={"checkpoint": 6},
    )
    other = {"input_position": replace(image.header.input_position, watermark=1)}
    refused("does not belong .* their positions differ", (10, 50), (50, 100), change=other)
    assert target.position == 0 and not target.logic.table.rows  # nothing of them was put
    install(target, [[part] for part in partition(image, [KeyRange(60, 100), KeyRange(10, 60)])])


def test_state_of_another_class_is_refused_with_both_shapes() -> None:
    job = job_at(lambda sink: word_flow(sink, CountWords()), 5)
    image = capture(job.by_vertex[1][0]).image()
    target = fresh(lambda sink: word_flow(sink, running), "running")
    moved = replace(image, header=replace(image.header, operator="running"))
    with pytest.raises(StateError) as error:
        install(target, [[moved]])
    assert str(error.value) == (
        "the image of running [0, 256) at checkpoint 5 holds other state than running keeps now\n"
        "  stored: Tally(n: int64) by word: str, in windows of 30 s\n"
        "  now:    Tally(n: int64) by word: str"
    )
