"""Simulated clients that query state under faults and moves read what an undisturbed run keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raystream.dataflow.queries.looking import Looked, NotYet, StateQuery
from raystream.simulation.flows import FLOWS
from raystream.simulation.processes import readers
from raystream.simulation.scenarios import Scenario, command
from raystream.simulation.simulator import run_many, simulate

SCHEDULES = 2


@pytest.mark.parametrize("flow", FLOWS)
def test_clients_read_the_state_of_the_epoch_and_never_go_back(flow: str) -> None:
    scenario = Scenario(flow, queries=3, moves=4)
    _, faults, wrong = run_many([scenario], SCHEDULES, 13)
    assert not wrong, "\n".join(f"{o.why}\n{command(s, o.seed)}" for s, o in wrong)
    assert faults["query"] > 20


def test_clients_wait_for_instances_that_are_behind_what_they_have_seen() -> None:
    _, faults, wrong = run_many([Scenario("words", queries=3, moves=8, faults=6)], 4, 5)
    assert not wrong, "\n".join(f"{o.why}\n{command(s, o.seed)}" for s, o in wrong)
    assert faults["query later"]


def test_every_request_is_answered_where_nothing_fails() -> None:
    quiet = Scenario("join", queries=2, faults=0, loss=0, doubling=0, slow=0, fragile=0, moves=2)
    outcomes = [simulate(quiet, seed) for seed in range(4)]
    assert all(o.kind == "right" and o.faults["query"] for o in outcomes)
    assert not any(o.faults["query given up"] for o in outcomes)


Look = Callable[[Any, StateQuery], Looked | NotYet]


def _names_a_later_epoch(look: Look) -> Look:
    def broken(tenure: Any, query: StateQuery) -> Looked | NotYet:
        found = look(tenure, query)
        return found._replace(epoch=found.epoch + 2) if isinstance(found, Looked) else found

    return broken


def _does_not_wait(look: Look) -> Look:
    return lambda tenure, query: look(tenure, query._replace(least=0))


def _loses_a_row(look: Look) -> Look:
    def broken(tenure: Any, query: StateQuery) -> Looked | NotYet:
        found = look(tenure, query)
        if not isinstance(found, Looked) or found.epoch % 5:
            return found
        return look(tenure, query._replace(keys=query.keys.slice(1)))

    return broken


@pytest.mark.parametrize("broken", [_names_a_later_epoch, _does_not_wait, _loses_a_row])
def test_what_is_wrong_is_noticed(
    broken: Callable[[Look], Look], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "look_up", broken(readers.look_up))
    scenario = Scenario("words", queries=4, moves=8, faults=4)
    _, _, wrong = run_many([scenario], 8, 1)
    assert any("a client was told" in o.why or "went back" in o.why for _, o in wrong)
