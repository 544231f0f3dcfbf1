"""What cannot be carried to other processes is named before a job begins.

Ray would say it of the whole plan, with all records that it holds.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ray import cloudpickle

from raystream.api.connectors import as_given
from raystream.dataflow.plan import Vertex
from raystream.errors import GraphError, Where

dumps: Any = cloudpickle.dumps  # it ships no types
DEPTH = 8
"""How many levels deep a part is searched for that cannot be pickled."""


def refuse_unpicklable(vertices: Iterable[Vertex]) -> None:
    """Check that sources, operators and sinks of vertices can be pickled.

    Raises:
        GraphError: one cannot. It names the node and the part to blame, but shows no values.
    """
    for name, thing, where in _things(vertices):
        error = _fails(thing)
        if error is None:
            continue
        path, part = _culprit(thing, "", DEPTH)
        kind = type(part)
        shown = (
            kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        )
        what = f"its {path.lstrip('.')} is a {shown}, which" if path else f"a {shown}"
        raise GraphError(
            f"{name} cannot be carried to other processes: {what} cannot be pickled"
            f" ({type(error).__name__})",
            where=where,
            hint="Hold only what it is made of, such as an address or a path, and make the rest"
            " where it is used.",
        )


def _things(vertices: Iterable[Vertex]) -> Iterator[tuple[str, Any, Where | None]]:
    """The name of each node, what the user made it of, and its place."""
    for vertex in vertices:
        target = None if vertex.spec is None else vertex.spec.target
        for thing in (as_given(vertex.source), target, as_given(vertex.sink)):
            if thing is not None:
                yield vertex.name, thing, vertex.where
        for fused in vertex.fused:
            yield fused.name, fused.spec.target, fused.spec.where


def _fails(thing: Any) -> Exception | None:
    """The exception of pickling, if any. As Ray does it, memory of arrays is not copied."""
    try:
        dumps(thing, protocol=5, buffer_callback=list[Any]().append)
    except Exception as error:  # of the user's code, too
        return error
    return None


def _culprit(thing: Any, path: str, depth: int) -> tuple[str, Any]:
    """The path to the innermost part that cannot be pickled, and that part."""
    if depth:
        for step, part in _parts(thing):
            if _fails(part) is not None:
                return _culprit(part, path + step, depth - 1)
    return path, thing


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a value: items, fields, or the variables that a function refers to."""
    if isinstance(thing, Mapping):
        yield from ((f"[{i}]", value) for i, value in enumerate(thing.values()))
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from ((f"[{i}]", value) for i, value in enumerate(thing))
    elif inspect.ismethod(thing):
        yield ".__self__", thing.__self__
    elif inspect.isfunction(thing):
        with suppress(ValueError):  # it refers to a name that has no value yet
            seen = inspect.getclosurevars(thing)
            names = {**seen.nonlocals, **seen.globals}
            yield from ((f".{name}", value) for name, value in names.items())
    else:
        yield from ((f".{name}", value) for name, value in getattr(thing, "__dict__", {}).items())
