"""What an instance answers to a query: only what it owns, and only when it has come so far."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from raystream.controller.planning.plans import make_plan
from raystream.dataflow.assignment import Assignment, Serving
from raystream.dataflow.instances.making import make_instance
from raystream.dataflow.queries.looking import Looked, NotYet, StateQuery, look_up
from raystream.dataflow.snapshot import capture, install
from raystream.dataflow.tenure import Tenure
from raystream.local.job import LocalJob
from raystream.state.images.chain import FULL
from raystream.state.tables.backend import WHOLE
from raystream.testing import Collect
from tests.flows import running, running_batch, word_flow


def job_of(operator: Any) -> LocalJob:
    job = LocalJob(make_plan(word_flow(Collect(), operator), instances={operator.__name__: 2}))
    for _ in range(5):
        job.turn()
    return job


@pytest.fixture(params=[running, running_batch], ids=["Python rows", "structured rows"])
def tenures(request: pytest.FixtureRequest) -> list[Tenure[Any]]:
    """The two instances of the operator, which own their ranges and have applied some epochs."""
    job = job_of(request.param)
    found = [t for t in job.tenures if t.machine.table is not None]
    serving = [
        Serving(t.machine.vertex.id, t.machine.keys, str(i), "") for i, t in enumerate(found)
    ]
    for i, tenure in enumerate(found):
        tenure.name = str(i)
        tenure.assign(Assignment(1, tuple(serving)))
    return found


def keys_in(tenure: Tenure[Any]) -> Any:
    table = tenure.machine.table
    assert table is not None
    part = next(table.capture(FULL, tenure.machine.position).parts(WHOLE))
    assert part.rows.num_rows > 1
    return part.rows.select(table.shape.gone.names)


def ask(tenure: Tenure[Any], keys: Any, least: int = 0) -> Looked | NotYet:
    return look_up(tenure, StateQuery(tenure.machine.vertex.id, keys, least))


def test_an_owner_answers_for_its_keys_at_its_epoch(tenures: list[Tenure[Any]]) -> None:
    for tenure in tenures:
        keys = keys_in(tenure)
        found = ask(tenure, keys, tenure.machine.position)
        assert isinstance(found, Looked)
        assert found.epoch == tenure.machine.position > 0
        assert found.found.at.tolist() == list(range(keys.num_rows))
        assert found.found.batch().select(keys.schema.names) == keys


def test_keys_of_others_are_not_answered(tenures: list[Tenure[Any]]) -> None:
    one, two = tenures
    mixed = pa.concat_batches([keys_in(one), keys_in(two).slice(0, 1)])
    assert ask(one, mixed) is NotYet.ELSEWHERE
    assert ask(two, keys_in(one)) is NotYet.ELSEWHERE
    assert look_up(one, StateQuery(99, keys_in(one), 0)) is NotYet.ELSEWHERE


def test_an_instance_that_is_no_owner_answers_nothing(tenures: list[Tenure[Any]]) -> None:
    tenure = tenures[0]
    keys = keys_in(tenure)
    tenure.assign(Assignment(2, ()))
    assert ask(tenure, keys) is NotYet.ELSEWHERE
    own = Serving(tenure.machine.vertex.id, tenure.machine.keys, tenure.name, "", candidate=True)
    tenure.assign(Assignment(3, (own,)))
    assert ask(tenure, keys) is NotYet.ELSEWHERE


def test_a_later_epoch_is_waited_for(tenures: list[Tenure[Any]]) -> None:
    tenure = tenures[0]
    assert ask(tenure, keys_in(tenure), tenure.machine.position + 1) is NotYet.LATER


def test_the_state_at_the_end_is_that_of_every_later_epoch(tenures: list[Tenure[Any]]) -> None:
    tenure = tenures[0]
    keys, tenure.machine.ended = keys_in(tenure), True
    found = ask(tenure, keys, 1000)
    assert isinstance(found, Looked) and found.epoch == 1000


def test_an_instance_that_came_after_the_end_knows_nothing(tenures: list[Tenure[Any]]) -> None:
    tenure = tenures[0]
    machine = tenure.machine
    keys, machine.ended = keys_in(tenure), True
    again = make_instance(machine.plan, machine.vertex, machine.keys)
    install(again, [[capture(machine).image()]])
    tenure.machine = again
    assert ask(tenure, keys) is NotYet.OVER
