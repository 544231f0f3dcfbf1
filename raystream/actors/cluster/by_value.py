"""The user's code goes to other processes by value where these cannot import it: the code of
`__main__` (a script, the cells of a notebook), and the code of an upgrade, because the processes of
the job have modules of the same names with the code of before.

Pickling carries functions and classes, but not all that raystream asks of them: what their
annotations mean, where these are texts (`from __future__ import annotations`), and the source of
what is to be compiled.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any

from ray import cloudpickle

from raystream.actors.cluster.user_code import code_of, functions_of, reached
from raystream.compiled.rewriting.source import SOURCE
from raystream.controller.planning.program import modules_of
from raystream.dataflow.plan import Vertex
from raystream.schema.fields import is_record
from raystream.schema.state import State

MAIN = "__main__"
pickler: Any = cloudpickle  # it ships no types


@contextmanager
def by_value(vertices: Iterable[Vertex]) -> Iterator[None]:
    """A context in which the user's modules behind vertices are pickled with their code."""
    modules = modules_of(vertices)
    make_portable(vertices, modules)
    for module in modules.values():
        pickler.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules.values():
            pickler.unregister_pickle_by_value(module)


def make_portable(vertices: Iterable[Vertex], modules: Collection[str] = (MAIN,)) -> None:
    """Give the code of some modules, as far as vertices are made of it, all that other processes
    need: annotations that are texts become the types that they mean; functions carry the text of
    the file or cell that they are in.

    Args:
        modules: the names of the modules.
    """
    texts: dict[str, str] = {}
    for thing in _reached(vertices, modules):
        if isinstance(thing, type) and (is_record(thing) or issubclass(thing, State)):
            _resolve(thing)
        for function in functions_of(thing):
            _attach_source(function, texts)


def _reached(vertices: Iterable[Vertex], modules: Collection[str]) -> list[Any]:
    """The functions and classes of these modules that vertices are made of, and all others of these
    modules that have a name in the same module or are global names of such a function."""

    def spaces_of(thing: Any) -> Iterable[dict[str, Any]] | None:
        if thing.__module__ not in modules:
            return None
        return vars(sys.modules[thing.__module__]), *_globals(thing)

    return reached(code_of(vertices), spaces_of)


def _globals(thing: Any) -> Iterator[dict[str, Any]]:
    """What names stand for in the functions of a thing. It is not always what their module has
    now: another version of that may have been imported since."""
    yield from (f.__globals__ for f in functions_of(thing))


def _resolve(cls: type) -> None:
    known = {name: value for names in _globals(cls) for name, value in names.items()}
    with suppress(NameError, TypeError):  # it is refused where it is used
        hints = typing.get_type_hints(cls, localns=known, include_extras=True)
        own = inspect.get_annotations(cls)
        cls.__annotations__ = {name: hints[name] for name in own}


def _attach_source(function: FunctionType, texts: dict[str, str]) -> None:
    """texts: by file, so that a text travels once."""
    file = function.__code__.co_filename
    with suppress(OSError, TypeError):  # it has no source; it can run all the same
        if file not in texts:
            texts[file] = "".join(inspect.findsource(function)[0])
        setattr(function, SOURCE, texts[file])
