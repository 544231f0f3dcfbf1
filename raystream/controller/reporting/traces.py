"""The decisions of a job as spans of OpenTelemetry, in the form in which a collector takes them
over HTTP (OTLP, JSON).

A recovery, a move and an upgrade each are a trace of their own: one span from the moment at which
the decision was taken to its end, and in it one for each phase. So is a committed checkpoint, whose
span is as long as the slowest instance stored. The same decision has the same ids whoever sends it.
Spans have names of operators and instances, numbers, and the reasons of moves; no key, no value and
no text of an error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from raystream.controller.protocol.history import MoveRecord, Recovery, UpgradeRecord
from raystream.controller.protocol.journal import JournalEntry

INTERNAL, ERROR = 1, 2
"""OpenTelemetry's numbers for a span inside one service, and for what has failed."""
Value = str | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided and is over, as a span."""

    kind: str
    """One of "recovery", "move", "upgrade" and "checkpoint"."""
    t: float
    """Seconds since the job's start at which it began."""
    phases: tuple[tuple[str, float], ...]
    """The names and seconds of its phases, in order."""
    attributes: Mapping[str, Value]
    """What else is known of it, by name."""
    failed: bool = False
    """Whether it was given up."""

    @property
    def ended(self) -> float:
        """Seconds since the job's start at which it was over."""
        return self.t + sum(seconds for _, seconds in self.phases)


def decisions(entry: JournalEntry) -> Iterator[Decision]:
    """What the journal has of decisions that are over, but for checkpoints."""
    yield from map(_recovery, entry.recoveries)
    yield from map(_move, entry.moved)
    yield from map(_upgrade, entry.upgraded)


def checkpoint(epoch: int, committed_at: float, seconds: float, nbytes: int) -> Decision:
    """A committed checkpoint.

    Args:
        committed_at: seconds since the job's start. seconds: until the slowest instance had it
            stored. nbytes: of all images.
    """
    attributes = {"epoch": epoch, "bytes": nbytes}
    phases = (("store", seconds),)
    return Decision(
        kind="checkpoint", t=committed_at - seconds, phases=phases, attributes=attributes
    )


def encoded(job: str, run: str, started: float, found: Iterable[Decision]) -> bytes:
    """Decisions as the body of a request to a collector.

    Args:
        started: the Unix time at which the job began.
    """
    spans = [span for decision in found for span in _spans(run, started, decision)]
    resource = {"service.name": "raystream", "raystream.job": job, "raystream.run": run}
    body = {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": {"name": "raystream"}, "spans": spans}],
            }
        ]
    }
    return json.dumps(body).encode()


def _recovery(r: Recovery) -> Decision:
    attributes: dict[str, Value] = {
        "gone": ", ".join(r.gone),
        "new": ", ".join(r.new),
        "committed": r.committed,
    }
    return Decision(kind="recovery", t=r.t, phases=(("restore", r.seconds),), attributes=attributes)


def _move(m: MoveRecord) -> Decision:
    attributes: dict[str, Value] = {
        "operator": m.operator,
        "gone": ", ".join(m.gone),
        "new": ", ".join(m.new),
        "committed": m.committed,
        "mode": m.mode,
        "tries": m.tries,
        "because": m.because,
        "bytes": m.nbytes,
    }
    phases = (("place", m.place), ("restore", m.restore), ("replay", m.replay))
    failed = bool(m.failed)
    return Decision(kind="move", t=m.t, phases=phases, attributes=attributes, failed=failed)


def _upgrade(u: UpgradeRecord) -> Decision:
    attributes: dict[str, Value] = {
        "flow": u.name,
        "version": u.number,
        "after": u.after,
        "tries": u.tries,
    }
    phases, failed = (("settle", u.seconds),), bool(u.failed)
    return Decision(kind="upgrade", t=u.t, phases=phases, attributes=attributes, failed=failed)


def _spans(run: str, started: float, d: Decision) -> Iterator[dict[str, object]]:
    digest = hashlib.sha256(repr((run, d.kind, d.t, sorted(d.attributes.items()))).encode())
    trace, ids = digest.hexdigest()[:32], digest.hexdigest()[32:]
    root, at = ids[:16], started + d.t
    status = {"status": {"code": ERROR, "message": "given up"}} if d.failed else {}
    attributes = _attributes({f"raystream.{name}": v for name, v in d.attributes.items()})
    yield {
        **_span(trace, root, d.kind, at, started + d.ended),
        "attributes": attributes,
        **status,
    }
    if len(d.phases) == 1:
        return
    begins = accumulate((seconds for _, seconds in d.phases), initial=at)
    for begin, (name, seconds) in zip(begins, d.phases, strict=False):
        span = hashlib.sha256(f"{root}{name}".encode()).hexdigest()[:16]
        yield {**_span(trace, span, name, begin, begin + seconds), "parentSpanId": root}


def _span(trace: str, span: str, name: str, begin: float, end: float) -> dict[str, object]:
    return {
        "traceId": trace,
        "spanId": span,
        "name": name,
        "kind": INTERNAL,
        "startTimeUnixNano": str(int(begin * 1e9)),
        "endTimeUnixNano": str(int(end * 1e9)),
    }


def _attributes(values: Mapping[str, Value]) -> list[dict[str, object]]:
    return [{"key": name, "value": _value(v)} for name, v in values.items()]


def _value(value: Value) -> dict[str, object]:
    if isinstance(value, str):
        return {"stringValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"doubleValue": value}
