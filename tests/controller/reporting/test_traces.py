"""What a job decides, as traces."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from raystream.controller.protocol.history import MoveRecord, Recovery, UpgradeRecord
from raystream.controller.protocol.journal import JournalEntry
from raystream.controller.reporting.traces import checkpoint, decisions, encoded
from raystream.schema.types import KeyRange

STARTED = 1000.0
RECOVERY = Recovery(
    t=5.0, gone=("count/0",), new=("count/0.1",), committed=40, seconds=1.5, because="key 'eve'"
)
MOVED = MoveRecord(
    t=7.0,
    operator="count",
    gone=("count/0",),
    new=("count/2",),
    ranges=(KeyRange(0, 256),),
    committed=40,
    mode="replay",
    tries=1,
    place=0.5,
    restore=1.0,
    replay=2.0,
    because="asked for",
    nbytes=123,
)
UPGRADED = UpgradeRecord(
    t=9.0, name="shop:flow", number=0, after=0, tries=2, seconds=3.0, failed="key 'eve'"
)
ENTRY = JournalEntry(recoveries=(RECOVERY,), moved=(MOVED,), upgraded=(UPGRADED,))


def sent(entry: JournalEntry = ENTRY) -> list[dict[str, Any]]:
    body = encoded("shop", "shop-1", STARTED, [*decisions(entry), checkpoint(40, 4.0, 0.5, 99)])
    Parse(body, ExportTraceServiceRequest())  # it knows each field, and its type
    (resource,) = json.loads(body)["resourceSpans"]
    said = {a["key"]: a["value"]["stringValue"] for a in resource["resource"]["attributes"]}
    assert said == {
        "service.name": "raystream",
        "raystream.job": "shop",
        "raystream.run": "shop-1",
    }
    spans: list[dict[str, Any]] = resource["scopeSpans"][0]["spans"]
    return spans


def test_a_decision_is_a_trace_with_its_phases() -> None:
    spans = sent()
    assert [s["name"] for s in spans] == [
        *("recovery", "move", "place", "restore", "replay", "upgrade", "checkpoint")
    ]
    times = [(int(s["startTimeUnixNano"]) / 1e9, int(s["endTimeUnixNano"]) / 1e9) for s in spans]
    move = [(1007.0, 1010.5), (1007.0, 1007.5), (1007.5, 1008.5), (1008.5, 1010.5)]
    assert times == [(1005.0, 1006.5), *move, (1009.0, 1012.0), (1003.5, 1004.0)]
    root, *phases = spans[1:5]
    assert {p["parentSpanId"] for p in phases} == {root["spanId"]}
    assert {p["traceId"] for p in phases} == {root["traceId"]}
    assert len({s["spanId"] for s in spans}) == len(spans)
    assert len({s["traceId"] for s in spans}) == 4


def test_no_error_and_no_reason_of_a_death_is_in_it() -> None:
    spans = sent()
    assert "eve" not in json.dumps(spans)
    assert [s["status"]["code"] for s in spans if "status" in s] == [2]
    because = [a for a in spans[1]["attributes"] if a["key"] == "raystream.because"]
    assert because == [{"key": "raystream.because", "value": {"stringValue": "asked for"}}]


def test_the_same_decision_has_the_same_ids_and_another_has_others() -> None:
    assert sent() == sent()
    later = replace(ENTRY, recoveries=(replace(RECOVERY, t=6.0),))
    assert sent(later)[0]["traceId"] != sent()[0]["traceId"]
    assert sent(later)[1:] == sent()[1:]
