"""What the options of the commands mean; what cannot be meant is refused before work begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

from raystream.errors import ConfigError
from raystream.submitted import submitted

INSTANCES_MAX = 256
"""As many as a flow has key groups."""


def speed(text: str) -> float | None:
    """Simulated seconds per second; None for `max`."""
    if text == "max":
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (isfinite(value) and value > 0):
        raise ConfigError(
            f"--speed {text} is no speed", hint="A number above 0, 1 being real time, or max."
        )
    return value


def instances(text: str) -> dict[str, int]:
    """Instances per operator, of `vehicles=2,segments=3`."""
    from lrb.query.flow import OPERATORS

    counts: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        digits = number.isascii() and number.isdigit()
        if not (name and equals and digits and int(number)):
            raise ConfigError(
                f"--instances {text}: {part!r} is not NAME=NUMBER",
                hint="For example: --instances vehicles=2,segments=2,accounts=2",
            )
        if name not in OPERATORS:
            raise ConfigError(
                f"--instances {text}: there is no operator {name!r}",
                hint=f"There are {', '.join(OPERATORS)}.",
            )
        if name in counts:
            raise ConfigError(f"--instances {text}: {name} is given twice")
        if int(number) > INSTANCES_MAX:
            raise ConfigError(f"--instances {text}: at most {INSTANCES_MAX}, the key groups")
        counts[name] = int(number)
    return counts


def absolute(path: Path, option: str) -> Path:
    """The path from the root.

    Raises ConfigError for a relative one inside of a submitted Ray job: its entrypoint runs in an
    unpacked copy of the working directory, so that data would be looked for, and lost, in there.
    """
    if submitted() and not path.is_absolute():
        raise ConfigError(
            f"{option} {path} is relative, and this job runs in a copy of the directory that it was"
            " submitted from",
            hint=f'Give the whole path: {option} "$PWD/{path}"',
        )
    return path.absolute()


@contextmanager
def spark_needed() -> Iterator[None]:
    """Around imports of what needs Spark.

    Raises ConfigError if it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "py4j", "pandas"):
            raise
        raise ConfigError(
            f"this needs Spark, and {error.name} is not installed",
            hint="pip install 'raystream[spark]'",
        ) from None
