"""What an epoch asks, and in which calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from raystream.api.operators import OperatorSpec
from raystream.dataflow.logic.interpreted import in_order, key_getter, keys_in_order
from raystream.schema.blocks import Input


class Question(NamedTuple):
    """A record at which the world is asked."""

    epoch: int
    group: int
    """The key group."""
    number: int
    """The place of the record among those of the key group in this epoch, in canonical order."""
    key: Any
    """None of an operator without a key."""
    record: Any


class Asked(NamedTuple):
    """The questions of an epoch, in canonical order."""

    epoch: int
    questions: tuple[Question, ...]

    @property
    def groups(self) -> dict[int, int]:
        """By key group how many questions it has."""
        return {
            group: len(list(some)) for group, some in groupby(self.questions, lambda q: q.group)
        }


def asked_of(spec: OperatorSpec, given: Input, epoch: int) -> Asked:
    """The questions of an epoch.

    Args:
        given: its records.
    """
    records = in_order(given)
    getters = [key_getter(spec, schema) for schema in spec.inputs] if spec.keyed else []
    keys = keys_in_order(getters, given, records) if getters else [None] * len(records)
    bounds = given.offsets.tolist()
    return Asked(
        epoch,
        tuple(
            Question(epoch, given.lo + g, i - bounds[g], keys[i], records[i])
            for g in range(len(bounds) - 1)
            for i in range(bounds[g], bounds[g + 1])
        ),
    )


def calls_of(spec: OperatorSpec, questions: Iterable[Question]) -> Iterator[tuple[Question, ...]]:
    """The questions of each call, in order."""
    assert spec.asking is not None
    most, some = spec.asking.batch or 1, list[Question]()
    for question in questions:
        some.append(question)
        if len(some) == most:
            yield tuple(some)
            some = []
    if some:
        yield tuple(some)
