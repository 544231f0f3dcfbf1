"""What `raystream plan` shows: the vertices and edges of a flow, as data and as a tree."""

from __future__ import annotations

import json
import os
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from raystream.api.connectors import as_given
from raystream.api.epochs import Epochs
from raystream.api.flow import Flow
from raystream.api.operators import OperatorSpec
from raystream.api.windows.kinds import Sliding, Tumbling, WindowKind, in_words
from raystream.dataflow.asking.claiming import asks
from raystream.dataflow.plan import Edge, Fused, Vertex, vertices_of
from raystream.dataflow.sources.watermark_rules import PLAIN
from raystream.schema.records import RecordSchema

UNLIMITED = 10_000
"""Columns where there is no terminal: nothing is cut off."""

_UNITS = {1: "s", 1_000: "ms", 1_000_000: "us", 1_000_000_000: "ns"}


def describe(flow: Flow) -> dict[str, Any]:
    """The graph of a flow as plain data. Nothing is started or read.

    Raises:
        GraphError: the flow is wrong as written.
    """
    vertices, edges = vertices_of(flow)
    schemas = dict.fromkeys(s for v in vertices for s in (*v.schemas, *(p.schema for p in v.ports)))
    once = any(asks(v) or (v.epochs is not None and v.epochs.column is None) for v in vertices)
    return {
        "format": 1,
        "flow": flow.name,
        "key_groups": flow.key_groups,
        "time_unit": _UNITS[flow.ticks],
        "vertices": [_vertex(v, once=once) for v in vertices],
        "edges": [
            {
                "from": vertices[e.producer].name,
                "emitted_by": vertices[e.producer].ports[e.port].node,
                "late": vertices[e.producer].ports[e.port].late,
                "to": vertices[e.consumer].name,
                "record": e.schema.name,
                "key": None if e.key is None else list(e.key),
                "merged_in_order_of_emission": e.ranked,
                "to_all": e.to_all,
                "event_time": _event_time(e, vertices[e.producer], flow.ticks),
            }
            for e in edges
        ],
        "records": {s.name: [str(f) for f in s.fields] for s in schemas},
    }


def _vertex(vertex: Vertex, *, once: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"name": vertex.name, "kind": vertex.kind}
    if vertex.spec is not None:
        out |= _operator(vertex.spec)
    elif vertex.kind == "source":
        assert vertex.epochs is not None
        out |= {
            "reads": type(as_given(vertex.source)).__name__,
            "epochs": _epochs(vertex.epochs, vertex.ports[0].schema),
            "outputs": [vertex.ports[0].schema.name],
        }
    else:
        out |= {
            "writes": type(as_given(vertex.sink)).__name__,
            "inputs": [s.name for s in vertex.schemas],
            "visible": _visible(as_given(vertex.sink), once=once),
        }
    out["fused"] = [_fused(f) for f in vertex.fused]
    return out


def _visible(sink: Any, *, once: bool) -> str | None:
    """When readers see what a sink has written, in words. None if its class does not say.

    Args:
        once: whether epochs cannot be made once more when all copies of what was recorded are lost.
    """
    kind, asked = getattr(sink, "kind", ""), getattr(sink, "visible", None)
    saved = "visible when a checkpoint is committed, with a durable tier when it is saved"
    if kind == "epoch-addressed" or (kind == "by-epoch" and asked == "saved"):
        return saved
    if kind == "by-epoch":
        waits = once and asked is None
        return f"visible by epoch{', with a durable tier by saved checkpoint' if waits else ''}"
    if kind == "at-least-once":
        return "at least once: after a failure the same records may come again"
    return None


def _event_time(edge: Edge, producer: Vertex, ticks: int) -> str | None:
    """What `Stream.timed` says of an edge, in words. None if it says nothing.

    Args:
        ticks: units of the flow's time in a second.
    """
    if edge.rules == PLAIN:
        return None
    found = []
    for rule in edge.rules:
        parts = []
        if rule.port is None:
            parts.append(f"that of {producer.name}")
        else:
            parts.append(f"{producer.ports[rule.port].schema.name}.{rule.field}")
        if rule.disorder:
            parts.append(f"records up to {rule.disorder / ticks:g} s out of order")
        if rule.behind:
            parts.append(f"{rule.behind / ticks:g} s behind")
        found.append(", ".join(parts))
    return "; ".join(found)


def _fused(fused: Fused) -> dict[str, Any]:
    return {"name": fused.name, **_operator(fused.spec)}


def _operator(spec: OperatorSpec) -> dict[str, Any]:
    state = spec.state
    return {
        "operator": spec.name,
        "where": None if spec.where is None else f"{spec.where.file}:{spec.where.line}",
        "form": f"per {spec.form}",
        "compiled": spec.compiled,
        "inputs": [s.name for s in spec.inputs],
        "outputs": [s.name for s in spec.outputs],
        "key": list(spec.key),
        "order_by": spec.order_by,
        "window": None if spec.window is None else f"{_window(spec.window)} by {spec.time}",
        "state": None
        if state is None
        else {"name": state.name, "fields": [str(f) for f in state.fields], "timer": state.timer},
        "reference": spec.load is not None,
        "control": None
        if spec.control is None
        else {
            "takes": [s.name for s in spec.control.inputs],
            "row": spec.control.state.name,
            "fields": [str(f) for f in spec.control.state.fields],
        },
        "asks": None if spec.asking is None else _asking(spec),
    }


def _asking(spec: OperatorSpec) -> str:
    """How an operator asks the world, in words."""
    asking = spec.asking
    assert asking is not None
    parts = [f"{asking.concurrency} calls at once"]
    if asking.batch:
        parts.append(f"of up to {asking.batch} records")
    parts.append("no timeout" if asking.timeout is None else f"timeout {asking.timeout:g} s")
    parts.append(f"{asking.retries} {'retry' if asking.retries == 1 else 'retries'}")
    parts.append("in order" if asking.ordered else "in the order of the answers")
    return ", ".join(parts)


def _epochs(epochs: Epochs, schema: RecordSchema) -> str:
    if epochs.column is None:
        parts = [f"by arrival, every {epochs.seconds:g} s"]
        if not schema.has_time(epochs.time):
            parts.append(f"no watermark: {schema.name} has no integer {epochs.time!r}")
        elif epochs.time != "time":
            parts.append(f"watermark by {epochs.time}")
        if epochs.idle is not None:
            goes_on = ", then by the clock" if epochs.all_idle == "advance" else ""
            parts.append(f"splits idle after {epochs.idle:g} s{goes_on}")
    else:
        parts = [f"by {epochs.column}"]
        if epochs.seconds is not None:
            parts.append(f"every {epochs.seconds:g} s of it")
        if epochs.speed is not None:
            parts.append(f"at {epochs.speed:g} times real time")
    if epochs.disorder:
        parts.append(f"records up to {epochs.disorder:g} s out of order")
    return ", ".join(parts)


def _window(window: WindowKind) -> str:
    words = in_words(window)
    if isinstance(window, Sliding):
        return words.replace("windows of", "sliding").replace(" every", ", every", 1)
    return words.replace("windows of", "tumbling") if isinstance(window, Tumbling) else words


# ---------------------------------------------------------------------------- the tree


def show(described: dict[str, Any], *, as_json: bool) -> None:
    """Print a described flow."""
    console = Console(highlight=False)
    if as_json:
        console.out(json.dumps(described, indent=2), highlight=False)
        return
    if not console.is_terminal:
        console.width = UNLIMITED
    console.print(tree(described))


def tree(described: dict[str, Any]) -> Tree:
    """A described flow for people."""
    root = Tree(
        f"[bold]{escape(described['flow'])}[/]  {described['key_groups']} key groups,"
        f" time in {described['time_unit']}",
        guide_style="dim",
    )
    for vertex in described["vertices"]:
        branch = root.add(f"[bold cyan]{escape(vertex['name'])}[/]  {_title(vertex)}")
        _facts(branch, vertex)
        for fused in vertex["fused"]:
            inner = branch.add(f"[cyan]{escape(fused['name'])}[/]  fused {_title(fused)}")
            _facts(inner, fused)
        for edge in described["edges"]:
            if edge["from"] == vertex["name"]:
                branch.add(_arrow(edge, vertex["name"]))
    records = root.add("[bold]record types[/]")
    for name, fields in described["records"].items():
        records.add(f"{escape(name)}({escape(', '.join(fields))})")
    return root


def _title(vertex: dict[str, Any]) -> str:
    if "reads" in vertex:
        return f"source {escape(vertex['reads'])}, epochs {escape(vertex['epochs'])}"
    if "writes" in vertex:
        return f"sink {escape(vertex['writes'])}"
    form = "compiled" if vertex["compiled"] else vertex["form"]
    named = "" if vertex["operator"] == vertex["name"] else f" {escape(vertex['operator'])}"
    return f"operator{named}, {form}   [dim]{escape(_near(vertex['where'] or ''))}[/]"


def _near(where: str) -> str:
    """A place in the current folder is told from there."""
    return where.removeprefix(os.getcwd() + os.sep)


def _facts(branch: Tree, vertex: dict[str, Any]) -> None:
    takes, yields = " | ".join(vertex.get("inputs", ())), " | ".join(vertex.get("outputs", ()))
    branch.add(
        escape(
            " → ".join(filter(None, [takes, yields or ("" if "writes" in vertex else "nothing")]))
        )
    )
    if vertex.get("key"):
        order = f", in order of {vertex['order_by']}" if vertex["order_by"] else ""
        branch.add(f"key {escape(', '.join(vertex['key']))}{order}")
    if vertex.get("window"):
        branch.add(f"window {escape(vertex['window'])}")
    if vertex.get("state"):
        state = vertex["state"]
        timer = f", timer {state['timer']}" if state["timer"] else ""
        branch.add(escape(f"state {state['name']}({', '.join(state['fields'])}){timer}"))
    if vertex.get("visible"):
        branch.add(escape(vertex["visible"]))
    if vertex.get("asks"):
        branch.add(f"asks the world, answers recorded: {escape(vertex['asks'])}")
    if vertex.get("reference"):
        branch.add("reference data, loaded before the first record")


def _arrow(edge: dict[str, Any], vertex: str) -> str:
    by = "" if edge["emitted_by"] == vertex else f" of {edge['emitted_by']}"
    late = "late " if edge["late"] else ""
    key = "" if edge["key"] is None else f" by {', '.join(edge['key'])}"
    merged = ", merged in order of emission" if edge["merged_in_order_of_emission"] else ""
    timed = "" if edge["event_time"] is None else f", event time {edge['event_time']}"
    what = escape(f"{edge['record']}{by}{key}{timed}")
    return f"[green]→[/] {escape(edge['to'])}: {late}{what}{merged}"
