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

PACED_EPOCH_SECONDS = 0.05
"""Real seconds of an epoch of a paced run: what an answer may wait for its epoch to end."""
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
        seconds=epoch or epoch_seconds(data, speed),
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


def epoch_seconds(data: Prepared, speed: float | None) -> float:
    """Simulated seconds of an epoch: whole slots when paced, whole seconds at full speed."""
    if speed is not None:
        return max(1, round(PACED_EPOCH_SECONDS * speed * SLOTS)) / SLOTS
    rate = data.meta.rows_total / len(data.meta.per_second)
    return max(1, round(EPOCH_ROWS / rate))


def interpret(flow: rs.Flow) -> None:
    """Have all operators of a flow run as plain Python: the same answers for far more CPU."""
    nodes: list[Any] = flow.nodes
    for node in nodes:
        if getattr(node, "spec", None) is not None:
            node.spec = replace(node.spec, compiled=False)
