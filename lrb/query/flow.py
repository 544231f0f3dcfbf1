"""The flow of Linear Road over a prepared folder, and how long its epochs are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import raystream as rs
from lrb.query.expenditure import Expenditure, Spent
from lrb.query.operators import Places, Vehicles, accounts, forward, segments
from lrb.query.records import (
    Alert,
    Balance,
    BalanceRequest,
    ExpenditureRequest,
    Left,
    Report,
    Row,
    Seen,
    Stopped,
    Toll,
)
from lrb.query.replicas import ReplicaExpenditure, Replicas, ReplicatedRows
from spark_ingest.layout import SLOTS

if TYPE_CHECKING:
    from lrb.query.source import Prepared

SOURCE, SINK = "rows", "answers"
OPERATORS = (SOURCE, "vehicles", "places", "segments", "accounts", "expenditure", SINK)
"""What can have several instances."""

SHORT_SECONDS, LONG_SECONDS = 0.01, 0.05
"""Real seconds of an epoch of a paced run: the least and the most, unless a slot takes longer.
A row waits for the end of its epoch, but an epoch of one slot is released as it begins, because its
rows are due then."""
LONG_RATE = 40_000
"""From this many rows a second on, epochs are of LONG_SECONDS. Below it their length follows the
rate: each epoch costs work, for which there is less time where there are more rows."""
EPOCH_ROWS = 200_000
"""Rows of an epoch at full speed: enough to hide the fixed cost of an epoch."""
EPOCHS_OF_A_CHECKPOINT = 25
"""Epochs from one checkpoint to the next at full speed: about 5 million rows."""

Answer = Toll | Alert | Balance | Spent


def build(
    data: Prepared,
    sink: rs.Sink[Answer],
    *,
    speed: float | None,
    epoch: float | None = None,
    replicas: Replicas | None = None,
) -> rs.Flow:
    """The flow. speed: simulated seconds per second, None for as fast as it goes; epoch: simulated
    seconds, from speed or data unless given; replicas: as which the data are replayed. Nothing of
    it is adapted to load."""
    history = Expenditure(data.history)
    given_rows: rs.Source[Row] = data.rows
    spending: Expenditure | ReplicaExpenditure = history
    if replicas is not None:
        given_rows = ReplicatedRows(data.rows, replicas)
        spending = ReplicaExpenditure(history, replicas)
    epochs = rs.by_time(
        "release",
        seconds=epoch or epoch_seconds(data, speed, 1 if replicas is None else replicas.count),
        ticks=SLOTS,
        speed=speed,
        origin=data.meta.first * SLOTS,
    )
    flow = rs.Flow("linear-road")
    rows = flow.source(given_rows, epochs=epochs, name=SOURCE)
    answers(rows.through(forward), spending).to(sink, name=SINK)
    return flow


def answers(given: rs.Stream[Any], spending: Expenditure | ReplicaExpenditure) -> rs.Stream[Any]:
    """What follows from reports and requests. given: those, told apart; spending: looks up what was
    spent on earlier days."""
    reports = given[Report].through(Vehicles(), name="vehicles")
    accidents = reports[Stopped].through(Places(), name="places")
    notified = (reports[Seen] | accidents).through(segments)
    movements = notified[Toll] | reports[Left]
    balances = (movements | given[BalanceRequest]).through(accounts)
    spent = given[ExpenditureRequest].through(spending, name="expenditure")
    every: rs.Stream[Any] = notified | balances | spent
    return every


def epoch_seconds(data: Prepared, speed: float | None, copies: int = 1) -> float:
    """Simulated seconds of an epoch: whole slots when paced, whole seconds at full speed.

    Args:
        copies: how many replicas of the data come at once.
    """
    rate = data.meta.rows_total * copies / len(data.meta.per_second)
    if speed is None:
        return max(1, round(EPOCH_ROWS / rate))
    real = min(LONG_SECONDS, max(SHORT_SECONDS, LONG_SECONDS * rate * speed / LONG_RATE))
    return max(1, round(real * speed * SLOTS)) / SLOTS


def interpret(flow: rs.Flow) -> None:
    """Have all operators of a flow run as plain Python: the same answers for far more CPU."""
    nodes: list[Any] = flow.nodes
    for node in nodes:
        if getattr(node, "spec", None) is not None:
            node.spec = replace(node.spec, compiled=False)
