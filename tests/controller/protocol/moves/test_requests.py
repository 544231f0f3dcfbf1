"""Which moves may be asked for, which are refused, and what each changes."""

from __future__ import annotations

import pytest

from raystream.controller.options import Options
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.move_requests import (
    RescaleRequest,
    changes,
    check,
    elsewhere,
    evenly,
)
from raystream.errors import ConfigError
from raystream.schema.types import KeyRange
from tests.controller.protocol.driven import Driven
from tests.controller.protocol.moves.moved import ALL, GROUPS, HALVES, Moved


@pytest.mark.parametrize(
    ("operator", "ranges", "why"),
    [
        ("cuont", HALVES, "there is no operator 'cuont'"),
        ("split", HALVES, "'split' keeps no state, so it runs inside 'lines'"),
        ("count", HALVES[:1], "do not tile the 16 key groups"),
        ("count", (ALL,), "count is served like that already"),
        ("collect", HALVES, "collect is a sink that does not scale: its instances can be moved"),
    ],
)
def test_what_cannot_be_is_refused(operator: str, ranges: tuple[KeyRange, ...], why: str) -> None:
    job = Moved()
    assert why in job.ask(operator, *ranges)
    assert not job.machine.journal.moves


def test_what_cannot_be_now_is_refused() -> None:
    job = Moved()
    assert job.ask("count", ALL, leave=("count/7",)).startswith("there is no instance 'count/7'")
    assert job.ask("count", ALL, leave=("count/0",), node="c").startswith("there is no node c")
    assert job.ask("count", *HALVES) == ""
    assert job.ask("count", *HALVES).startswith("count is being moved already")
    assert job.ask("chain", *HALVES) == ""
    assert "recovery='source'" in Moved(Options(recovery="source")).ask("count", *HALVES)
    ended = Moved()
    ended.at(25, ended=True)
    assert ended.ask("count", *HALVES) == "the job has come to the end of its input"
    before = Driven()
    before.hear(on.Rescale(1, (RescaleRequest("count", HALVES, "tested"),)))
    assert before.all(do.Answer)[-1].refusal == "the job has not begun"


def test_all_that_is_asked_for_together_is_taken_up_or_nothing() -> None:
    job = Moved()
    wanted = [RescaleRequest(o, HALVES, "tested") for o in ("count", "lines", "collect")]
    job.hear(on.Rescale(1, tuple(wanted)))
    assert job.all(do.Answer)[-1].refusal and not job.machine.journal.moves
    job.hear(on.Rescale(2, tuple(wanted[:2])))
    assert [m.operator for m in job.machine.journal.moves] == ["count", "lines"]


def test_what_changes() -> None:
    owned = {"a": KeyRange(0, 8), "b": KeyRange(8, 16)}
    third = (KeyRange(0, 8), KeyRange(8, 12), KeyRange(12, 16))
    assert changes(RescaleRequest("o", third, ""), owned) == (third[1:], ("b",))
    assert changes(RescaleRequest("o", (ALL,), ""), owned) == ((ALL,), ("a", "b"))
    assert changes(RescaleRequest("o", HALVES, "", ("b",)), owned) == ((HALVES[1],), ("b",))
    assert changes(RescaleRequest("o", HALVES, ""), owned) == ((), ())


def test_what_is_asked_for() -> None:
    plan = Moved().plan
    assert evenly(plan, "count", 2) == HALVES
    for instances in (0, GROUPS + 1):
        with pytest.raises(ConfigError, match="has from 1 to 16 instances"):
            evenly(plan, "count", instances)
    owned = {"count/1": ("count", HALVES[0]), "count/2": ("count", HALVES[1]), "x": ("y", ALL)}
    assert elsewhere("count/2", "n", owned, "b") == RescaleRequest(
        "count", HALVES, "b", ("count/2",), "n"
    )
    with pytest.raises(ConfigError, match="there is no instance 'count/3'"):
        elsewhere("count/3", "", owned, "b")
    backwards = RescaleRequest("count", HALVES[::-1], "b")  # a request has its ranges in any order
    check(plan, backwards, {"count/0": ALL}, [])
    for ranges in ((*HALVES, ALL), (KeyRange(0, 9), HALVES[1])):
        with pytest.raises(ConfigError, match="do not tile"):
            check(plan, RescaleRequest("count", ranges, "b"), {"count/0": ALL}, [])
