"""What the options of the command stand for: a flow in a module, numbers by operator."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from raystream.api.flow import Flow
from raystream.controller.elastic.policy import CpuThreshold, Policy, RateBased
from raystream.errors import (
    ConfigError,
    GraphError,
    RaystreamError,
    Where,
    user_frame,
    user_traceback,
    what_was_raised,
)
from raystream.schema.records import where_is

POLICIES: dict[str, type[CpuThreshold] | type[RateBased]] = {"cpu": CpuThreshold, "rate": RateBased}
"""The policies by the names that the command has for them."""

_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def load_flow(target: str, folder: str = "") -> Flow:
    """The flow that `module:name` stands for; a function of that name is called.

    Args:
        folder: see `imported_from`. Unless given, the module is looked for in the current folder
            and among what is installed.

    Raises:
        ConfigError: there is no such module, name or folder.
        GraphError: the name is not that of a flow, or its import or its call raised an error.
    """
    module_name, _, name = target.partition(":")
    is_file = module_name.endswith(".py") or os.sep in module_name
    dotted = module_name.removesuffix(".py").strip("./").replace(os.sep, ".") or "module"
    if not (module_name and name):
        raise ConfigError(
            f"{target!r} does not name a flow",
            hint=f"Write {dotted}:NAME, where NAME is an rs.Flow of that module, or a function that"
            " returns one.",
        )
    if is_file:
        raise ConfigError(
            f"{module_name!r} is a file, not a module", hint=f"Write {dotted}:{name}."
        )
    if module_name.startswith("."):
        raise ConfigError(
            f"{module_name!r} is a relative name", hint=f"Write {dotted}:{name}, from its folder."
        )
    if folder:
        with imported_from(folder):
            return _found(target, module_name, name, folder)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return _found(target, module_name, name, os.getcwd())


def _found(target: str, module_name: str, name: str, folder: str) -> Flow:
    module = _import(module_name, folder)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"module {module_name!r} has no {name!r}", hint=_flows_of(module))
        found = getattr(found, part)
    flow = _flow(target, found, _flows_of(module))
    flow.code = target
    return flow


@contextmanager
def imported_from(folder: str) -> Iterator[None]:
    """A context in which the user's modules are looked for in this folder first, and imported again
    even if modules of the same names were imported before. Those are restored at its end. So a
    process can have two versions of a program.

    Raises:
        ConfigError: there is no such folder.
    """
    if not os.path.isdir(folder):
        raise ConfigError(f"there is no folder {folder}")
    from raystream.controller.planning.program import is_users

    path, cwd = list(sys.path), os.getcwd()
    others = {name: m for name, m in sys.modules.items() if name != "__main__" and is_users(m)}
    for name in others:
        del sys.modules[name]
    sys.path[:] = [os.path.abspath(folder), *(p for p in path if p not in ("", cwd))]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = path
        sys.modules.update(others)


def _flows_of(module: Any) -> str:
    flows = [n for n, v in vars(module).items() if isinstance(v, Flow) or _makes_flow(module, v)]
    return f"Its flows: {', '.join(flows)}." if flows else "It has no rs.Flow."


def _makes_flow(module: Any, found: Any) -> bool:
    """Whether it is a function of this module that by its annotation makes a flow of nothing."""
    if not inspect.isfunction(found) or found.__module__ != module.__name__:
        return False
    given = inspect.signature(found)
    needed = [p for p in given.parameters.values() if p.default is p.empty and p.kind not in _STARS]
    text = given.return_annotation  # a text with `from __future__ import annotations`
    return not needed and (text is Flow or str(text).strip("'\"").rpartition(".")[2] == "Flow")


def _import(name: str, folder: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise _raised(f"importing {name}", error) from error
        raise ConfigError(
            f"there is no module {name!r}",
            hint=f"It was looked for in {os.path.abspath(folder)} and among what is installed.",
        ) from None
    except RaystreamError:
        raise
    except (Exception, SystemExit) as error:
        raise _raised(f"importing {name}", error) from error


def _flow(target: str, found: Any, flows: str) -> Flow:
    made = callable(found) and not isinstance(found, type) and not hasattr(found, "__raystream__")
    making = found
    if made:
        try:
            found = found()
        except RaystreamError:
            raise
        except (Exception, SystemExit) as error:
            raise _raised(f"calling {target}", error) from error
    if made and found is None:
        raise GraphError(
            f"{target} returned nothing",
            where=where_is(making),
            hint="A function that makes a flow ends with `return flow`.",
        )
    if not isinstance(found, Flow):
        what = "returned" if made else "is"
        raise GraphError(f"{target} {what} a {type(found).__name__}, not an rs.Flow", hint=flows)
    return found


def _raised(doing: str, error: BaseException) -> GraphError:
    """The error to report when code of the user raised one before there was a flow."""
    where = user_frame(error)
    if isinstance(error, SyntaxError) and error.filename:
        where = Where(error.filename, error.lineno or 0, (error.text or "").strip())
    wrapped = GraphError(f"{doing} raised {what_was_raised(error)}", where=where)
    if told := user_traceback(error):
        wrapped.add_note(told)
    return wrapped


def parse_bounds(text: str) -> dict[str, tuple[int, int]]:
    """`"a=1-4,b=2-2"` as {"a": (1, 4), "b": (2, 2)}.

    Raises:
        ConfigError: it is not of that form.
    """
    return {
        name: (int(least), int(most))
        for name, (least, most) in _by_name(text, _BOUNDS, "LEAST-MOST", "count=1-4,join=2-8")
    }


def policy_of(name: str | None) -> Policy | Literal["auto"] | None:
    """The policy that the option stands for.

    Raises:
        ConfigError: there is none of that name.
    """
    if name is None:
        return "auto"
    if name == "none":
        return None
    if name not in POLICIES:
        known = ", ".join([*POLICIES, "none"])
        raise ConfigError(f"there is no policy {name!r}", hint=f"There are {known}.")
    return POLICIES[name]()


def cluster_of(local: bool, address: str | None) -> str | None:
    """Where a run with these options is; None for this process.

    Raises:
        ConfigError: they exclude each other.
    """
    if local and address is not None:
        raise ConfigError("--local and --address exclude each other")
    return None if local else address or "auto"


def parse_numbers(text: str) -> dict[str, int]:
    """`"a=2,b=3"` as {"a": 2, "b": 3}.

    Raises:
        ConfigError: it is not of that form.
    """
    return {name: int(n) for name, (n,) in _by_name(text, _NUMBER, "N", "count=2,join=3")}


def parse_renames(text: str) -> dict[str, str]:
    """`"count=tally,out=files"` as {"count": "tally", "out": "files"}.

    Raises:
        ConfigError: it is not of that form.
    """
    return {name: new for name, (new,) in _by_name(text, _ANY, "NEW", "count=tally,out=files")}


def parse_drops(text: str) -> list[str]:
    """`"count,out"` as ["count", "out"]."""
    return [name for part in text.split(",") if (name := part.strip())]


_NUMBER = re.compile(r"(\d+)", re.ASCII)
_ANY = re.compile(r"(.+)")
_BOUNDS = re.compile(r"(\d+)\s*-\s*(\d+)", re.ASCII)


def _by_name(
    text: str, form: re.Pattern[str], shown: str, example: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The groups of what follows each `NAME=`, each name once."""
    seen: set[str] = set()
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = (p.strip() for p in part.partition("="))
        matched = form.fullmatch(value)
        if not (name and matched):
            raise ConfigError(
                f"{part!r} is not of the form NAME={shown}", hint=f"For example {example}."
            )
        if name in seen:
            raise ConfigError(f"{name!r} is named twice")
        seen.add(name)
        yield name, matched.groups()
