"""Answers queries for rows of state between two steps of the instance."""

from __future__ import annotations

import time
from typing import Any

from raystream.actors.network.lookups import LookUp
from raystream.actors.worker.compute_loop import ComputeLoop
from raystream.actors.worker.driving.fair_lock import Turns
from raystream.actors.worker.fate import Fate
from raystream.dataflow.queries.looking import Looked, NotYet, StateQuery, look_up
from raystream.dataflow.tenure import Tenure

LOOK_SECONDS = 0.005
"""How often a thread whose query waits for an epoch looks again."""


def answering(tenure: Tenure[Any], fate: Fate, turns: Turns, loop: ComputeLoop) -> LookUp | None:
    """What answers queries, on the threads of the instance's server. None: it keeps no rows.

    A look-up holds the lock that each step of the instance holds. So a look-up sees the state at
    the end of an epoch, and a step waits for the look-up of at most `KEYS_MAX` keys.
    """
    table = tenure.machine.table
    if table is None:
        return None

    def once(query: StateQuery) -> Looked | NotYet:
        with turns:
            if loop.amid or fate.stopping:  # a step that failed left half an epoch
                return NotYet.ELSEWHERE
            return look_up(tenure, query)

    def answer(query: StateQuery, seconds: float) -> Looked | NotYet:
        until = time.monotonic() + seconds
        while (found := once(query)) is NotYet.LATER and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        return found

    return LookUp(table.shape.gone, answer)
