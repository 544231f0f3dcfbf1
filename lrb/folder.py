"""The answers folder of a run: what may be in it, what is made and removed.

It holds what `lrb.answers` describes, the prepared input (`data/`) if the run began
with a published file, and while a run lasts the parts of its sink.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from lrb.answers import KINDS, LATENCY_FILE, RUN_FILE
from raystream.errors import ConfigError

PREPARED = "data"
PARTS = "parts"
RATE_FILE = "rate.json"
_RESULTS = {RUN_FILE, RATE_FILE, LATENCY_FILE, *(kind.file for kind in KINDS)}
_REPORTS = {".html", ".png"}


def make(out: Path) -> None:
    """Make an answers folder. Earlier answers in it stay until there are new ones.

    Raises ConfigError if it cannot be written to, or holds other things.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(out)
        (out / PARTS).mkdir(exist_ok=True)
        (out / PARTS).rmdir()
    except OSError as error:
        raise _unwritable(out, error) from None


def new_parts(out: Path) -> Path:
    """Make an answers folder, as `make` does, and in it a folder for the parts of a run's sink."""
    shutil.rmtree(out / PARTS, ignore_errors=True)
    make(out)
    parts = out / PARTS / uuid.uuid4().hex[:12]
    try:
        parts.mkdir(parents=True)
    except OSError as error:
        raise _unwritable(out, error) from None
    return parts


def remove_parts(parts: Path) -> None:
    """Remove what a run's sink wrote; it is in the answers, or of no use."""
    shutil.rmtree(parts.parent, ignore_errors=True)


def remove_answers(out: Path) -> None:
    """Remove earlier answers; what says that they are whole goes first."""
    for name in (RUN_FILE, *sorted(_RESULTS - {RUN_FILE})):
        (out / name).unlink(missing_ok=True)


def _unwritable(out: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{out} cannot be written to: {error.strerror}", hint="Name another folder with --out."
    )


def _refuse_foreign(out: Path) -> None:
    ours = _RESULTS | {PREPARED, PARTS}
    foreign = sorted(
        p.name for p in out.iterdir() if p.name not in ours and p.suffix not in _REPORTS
    )
    if foreign:
        raise ConfigError(
            f"{out} is not empty, and {foreign[0]} in it is no answer of an earlier run",
            hint="Name an empty folder, a new one, or one with the answers of an earlier run.",
        )
