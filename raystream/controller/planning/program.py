"""The fingerprint of a program: does a run that goes on from a checkpoint do the same again?

It covers the graph, the shapes of records and state, the clock, the splits, and the text of the
user's modules that the flow uses, with those that they import. It does not cover settings that come
from elsewhere, such as the environment, nor installed packages.
"""

from __future__ import annotations

import hashlib
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from raystream.api.connectors import as_given
from raystream.controller.protocol.saving import layout_of
from raystream.dataflow.plan import Plan, Vertex

_INSTALLED = ("site-packages", "dist-packages")
_STANDARD = Path(types.__file__).parent


def program_of(plan: Plan) -> str:
    """The fingerprint of a plan and of the code behind it: 16 hexadecimal digits."""
    layout = layout_of(plan)
    clock = None if plan.clock is None else (plan.clock.origin, plan.clock.seconds)
    parts = [
        repr((layout.groups, layout.ticks, sorted(layout.shapes.items()), layout.edges)),
        repr((clock, sorted(plan.splits.items()))),
        *_texts(modules_of(plan.vertices)),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _objects(vertices: Iterable[Vertex]) -> list[Any]:
    """The objects of the user that a flow is made of: operators, types of records, sources."""
    found: list[Any] = []
    for v in vertices:
        found += [schema.cls for schema in v.schemas]
        found += [port.schema.cls for port in v.ports]
        found += [f.spec.target for f in v.fused]
        found += [] if v.spec is None else [v.spec.target]
        found += [] if v.source is None else [as_given(v.source)]
    return found


def modules_of(vertices: Iterable[Vertex]) -> dict[str, types.ModuleType]:
    """The user's modules that define what vertices are made of, and those of the user's that they
    import."""
    found: dict[str, types.ModuleType] = {}
    names = [_home(o) for o in _objects(vertices)]
    while names:
        name = names.pop()
        module = sys.modules.get(name)
        if module is None or name in found or not is_users(module):
            continue
        found[name] = module
        names += [home for value in list(vars(module).values()) if (home := _home(value))]
    return found


def _home(value: Any) -> str:
    """The name of the module that a value is or comes from; empty if it does not say."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if not isinstance(value, type | types.FunctionType):
        value = type(value)
    home = value.__module__
    return home if isinstance(home, str) else ""


def is_users(module: types.ModuleType) -> bool:
    """Whether a module is neither installed nor raystream's own nor Python's."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.partition(".")[0] == "raystream":
        return False
    path = Path(file)
    return not (set(_INSTALLED) & set(path.parts) or path.is_relative_to(_STANDARD))


def _texts(modules: dict[str, types.ModuleType]) -> list[str]:
    """The text of modules, in the order of their names."""
    found = []
    for name in sorted(modules):
        try:
            found.append(f"{name} {Path(modules[name].__file__ or '').read_text('utf-8')}")
        except (OSError, UnicodeDecodeError):
            found.append(name)  # what cannot be read is known by its name
    return found
