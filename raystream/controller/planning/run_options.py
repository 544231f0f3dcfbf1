"""Checks the types of the options of `run`: a wrong one is refused with the user's line."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Any, get_args
from urllib.parse import urlsplit

import numpy as np

from raystream.controller.protocol.strategies import RecoveryMode
from raystream.errors import ConfigError
from raystream.schema.lengths import seconds_of
from raystream.schema.records import caller

RECOVERIES = get_args(RecoveryMode)
_COUNTS = ("checkpoint_every", "copies", "spares", "restore_into")
"""Options that are whole numbers; those with the default None may be None."""


_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


def check_run_options(given: Mapping[str, Any]) -> float:
    """Check the types of the options of `run`, by name. Returns the seconds between checkpoints.

    Raises:
        ConfigError: an option is of a wrong type.
    """
    for name in _COUNTS:
        value = given[name]
        if not whole_number(value) and not (value is None and name == "checkpoint_every"):
            raise _wrong(name, value, "a whole number")
    for name in ("instances", "rows"):
        check_by_operator(name, given[name], whole_number, "a whole number for each operator")
    check_by_operator("bounds", given["bounds"], _pair, "(least, most) for each operator")
    if not whole_number(given["keep"]) or given["keep"] < 2:
        raise _wrong("keep", given["keep"], "a whole number, at least 2")
    if not isinstance(given["cluster"], str | None):
        raise _wrong("cluster", given["cluster"], "text")
    if not isinstance(given["durable"], str | os.PathLike | None):
        raise _wrong("durable", given["durable"], "a path or URL")
    if not isinstance(given["state_folder"], str | os.PathLike | None):
        raise _wrong("state_folder", given["state_folder"], "a path")
    if not isinstance(given["tls"], str | os.PathLike | None):
        raise _wrong("tls", given["tls"], 'the path of a folder, or "made"')
    if given["traces"] is not None and not _is_address(given["traces"]):
        raise _wrong("traces", given["traces"], "the address of a collector, http://HOST:PORT")
    if not isinstance(given["recovery"], str) or given["recovery"] not in RECOVERIES:
        raise _wrong("recovery", given["recovery"], f"one of {', '.join(RECOVERIES)}")
    for name in ("on_progress", "on_note"):
        if given[name] is not None and not callable(given[name]):
            raise _wrong(name, given[name], "a function")
    check_by_operator("rename", given["rename"], _text, "its name now for each old name")
    drop = given["drop"]
    if isinstance(drop, str) or not isinstance(drop, Collection) or not all(map(_text, drop)):
        raise _wrong("drop", drop, "a list of names of operators")
    for name in ("check", "ui", "together"):
        if not isinstance(given[name], bool):
            raise _wrong(name, given[name], "True or False")
    for name in ("resume", "values"):
        if not isinstance(given[name], bool | None):
            raise _wrong(name, given[name], "True, False or None")
    return seconds_of(
        "", "checkpoint_seconds", given["checkpoint_seconds"], zero=True, error=ConfigError
    )


def bytes_of(name: str, value: Any) -> int:
    """A size in bytes, above 0: a number, or text such as "512MB" or "4GiB".

    Args:
        name: the option of `run`.

    Raises:
        ConfigError: it is no size.
    """
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found:
        number, power, binary = found.groups()
        size = int(Fraction(number) * (1024 if binary else 1000) ** _POWERS.get(power.lower(), 0))
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        size = 0
    if size <= 0:
        raise ConfigError(
            f"run({name}={value!r:.80}): it is no size above 0",
            where=caller()[0],
            hint='Write a number of bytes, or text such as "512MB" or "4GiB".',
        )
    return size


def check_by_operator(name: str, value: Any, fits: Any, wanted: str) -> None:
    """Refuse an option that is no value for each of some operators."""
    if value is None:
        return
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise _wrong(name, value, f"a dict by names of operators, {wanted}")
    for operator, one in value.items():
        if not fits(one):
            raise _wrong(f"{name}[{operator!r}]", one, wanted)


def _is_address(value: Any) -> bool:
    parts = urlsplit(value) if isinstance(value, str) else None
    return parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def whole_number(value: Any) -> bool:
    """Whether a value is an integer."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(map(whole_number, value))


def _wrong(name: str, value: Any, wanted: str) -> ConfigError:
    return ConfigError(f"run({name}={value!r:.80}): it is {wanted}", where=caller()[0])
