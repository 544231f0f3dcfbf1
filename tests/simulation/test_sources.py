"""Simulated jobs whose sources are cut by arrival, and the checkers that watch them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from raystream.dataflow.register import Boundaries, Boundary, Register
from raystream.simulation.processes.register import Ledger
from raystream.simulation.processes.streams import Reading, Readings
from raystream.simulation.scenarios import Scenario
from raystream.simulation.simulator import simulate
from raystream.simulation.world import Wrong
from raystream.state.log.epoch_log import EpochLog
from raystream.state.tables.object_table import ObjectTable

KEEPERS_DIE = Scenario("arriving", instances=(2, 1, 2), faults=10, moves=0)
TRIES = 120
"""Schedules in which something broken has to be caught."""


def test_views_change_when_places_and_sources_die() -> None:
    outcomes = [simulate(KEEPERS_DIE, seed, story=True) for seed in range(24)]
    assert not [o.why for o in outcomes if o.kind == "wrong"]
    story = "\n".join(line for o in outcomes for line in o.story)
    assert max(int(n) for n in re.findall(r" Tell\(view=PlaceSet\(number=(\d+)", story)) > 3


def test_what_was_published_stays() -> None:
    ledger = Ledger()
    for _ in range(2):
        ledger.publish("a", 1, Boundary(3, 10, False))
    with pytest.raises(Wrong, match=r"epoch 1 of a was published to .*3.* and to .*4"):
        ledger.publish("a", 1, Boundary(4, 10, False))


def _forgets_boundaries(patch: pytest.MonkeyPatch) -> None:
    fill = Register.fill
    patch.setattr(Register, "fill", lambda self, view, _: fill(self, view, Boundaries()))


def _forgets_removed_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ObjectTable, "gone", lambda self, since: [])


def _never_trims(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochLog, "trim", lambda self, committed, most: True)


def _takes_in_all_that_comes(patch: pytest.MonkeyPatch) -> None:
    def drain(self: Readings, reading: Reading) -> None:
        while reading.waiting:
            feeding, piece = reading.waiting.popleft()
            reading.next = piece.header.epoch + 1
            self._receive(reading, piece)
            feeding.under_way -= 1
            producer: Any = self._job.at[reading.address]
            if producer.alive and not producer.asleep:
                producer.serving.feed((reading.edge.id, self._instance.name))

    patch.setattr(Readings, "drain", drain)


BROKEN: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    _forgets_boundaries: "was published to",
    _forgets_removed_rows: "wrote",
    _never_trims: "epochs of edge",
    _takes_in_all_that_comes: "holds epochs",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda f: f.__name__[1:])
def test_a_broken_engine_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    tried = (simulate(replace(KEEPERS_DIE, upgrades=0), seed) for seed in range(TRIES))
    assert any(o.kind == "wrong" and BROKEN[broken] in o.why for o in tried)
