"""The answers folder of a run: what may be in it, what is made and removed.

It holds what `lrb.oracle.answers` describes, the prepared input (`data/`) if the run began
with a published file, and while a run lasts the parts of its sink.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from pathlib import Path

from lrb.oracle.answers import KINDS, LATENCY_FILE, RUN_FILE
from raystream.errors import ConfigError

PREPARED = "data"
PARTS = "parts"
RATE_FILE = "rate.json"
_RESULTS = {RUN_FILE, RATE_FILE, LATENCY_FILE, *(kind.file for kind in KINDS)}
_REPORTS = {".html", ".png"}
_RUN_DIGITS = 12
"""Of the name of a run's folder below that of the parts."""


def make(out: Path) -> None:
    """Make an answers folder. Earlier answers in it stay until there are new ones.

    Raises ConfigError if it cannot be written to, or holds other things.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(out)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise unwritable(out, error) from None


def new_parts(out: Path) -> Path:
    """Make an answers folder, as `make` does, and in it a folder for the parts of a run's sink.

    Parts that a run has left behind, which was killed, are removed.
    """
    make(out)  # first: what it refuses may hold a folder of this name, which is not ours
    shutil.rmtree(out / PARTS, ignore_errors=True)
    parts = out / PARTS / uuid.uuid4().hex[:_RUN_DIGITS]
    try:
        parts.mkdir(parents=True)
    except OSError as error:
        raise unwritable(out, error) from None
    return parts


def remove_parts(parts: Path) -> None:
    """Remove what a run's sink wrote; it is in the answers, or of no use."""
    shutil.rmtree(parts.parent, ignore_errors=True)


def remove_answers(out: Path) -> None:
    """Remove earlier answers; what says that they are whole goes first."""
    for name in (RUN_FILE, *sorted(_RESULTS - {RUN_FILE})):
        (out / name).unlink(missing_ok=True)


def unwritable(out: Path, error: OSError) -> ConfigError:
    """What to say when the system refuses to write to an answers folder."""
    return ConfigError(
        f"{out} cannot be written to: {error.strerror}", hint="Name another folder with --out."
    )


def _refuse_foreign(out: Path) -> None:
    ours = _RESULTS | {PREPARED, PARTS}
    foreign = sorted(
        p.name for p in out.iterdir() if p.name not in ours and p.suffix not in _REPORTS
    )
    if (out / PARTS).is_dir():
        foreign += sorted(f"{PARTS}/{p.name}" for p in (out / PARTS).iterdir() if not _is_run(p))
    if foreign:
        raise ConfigError(
            f"{out} is not empty, and {foreign[0]} in it is no answer of an earlier run",
            hint="Name an empty folder, a new one, or one with the answers of an earlier run.",
        )


def _is_run(path: Path) -> bool:
    """Whether a run's sink has this folder for its parts."""
    return re.fullmatch(rf"[0-9a-f]{{{_RUN_DIGITS}}}", path.name) is not None
