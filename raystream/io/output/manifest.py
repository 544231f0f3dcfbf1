"""What a folder of parts holds: one manifest per range, and their union as an exact tiling.

    counts/
      _manifest-<run>-<lo>-<hi>-<g>.json     replaced as a whole at every commit
      _list-<run>-<lo>-<hi>-<n>.json         parts that the manifest does not list itself
      Counted/<run>-<after>-<upto>-<lo>-<hi>-<n>.parquet

A new instance that replaces another one has a greater generation g and a manifest of its own,
which continues that of the other. Of one range and run the greatest generation counts, so an
instance that was thought dead does no harm with what it still writes. A job in one process has no
generations.

A part is listed once it is whole; a file that no manifest lists is not output. A job that runs for
weeks makes many parts. The manifest lists the newest, and names the lists of earlier ones, which
never change; so the work of a commit does not grow. The epochs of a part are those after `after` up
to `upto`. Readers that look at the folder alone (Spark, Arrow) ignore names that begin with `_` or
`.`.

A run that goes on from a saved checkpoint of another run takes over the parts up to that
checkpoint. Each part keeps its name and is listed by the range into which its first key group
falls. Until all ranges have done so, the manifests of the older run count; then they are removed.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from raystream.errors import InputError, InternalError, JobError, OutputError
from raystream.io.buckets.filesystems import BucketError
from raystream.io.buckets.paths import AnyPlace
from raystream.io.output.places import put
from raystream.schema.types import KeyRange

FORMAT = 5
READ = (3, 4, 5)
"""The formats that can be read. The third has no lists, and only the fifth generations."""
LIST_PARTS = 1000
"""How many parts a list has."""
_NAME = re.compile(r"_manifest-(.+)-(\d{5})-(\d{5})(?:-(\d{6,}))?\.json")


class PartFile(NamedTuple):
    """One file of output: the rows of one record type, of some key groups and epochs."""

    path: AnyPlace
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
    """What one instance has made: all parts of the key groups `keys` up to the epoch `committed`.

    `generation` and `number` are those of `SinkContext`.
    """

    run: str
    keys: KeyRange
    committed: int = 0
    shown: int = 0
    """The epoch up to which readers may rely on the parts. Later parts may be lost with the
    cluster; they are then made again, and their rows may be cut into other epochs."""
    ended: bool = False
    parts: tuple[PartFile, ...] = ()
    older: Mapping[str, int] = field(default_factory=dict)
    """The runs that it replaces, and up to which epoch it lists what each of them wrote."""
    lists: tuple[str, ...] = ()
    """Files that list the first parts, `LIST_PARTS` each. In a manifest that was read `parts` has
    these parts too; in the instance that writes it they are in the lists alone."""
    generation: int = 0
    number: int = 0
    lasting: bool = field(default=False, compare=False)
    """Whether what is written has to outlive the power. It is not stored."""

    def add(self, committed: int, parts: Iterable[PartFile]) -> Manifest:
        """The manifest after one more commit."""
        return replace(self, committed=committed, parts=(*self.parts, *parts))

    def upto(self, run: str) -> int:
        """The epoch up to which it lists all that a run wrote of its key groups, and that alone."""
        return self.committed if run == self.run else self.older.get(run, 0)


def span(keys: KeyRange) -> str:
    """A range as a part of names."""
    return f"{keys.lo:05d}-{keys.hi:05d}"


def manifest_path(folder: AnyPlace, manifest: Manifest) -> AnyPlace:
    """Where the manifest of a range is."""
    generation = f"-{manifest.generation:06d}" if manifest.generation else ""
    return folder / f"{_stem(manifest)}{generation}.json"


def _stem(manifest: Manifest) -> str:
    """How the names of the manifests of a range begin."""
    return f"_manifest-{manifest.run}-{span(manifest.keys)}"


def part_path(folder: AnyPlace, run: str, part: PartFile, suffix: str) -> AnyPlace:
    """Where a part is: the same part of a run always has the same name."""
    return (
        folder
        / part.record
        / (f"{run}-{part.after:09d}-{part.upto:09d}-{span(part.keys)}-{part.number:03d}{suffix}")
    )


def write_manifest(folder: AnyPlace, manifest: Manifest) -> None:
    """Replace the manifest of a range: readers see the old one or the new one. One that is to
    outlive the power is on the disk on return."""
    text = json.dumps(
        {
            "format": FORMAT,
            "run": manifest.run,
            "keys": list(manifest.keys),
            "committed": manifest.committed,
            "shown": manifest.shown,
            "ended": manifest.ended,
            "generation": manifest.generation,
            "number": manifest.number,
            "older": manifest.older,
            "lists": manifest.lists,
            "parts": _rows(folder, manifest.parts),
        }
    )
    _put(manifest_path(folder, manifest), text, lasting=manifest.lasting)


def listed(folder: AnyPlace, manifest: Manifest) -> Manifest:
    """The manifest as its instance writes it: all but the newest parts go to lists, which are
    written if they are not there yet."""
    parts = manifest.parts[len(manifest.lists) * LIST_PARTS :]
    return _in_lists(folder, replace(manifest, parts=parts))


def add(
    folder: AnyPlace, manifest: Manifest, committed: int, parts: Iterable[PartFile]
) -> Manifest:
    """What is to be written after one more commit."""
    return _in_lists(folder, manifest.add(committed, parts))


def _in_lists(folder: AnyPlace, manifest: Manifest) -> Manifest:
    parts, lists = manifest.parts, manifest.lists
    while len(parts) > LIST_PARTS:
        text = json.dumps({"parts": _rows(folder, parts[:LIST_PARTS])})
        name = f"{_lists(manifest)}{len(lists):06d}-{zlib.crc32(text.encode()):08x}.json"
        _put(folder / name, text, lasting=manifest.lasting)
        parts, lists = parts[LIST_PARTS:], (*lists, name)
    return replace(manifest, parts=parts, lists=lists)


def _lists(manifest: Manifest) -> str:
    """How the names of its lists begin."""
    return f"_list-{manifest.run}-{span(manifest.keys)}-"


def _rows(folder: AnyPlace, parts: Iterable[PartFile]) -> list[list[Any]]:
    within = f"{folder}{os.sep}"  # `relative_to` takes ten times as long, at every checkpoint
    return [
        [str(p.path).removeprefix(within), p.record, p.after, p.upto, *p.keys, p.number, p.rows]
        for p in parts
    ]


def _put(path: AnyPlace, text: str, *, lasting: bool) -> None:
    """Replace a file."""
    put(path, text, _temporary(path), lasting=lasting)


def half_written(folder: AnyPlace, mine: Manifest, gone: Iterable[Manifest]) -> list[AnyPlace]:
    """What died amid the writing of these manifests, and all lists of those that are gone."""
    lists = [_lists(m) for m in (mine, *gone)]
    names = [_stem(m) for m in (mine, *gone)] + lists
    begins = (*lists, *(f".{name}" for name in names))
    found = [p for p in folder.iterdir() if p.name.startswith(begins)]
    return [p for p in found if p.name not in mine.lists]


def _temporary(path: AnyPlace) -> str:
    """How the name begins of what is to become a manifest."""
    return f".{path.name}-"


def read_manifests(folder: AnyPlace) -> list[Manifest]:
    """The manifests that count of a folder, by range. Where one is gone before it is read there is
    another in its place, whose name was not found yet: then all are read again.

    Raises:
        InputError: one is damaged or of another format.
    """
    before: list[AnyPlace] = []
    while True:
        paths = _manifests_in(folder)
        found = [m for path in paths if (m := _parse(folder, path)) is not None]
        if len(found) == len(paths) or paths == before:
            return newest(found)
        before = paths


def _manifests_in(folder: AnyPlace) -> list[AnyPlace]:
    found: list[AnyPlace] = [*folder.glob("_manifest-*.json")]
    return sorted(found, key=str)


def newest(manifests: Iterable[Manifest]) -> list[Manifest]:
    """The manifest of the greatest generation for each range and run."""
    found: dict[tuple[str, KeyRange], Manifest] = {}
    for m in sorted(manifests, key=lambda m: m.generation):
        found[m.run, m.keys] = m
    return sorted(found.values(), key=lambda m: (m.run, m.keys))


def left_behind(folder: AnyPlace) -> list[Manifest]:
    """All manifests of a folder; of one that cannot be read, what its name says."""
    found = []
    for path in _manifests_in(folder):
        name = _NAME.fullmatch(path.name)
        try:
            found.append(_parse(folder, path))
        except InputError:
            if name is not None:
                keys = KeyRange(int(name[2]), int(name[3]))
                found.append(Manifest(name[1], keys, generation=int(name[4] or 0)))
    return [m for m in found if m is not None]


def _parse(folder: AnyPlace, path: AnyPlace) -> Manifest | None:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] not in READ:
            raise InputError(
                f"{path} is of format {found['format']}, not {FORMAT}.",
                hint="Use the version of raystream that wrote it, or begin at the beginning.",
            )
        lists = tuple(found.get("lists", ()))
        before = [json.loads((folder / name).read_text(encoding="utf-8")) for name in lists]
        parts = tuple(
            PartFile(folder / name, record, after, upto, KeyRange(lo, hi), number, rows)
            for some in (*before, found)
            for name, record, after, upto, lo, hi, number, rows in some["parts"]
        )
        return Manifest(
            found["run"],
            KeyRange(*found["keys"]),
            found["committed"],
            found["shown"],
            found["ended"],
            parts,
            dict(found["older"]),
            lists,
            found.get("generation", 0),
            found.get("number", 0),
        )
    except FileNotFoundError as error:
        if not path.exists():
            return None  # discarded meanwhile, for a later one
        raise InputError(
            f"{path} names {error.filename}, which is not there.",
            hint="What it listed is not known any more: begin at the beginning (--fresh).",
        ) from None
    except BucketError:
        raise  # the network, rather than the manifest
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is damaged: {type(error).__name__}: {error}",
            hint="What it listed is not known any more: begin at the beginning (--fresh), which"
            " removes it.",
        ) from error


def take_over(
    folder: AnyPlace,
    manifests: Sequence[Manifest],
    run: str,
    keys: KeyRange,
    before: str,
    checkpoint: int,
) -> Manifest:
    """The first manifest of a range in a run that goes on from a checkpoint of the run `before`.

    Args:
        manifests: those of the folder. If a run that went on from this checkpoint or a later one
            has replaced those of `before`, its manifests hold what is needed.

    Raises:
        OutputError: not all output of these key groups up to the checkpoint is there.
    """
    holders = [m for m in manifests if m.run != run and before and m.upto(before) >= checkpoint]
    for missing in _gaps([m.keys for m in holders], keys):
        raise lacks(folder, missing, checkpoint)
    parts = {
        p.path: p
        for m in holders
        for p in m.parts
        if p.after < checkpoint and keys.lo <= p.keys.lo < keys.hi
    }
    for part in parts.values():
        if part.upto > checkpoint:
            raise InternalError(f"{part.path} goes beyond the checkpoint {checkpoint}")
        if not part.path.is_file():
            raise lacks(folder, part.keys, checkpoint)
    older = {
        name: max((min(m.upto(name), checkpoint) for m in holders), default=0)
        for other in manifests
        for name in (*other.older, other.run)
        if name != run
    }
    taken = tuple(sorted(parts.values(), key=_order))
    return Manifest(run, keys, checkpoint, checkpoint, parts=taken, older=older)


def lacks(folder: AnyPlace, keys: KeyRange, checkpoint: int) -> OutputError:
    """The error of a sink that cannot go on from a checkpoint."""
    return OutputError(
        f"{folder} lacks output of the key groups {keys} up to epoch {checkpoint}, from"
        " which the job goes on.",
        hint="Go on with the folder that was written before, or begin at the beginning.",
    )


def superseded(manifests: Sequence[Manifest], run: str) -> list[Manifest]:
    """The manifests of other runs, once those of this run cover all their key groups."""
    mine = [m.keys for m in manifests if m.run == run]
    others = [m for m in manifests if m.run != run]
    return [] if any(_gaps(mine, m.keys) for m in others) else others


def _gaps(ranges: Iterable[KeyRange], within: KeyRange) -> list[KeyRange]:
    """The key groups of `within` that are in none of the ranges."""
    gaps, at = [], within.lo
    for keys in sorted(ranges):
        if at < min(keys.lo, within.hi):
            gaps.append(KeyRange(at, min(keys.lo, within.hi)))
        at = max(at, keys.hi)
    return [*gaps, KeyRange(at, within.hi)] if at < within.hi else gaps


def _order(part: PartFile) -> Any:
    return part.after, part.upto, part.keys, part.number, part.record


def _current(manifests: Sequence[Manifest], key_groups: int) -> list[Manifest]:
    """Without runs that were taken over, and without those that have not taken all over yet."""
    by_run: dict[str, list[Manifest]] = defaultdict(list)
    for manifest in manifests:
        by_run[manifest.run].append(manifest)
    older = {run: {name for m in ms for name in m.older} for run, ms in by_run.items()}
    everything = KeyRange(0, key_groups)
    whole = {run for run, ms in by_run.items() if not _gaps([m.keys for m in ms], everything)}
    over = {name for run in whole for name in older[run]}
    early = {run for run in by_run if run not in whole and older[run] & set(by_run)}
    return [m for m in manifests if m.run not in over | early]


def merge(
    folder: AnyPlace, manifests: Sequence[Manifest], key_groups: int, *, partial: bool
) -> list[PartFile]:
    """The parts of all manifests, by (epochs, range), once they are known to tile.

    Args:
        key_groups: how many the flow has.
        partial: take what all ranges show, although the job has not ended.

    Raises:
        InputError: there is no output, or of several runs.
        JobError: a range is missing, is there twice or has not ended.
    """
    if not manifests:
        raise InputError(f"{folder} holds no output of a sink: no _manifest-*.json is in it.")
    manifests = _current(manifests, key_groups)
    runs = sorted({m.run for m in manifests})
    if len(runs) > 1:
        raise InputError(
            f"{folder} holds output of several runs: {', '.join(runs)}.",
            hint="Give each run its own folder.",
        )
    parts = [p for m in manifests for p in m.parts]
    shown = _whole_upto(min(m.shown for m in manifests), parts)
    if not partial and not all(m.ended for m in manifests):
        raise JobError(
            f"The job that wrote {folder} has not ended: its output is whole up to epoch {shown}.",
            hint="Wait for it, or ask for what there is: partial=True.",
        )
    _check_tiling(folder, [m.keys for m in manifests], key_groups)
    return sorted((p for p in parts if p.upto <= shown), key=_order)


def _whole_upto(epoch: int, parts: Sequence[PartFile]) -> int:
    """The last epoch up to `epoch` at which no part goes on: ranges need not commit in step."""
    while straddling := [p.after for p in parts if p.after < epoch < p.upto]:
        epoch = min(straddling)
    return epoch


def _check_tiling(folder: AnyPlace, ranges: Sequence[KeyRange], key_groups: int) -> None:
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
