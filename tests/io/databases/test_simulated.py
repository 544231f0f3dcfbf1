"""Sinks that are visible by epoch, to a simulated database that undoes what died amid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import raystream as rs
from raystream.io.databases import markers, sink
from raystream.io.databases.sink import TransactionalSink, Visible
from raystream.simulation.processes.database import DatabaseSink, SimulatedDatabase
from tests.io.databases.words import Counted

ROWS = [Counted("abcdefg"[i % 7], i) for i in range(30)]


def check(visible: Visible | None, examples: int) -> None:
    database = SimulatedDatabase()
    rs.testing.check_sink(
        lambda: DatabaseSink(database, visible=visible),
        ROWS,
        read=lambda: [row for part in database.of("check/sink").rows for row in part],
        clear=database.content.clear,
        examples=examples,
    )


@pytest.mark.parametrize("visible", [None, "saved"])
def test_each_row_is_there_once_whatever_dies(visible: Visible | None) -> None:
    check(visible, 100)


def without_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sink._OpenRange, "_advance", lambda self, tx, before, after: tx.advance(before, after)
    )


def without_skipping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionalSink, "already_there", lambda self: ())


def with_the_greatest_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def greatest(found: list[markers.Marker]) -> list[markers.Marker]:
        return [m._replace(epoch=max(x.epoch for x in found)) for m in found]

    monkeypatch.setattr(markers, "joined", greatest)


def forgetting_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _forgetting(monkeypatch, lambda context: markers.LAST)


def forgetting_what_the_run_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    _forgetting(monkeypatch, lambda context: context.committed)


def _forgetting(monkeypatch: pytest.MonkeyPatch, after: Any) -> None:
    taken = markers.take_over
    monkeypatch.setattr(
        sink, "take_over", lambda *args: replace(taken(*args), forget=after(args[3]))
    )


def showing_epochs_that_will_be_cut_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = TransactionalSink.open
    monkeypatch.setattr(
        TransactionalSink,
        "open",
        lambda self, context: opened(self, context._replace(repeatable=True)),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        without_fence,
        without_skipping,
        with_the_greatest_epoch,
        forgetting_nothing,
        forgetting_what_the_run_staged,
        showing_epochs_that_will_be_cut_otherwise,
    ],
)
def test_a_rule_that_is_broken_is_found(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch)
    with pytest.raises(AssertionError, match="check_sink"):
        check(None, 2000)
