"""Testing operators: they are plain functions, and a flow runs in the test's own process.

Run it:

    pytest examples/testing_an_operator.py
"""

from __future__ import annotations

import pytest

import raystream as rs
from examples.word_count import Counted, CountWords, Line, Tally, Word, split
from raystream.testing import Collect, OperatorHarness, check_operator, run_local

LINES = [Line(1, "to be or not to be"), Line(12, "be it so, be it not so")]


def test_a_stateless_operator_is_a_function() -> None:
    assert list(split(Line(3, "to be"))) == [Word(3, "to"), Word(3, "be")]


def test_a_method_is_called_with_a_row() -> None:
    tally = Tally(n=1)
    CountWords().process(Word(3, "to"), tally)
    assert tally == Tally(n=2)
    assert list(CountWords(at_least=3).close("to", rs.Window(0, 10), tally)) == []


def test_an_operator_in_the_machine_that_runs_it() -> None:
    harness = OperatorHarness(CountWords(at_least=2))
    harness.send(Word(1, "to"), Word(3, "be"), Word(9, "to"))
    harness.restart(instances=3)  # checkpointed, cut by key, restored
    assert harness.advance_watermark(10) == [Counted("to", 0, 2)]


def test_an_operator_may_be_moved_and_restored() -> None:
    check_operator(CountWords(), [Word(t, word) for t, word in enumerate("abacabadabacaba")])


def flow_into(sink: Collect) -> rs.Flow:
    flow = rs.Flow("test")
    lines = flow.source(rs.io.iterable(LINES, Line), epochs=rs.by_time(seconds=1), name="lines")
    lines.through(split).through(CountWords(at_least=2)).to(sink)
    return flow


def test_a_flow() -> None:
    sink = Collect()
    run_local(flow_into(sink))
    assert Counted("be", 0, 2) in sink.records()


@pytest.mark.parametrize("seed", range(5))
def test_the_number_of_instances_and_the_timing_change_nothing(seed: int) -> None:
    """`seed` draws another order in which instances step and pieces arrive."""
    once, many = Collect(), Collect()
    run_local(flow_into(once))
    run_local(flow_into(many), instances={"CountWords": 3}, seed=seed)
    assert many.by_epoch() == once.by_epoch()
