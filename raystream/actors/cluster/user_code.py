"""The user's code behind vertices: functions and classes, and their lines in errors."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

from raystream.api.connectors import as_given
from raystream.compiled.rewriting.source import SOURCE
from raystream.dataflow.plan import Vertex


def code_of(vertices: Iterable[Vertex]) -> Iterator[Any]:
    """The user's functions and classes that vertices hold."""
    for vertex in vertices:
        specs = [vertex.spec, *(f.spec for f in vertex.fused)]
        for target in (spec.target for spec in specs if spec is not None):
            yield target if isinstance(target, FunctionType) else type(target)
        yield from (s.cls for s in (*vertex.schemas, *(p.schema for p in vertex.ports)))
        ends = (as_given(vertex.source), as_given(vertex.sink))
        yield from (end if isinstance(end, FunctionType) else type(end) for end in ends)


def functions_of(thing: Any) -> Iterator[FunctionType]:
    """A function, or those of a class."""
    if isinstance(thing, FunctionType):
        yield thing
    else:
        yield from (f for f in vars(thing).values() if isinstance(f, FunctionType))


def reached(
    things: Iterable[Any], spaces_of: Callable[[Any], Iterable[dict[str, Any]] | None]
) -> list[Any]:
    """The functions and classes that are reached from some of them.

    Args:
        things: where to begin. What is neither function nor class is left out.
        spaces_of: the namespaces in which one finds further ones; None leaves that one out.
    """
    found: dict[int, Any] = {}
    looked: set[int] = set()
    todo = list(things)
    while todo:
        thing = todo.pop()
        if not isinstance(thing, type | FunctionType) or id(thing) in found:
            continue
        spaces = spaces_of(thing)
        if spaces is None:
            continue
        found[id(thing)] = thing
        for space in spaces:
            if id(space) not in looked:
                looked.add(id(space))
                todo += space.values()
    return list(found.values())


def show_code(vertices: Iterable[Vertex]) -> None:
    """Let errors and tracebacks in this process show the lines of code that came by value. Python
    looks for lines in files; here the file is missing, or holds other code."""

    def spaces_of(thing: Any) -> Iterator[dict[str, Any]]:
        return (f.__globals__ for f in functions_of(thing) if hasattr(f, SOURCE))

    for thing in reached(code_of(vertices), spaces_of):
        for function in functions_of(thing):
            text: str | None = getattr(function, SOURCE, None)
            if text is not None:
                file = function.__code__.co_filename
                linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
