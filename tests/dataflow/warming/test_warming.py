"""A process that stands by has loaded what it may need, and called nobody; one that takes a place
has loaded what the first epochs and checkpoints need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.warming import warm
from raystream.testing import Collect, run_local
from tests.dataflow.shapes import SHAPES
from tests.dataflow.warming.first_use import FLOWS
from tests.flows import CompiledLedger, Running, Tally, Word, ledger_flow, word_flow
from tests.gates import LIMIT_SECONDS


def all_of(steps: Iterator[None]) -> None:
    assert sum(1 for _ in steps) > 1


@rs.operator(key="word")
def row_by_row(word: Word, tally: Tally) -> Iterator[Running]:
    raise AssertionError(word)


@rs.operator(key="word")
def batch_by_batch(words: rs.Batch[Word], rows: rs.Rows[Tally]) -> rs.Batch[Running]:
    raise AssertionError(words)


@pytest.mark.parametrize("op", [row_by_row, batch_by_batch])
def test_no_code_of_the_user_is_called(op: object) -> None:
    all_of(warm(make_plan(word_flow(Collect(), op=op))))


@pytest.mark.parametrize("name", SHAPES)
def test_all_shapes_run_as_if_nothing_had_been(name: str) -> None:
    cold, warmed = Collect(), Collect()
    run_local(SHAPES[name].build(cold, 2, 1))
    all_of(warm(make_plan(flow := SHAPES[name].build(warmed, 2, 1))))
    assert list(warmed.records()) == []
    run_local(flow)
    assert list(warmed.records()) == list(cold.records())


def test_compiled_operators_are_loaded() -> None:
    all_of(warm(make_plan(ledger_flow(Collect(), op=CompiledLedger()))))


@pytest.mark.parametrize("name", FLOWS)
def test_nothing_is_compiled_or_loaded_while_a_job_runs(name: str) -> None:
    """In a process of its own: here all has been used."""
    command = [sys.executable, "-m", "tests.dataflow.warming.first_use", name]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
