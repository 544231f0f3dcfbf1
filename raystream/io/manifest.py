"""What a folder of parts holds: one manifest per range, and their union as an exact tiling.

    counts/
      _manifest-<run>-<lo>-<hi>.json         replaced as a whole at every commit
      Counted/<run>-<after>-<upto>-<lo>-<hi>-<n>.parquet

A part is listed once it is whole; what no manifest lists is not output. The epochs of a part are
those after `after` up to `upto`. Readers that look at the folder alone (Spark, Arrow) leave names
that begin with `_` or `.` aside.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from raystream.errors import InputError, JobError
from raystream.schema.types import KeyRange

FORMAT = 1


class Part(NamedTuple):
    """One file of output: the rows of one record type, of some key groups and epochs."""

    path: Path
    record: str
    """The name of the record class."""
    after: int
    upto: int
    keys: KeyRange
    number: int
    """Parts of the same epochs and keys follow each other."""
    rows: int


@dataclass(frozen=True)
class Manifest:
    """What one instance has committed: all of the key groups `keys` up to the epoch `committed`."""

    run: str
    keys: KeyRange
    committed: int = 0
    ended: bool = False
    parts: tuple[Part, ...] = ()

    def add(self, committed: int, parts: Iterable[Part]) -> Manifest:
        """The manifest after one more commit."""
        return replace(self, committed=committed, parts=(*self.parts, *parts))


def manifest_path(folder: Path, manifest: Manifest) -> Path:
    """Where the manifest of a range is."""
    return folder / f"_manifest-{manifest.run}-{manifest.keys.lo:05d}-{manifest.keys.hi:05d}.json"


def part_path(folder: Path, run: str, part: Part, suffix: str) -> Path:
    """Where a part is: the same part of a run always has the same name."""
    return (
        folder
        / part.record
        / (
            f"{run}-{part.after:09d}-{part.upto:09d}-{part.keys.lo:05d}-"
            f"{part.keys.hi:05d}-{part.number:03d}{suffix}"
        )
    )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest of a range: readers see the old one or the new one."""
    text = json.dumps(
        {
            "format": FORMAT,
            "run": manifest.run,
            "keys": list(manifest.keys),
            "committed": manifest.committed,
            "ended": manifest.ended,
            "parts": [
                [
                    str(p.path.relative_to(folder)),
                    p.record,
                    p.after,
                    p.upto,
                    *p.keys,
                    p.number,
                    p.rows,
                ]
                for p in manifest.parts
            ],
        }
    )
    handle, name = tempfile.mkstemp(prefix=".manifest-", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, manifest_path(folder, manifest))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def read_manifests(folder: Path) -> list[Manifest]:
    """All manifests of a folder, by range.

    Raises:
        InputError: one is damaged or of another format.
    """
    found = (_parse(folder, path) for path in sorted(folder.glob("_manifest-*.json")))
    return [m for m in found if m is not None]


def _parse(folder: Path, path: Path) -> Manifest | None:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise InputError(f"{path} is of format {found['format']}, not {FORMAT}.")
        parts = tuple(
            Part(folder / name, record, after, upto, KeyRange(lo, hi), number, rows)
            for name, record, after, upto, lo, hi, number, rows in found["parts"]
        )
        return Manifest(
            found["run"], KeyRange(*found["keys"]), found["committed"], found["ended"], parts
        )
    except FileNotFoundError:
        return None  # discarded meanwhile, for a later run
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def merge(
    folder: Path, manifests: Sequence[Manifest], key_groups: int, *, partial: bool
) -> list[Part]:
    """The parts of all manifests, by (epochs, range), once they are known to tile.

    Args:
        key_groups: how many the flow has.
        partial: take what all ranges have committed, although the job has not ended.

    Raises:
        InputError: there is no output, or of several runs.
        JobError: a range is missing, is there twice or has not ended.
    """
    if not manifests:
        raise InputError(f"{folder} holds no output of a sink: no _manifest-*.json is in it.")
    runs = sorted({m.run for m in manifests})
    if len(runs) > 1:
        raise InputError(
            f"{folder} holds output of several runs: {', '.join(runs)}.",
            hint="Give each run its own folder.",
        )
    parts = [p for m in manifests for p in m.parts]
    committed = _whole_upto(min(m.committed for m in manifests), parts)
    if not partial and not all(m.ended for m in manifests):
        raise JobError(
            f"The job that wrote {folder} has not ended: its output is whole up to epoch"
            f" {committed}.",
            hint="Wait for it, or ask for what there is: partial=True.",
        )
    _check_tiling(folder, [m.keys for m in manifests], key_groups)
    return sorted(
        (p for p in parts if p.upto <= committed),
        key=lambda p: (p.after, p.upto, p.keys, p.number, p.record),
    )


def _whole_upto(epoch: int, parts: Sequence[Part]) -> int:
    """The last epoch up to `epoch` at which no part goes on: ranges need not commit in step."""
    while straddling := [p.after for p in parts if p.after < epoch < p.upto]:
        epoch = min(straddling)
    return epoch


def _check_tiling(folder: Path, ranges: Sequence[KeyRange], key_groups: int) -> None:
    bounds = [KeyRange(0, 0), *sorted(ranges), KeyRange(key_groups, key_groups)]
    for a, b in pairwise(bounds):
        if a.hi < b.lo:
            raise JobError(
                f"{folder} lacks the output of the key groups {KeyRange(a.hi, b.lo)}.",
                hint="Was it written on another machine? A flow with a number of key"
                f" groups other than {key_groups}: say key_groups=.",
            )
        if a.hi > b.lo:
            twice = KeyRange(b.lo, min(a.hi, b.hi))
            raise JobError(
                f"{folder} has the output of the key groups {twice} twice.",
                hint="Give each job its own folder.",
            )
