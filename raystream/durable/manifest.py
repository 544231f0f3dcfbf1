"""Saved checkpoints: what a store outside of the cluster knows of a job.

    <job>/runs/<run>                    claimed by one run, by its number
    <job>/images/<run>/<vertex>/<lo>-<hi>/<base>-<checkpoint>-<crc32>
                                        one checkpoint image, never changed
    <job>/cuts/<run>-<checkpoint>       the manifest of a checkpoint, written last

A checkpoint counts once its manifest and all images that the manifest names are stored. Runs of a
job are numbered. A run that goes on from a saved checkpoint has a greater number than the run that
saved it, so (run, checkpoint) orders all checkpoints. Later checkpoints, of later runs too, may use
the images of an earlier one.

This module says what these objects are called, what they hold and what may be deleted;
`raystream.durable.saves` reads and writes them.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from raystream.errors import InternalError, StateError
from raystream.schema.types import BEFORE_ALL, KeyRange

VERSION = 5
READ = (1, 2, 3, 4, 5)
"""The versions that can be read. The first does not say which columns cut epochs, the first two
say nothing of kinds and marks, the first three not where the code is, the first four not which
version of it."""
_HEAD = b"raystream saved cut %d %08x\n"
_HEAD_LIKE = re.compile(rb"raystream saved cut (\d{1,9}) ([0-9a-f]{8})\n")

RegisterRow = tuple[str, int, int, int, bool]
"""An entry of the boundary register: split, epoch, end position, watermark, end flag."""
RangeEnd = tuple[int, int, int]
"""The end of a range of a producer: its last epoch, its first key group, the one after its last."""


class SavedImage(NamedTuple):
    """One stored checkpoint image."""

    name: str
    """The name of the object."""
    base: int
    """The checkpoint of the image that this one is a delta on; 0 of a full image."""
    checkpoint: int
    size: int
    """In bytes."""
    crc32: int
    """The checksum of the whole object."""


class SavedChain(NamedTuple):
    """The images that make up one range: a full one, then deltas, each on the one before."""

    keys: KeyRange
    images: tuple[SavedImage, ...]


@dataclass(frozen=True)
class SavedLayout:
    """What a run must have in common with the checkpoint from which it goes on."""

    groups: int
    """The number of key groups."""
    ticks: int
    """Time units of the flow per second."""
    shapes: Mapping[str, str]
    """Per vertex the shape of its state in words; "" for none."""
    edges: tuple[str, ...]
    """Per edge, by its id, in words which records go where."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Per vertex whether it is a source, an operator or a sink. Empty in older manifests."""

    def kind(self, vertex: str, splits: Collection[str]) -> str:
        """What a vertex is; "" for an operator without state or a sink in an older manifest.

        Args:
            splits: the names of all sources.
        """
        if vertex in splits:
            return "source"
        return self.kinds.get(vertex, "operator" if self.shapes[vertex] else "")


@dataclass(frozen=True, kw_only=True)
class Inherited:
    """With what an operator begins in a flow that has changed since its images were stored.
    `raystream.durable.inheriting` makes the images that this stands for."""

    was: str
    """The name under which its images were stored; "" if it begins with nothing."""
    watermark: int = BEFORE_ALL
    """Of an operator that begins with nothing: its watermark."""
    inlets: Mapping[int, tuple[RangeEnd, ...]] = field(default_factory=dict)
    """By edge the ranges of its producer that have ended."""
    groups: Mapping[str, int] | None = None
    """Of a source with other splits than before: the key group of each; None for the same."""


@dataclass(frozen=True)
class Saved:
    """One committed checkpoint of a job: the content of a manifest."""

    job: str
    number: int
    """The number of the run that saved it."""
    run: str
    """The name by which the sinks know that run."""
    checkpoint: int
    """The epoch of the checkpoint."""
    checkpoint_every: int
    layout: SavedLayout
    chains: Mapping[str, tuple[SavedChain, ...]]
    """Per vertex the chains of its ranges, which tile all key groups."""
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Per source the names of its splits, in order."""
    clock: tuple[float, float, float | None] | None = None
    """Origin, seconds and speed; None if all sources cut epochs by arrival."""
    register: tuple[RegisterRow, ...] = ()
    """The entries of the boundary register from this checkpoint on."""
    columns: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Per source the column that epochs follow from, and its ticks."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Per sink that was renamed what marks its output: see `SinkContext.mark`."""
    code: str = ""
    """`module:name` of the flow, as given to the command that ran or upgraded the job; empty
    without one."""
    version: int = 0
    """The number of the version of the code that made it, in that run; 0 for the one that the run
    began with."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The size and the time of the last change, in words, of each file of this machine that is a
    split, when the run began."""
    begins: Mapping[str, Inherited] = field(default_factory=dict)
    """Per vertex with what it begins, where a run goes on with a flow that has changed; empty where
    it is the same. It is not stored: until that run has saved a checkpoint of its own, what was
    saved stays a checkpoint of the flow as it was."""

    def stored_as(self, vertex: str) -> str:
        """The name under which the images of a vertex were stored; "" if it begins with none."""
        return self.begins[vertex].was if vertex in self.begins else vertex

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint} of run {self.number} of {self.job}"

    @property
    def label(self) -> str:
        """Its name on a command line: the number of its run and its epoch."""
        return f"{self.number}-{self.checkpoint}"

    @property
    def images(self) -> list[SavedImage]:
        """All images that it refers to."""
        return [i for chains in self.chains.values() for c in chains for i in c.images]


# ---------------------------------------------------------------- names


@lru_cache(maxsize=256)
def folder_of(job: str) -> str:
    """The folder of a job: one name, whatever the job is called."""
    return re.sub(r"^\.", "%2E", quote(job, safe=" ")) or "%"


def claim_name(job: str, number: int) -> str:
    """What a run takes to be the only one with its number."""
    return f"{folder_of(job)}/runs/{number:06d}"


def manifest_name(job: str, number: int, checkpoint: int) -> str:
    """Where the manifest of a checkpoint is."""
    return f"{folder_of(job)}/cuts/{number:06d}-{checkpoint:012d}"


def saved_image(
    job: str,
    number: int,
    vertex: str,
    keys: KeyRange,
    base: int,
    checkpoint: int,
    data: Any,
    crc32: int | None = None,
) -> SavedImage:
    """What a manifest says of an image whose stored form is `data` (bytes), with this checksum.
    Other content has another name, so what was stored once is never changed."""
    crc32 = zlib.crc32(data) if crc32 is None else crc32
    name = (
        f"{folder_of(job)}/images/{number:06d}/{folder_of(vertex)}/{keys.lo:05d}-{keys.hi:05d}/"
        f"{base:012d}-{checkpoint:012d}-{crc32:08x}"
    )
    return SavedImage(name, base, checkpoint, memoryview(data).nbytes, crc32)


class Named(NamedTuple):
    """What a name says: of which run's claim (checkpoint 0), manifest or image it is."""

    kind: str
    number: int
    checkpoint: int


_NAMES = {
    "runs": re.compile(r"runs/(\d+)()"),
    "cuts": re.compile(r"cuts/(\d+)-(\d+)"),
    "images": re.compile(r"images/(\d+)/[^/.][^/]*/\d+-\d+/\d+-(\d+)-[0-9a-f]{8}"),
}
"""The form of a name behind the folder of its job, by kind."""


def named(job: str, name: str) -> Named | None:
    """What a name stands for; None if it is not one that this module gives to things of a job."""
    folder, _, rest = name.partition("/")
    kind, _, _ = rest.partition("/")
    form = _NAMES.get(kind) if folder == folder_of(job) else None
    match = None if form is None else form.fullmatch(rest)
    if match is None:
        return None
    number, checkpoint = match.groups()
    return Named(kind, int(number), int(checkpoint or 0))


# ---------------------------------------------------------------- the stored form


def encode(saved: Saved) -> bytes:
    """The manifest, as a line with a checksum and a line of JSON; equal ones have equal bytes."""
    if found := _flaw(saved):
        raise InternalError(f"{saved} was to be saved, but {found}")
    values = {**vars(saved), "layout": vars(saved.layout)}
    if values.pop("begins"):
        raise InternalError(f"{saved} was to be saved as one of another flow")
    body = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return _HEAD % (VERSION, zlib.crc32(body)) + body


def decode(job: str, name: str, data: bytes | memoryview) -> Saved:
    """The saved checkpoint of a job whose manifest, of this name, has this content.

    Raises:
        StateError: it is damaged, incomplete, of another version, or of something else.
    """
    data = bytes(data)
    head = _HEAD_LIKE.match(data)
    if head is None:
        raise StateError(f"{name} is no manifest of a saved checkpoint: it does not begin as one")
    if int(head[1]) not in READ:
        raise StateError(
            f"{name} is of format version {int(head[1])}; this raystream reads up to {VERSION}",
            hint="Resume with the version of raystream that wrote it.",
        )
    if zlib.crc32(data[head.end() :]) != int(head[2], 16):
        raise StateError(f"{name} is damaged or cut off: its checksum is another")
    try:
        saved = _parsed(json.loads(data[head.end() :]))
        found = _flaw(saved)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StateError(
            f"{name} is no manifest of a saved checkpoint: {type(error).__name__}: {error}"
        ) from error
    if saved.job != job or name != manifest_name(job, saved.number, saved.checkpoint):
        raise StateError(f"{name} is not what it is called: it holds {saved}")
    if found:
        raise StateError(f"{name} is not whole: {found}")
    return saved


def _parsed(values: Any) -> Saved:
    layout, clock = values["layout"], values["clock"]
    return Saved(
        **{
            **values,
            "layout": SavedLayout(**{**layout, "edges": tuple(layout["edges"])}),
            "chains": {v: tuple(map(_chain, chains)) for v, chains in values["chains"].items()},
            "splits": {source: tuple(names) for source, names in values["splits"].items()},
            "clock": None if clock is None else tuple(clock),
            "register": tuple(map(tuple, values["register"])),
            "columns": {source: tuple(c) for source, c in values.get("columns", {}).items()},
        }
    )


def _chain(values: Any) -> SavedChain:
    keys, images = values
    return SavedChain(KeyRange(*keys), tuple(SavedImage(*i) for i in images))


def _flaw(saved: Saved) -> str:
    """Why a manifest cannot stand for a whole checkpoint; empty if it can."""
    if set(saved.chains) != set(saved.layout.shapes):
        return "it does not hold the images of all operators"
    for vertex, chains in saved.chains.items():
        ends = [0, *(end for c in chains for end in c.keys), saved.layout.groups]
        gaps = any(a != b for a, b in zip(ends[::2], ends[1::2], strict=True))
        if gaps or not all(c.keys.lo < c.keys.hi for c in chains):
            return f"the ranges of {vertex} do not make up all {saved.layout.groups} key groups"
        for chain in chains:
            bases = (
                [chain.images[0].base, *(i.checkpoint for i in chain.images)]
                if chain.images
                else [0]
            )
            if [i.base for i in chain.images] != bases[:-1] or not 0 < bases[
                -1
            ] <= saved.checkpoint:
                return f"the images of {vertex} {chain.keys} do not follow each other"
    for image in saved.images:
        stands_for = named(saved.job, image.name)
        if stands_for is None or stands_for.kind != "images":
            return f"{image.name} is no image of it"
    return ""


# ---------------------------------------------------------------- plans


def newest_first(job: str, there: Iterable[str]) -> list[str]:
    """The names of all manifests of a job."""
    found = [(at, n) for n in there if (at := named(job, n)) is not None and at.kind == "cuts"]
    return [name for _, name in sorted(found, reverse=True)]


def newest_run(job: str, there: Iterable[str]) -> int:
    """The greatest number of a run of which anything is there; 0 for none."""
    return max((at.number for n in there if (at := named(job, n)) is not None), default=0)


def absent(images: Iterable[SavedImage], there: Mapping[str, int]) -> list[SavedImage]:
    """Those images that are missing from a store, or have another size there."""
    return [i for i in images if there.get(i.name) != i.size]


def droppable(
    job: str,
    there: Iterable[str],
    whole: Sequence[Saved],
    number: int,
    keep: Collection[str] = (),
) -> list[str]:
    """What run `number` may delete: what none of the newest whole checkpoints needs.

    Manifests come first, so that no manifest ever refers to an image that is gone. Names that are
    not of this job stay, and so does what may belong to a checkpoint that is not committed yet, or
    to a later run.

    Args:
        whole: the whole checkpoints that stay, the newest first. With fewer than two nothing may
            be deleted.
        keep: names of images that are about to be referred to.
    """
    if len(whole) < 2 or whole[0].number > number:
        return []
    newest, oldest = ((s.number, s.checkpoint) for s in (whole[0], whole[-1]))
    needed = {i.name for s in whole for i in s.images} | set(keep)
    old: dict[str, list[str]] = {"cuts": [], "images": [], "runs": []}
    for name in sorted(there):
        at = named(job, name)
        if at is None or name in needed:
            continue
        upto = {"cuts": (at.number, at.checkpoint) < oldest, "runs": at.number < oldest[0]}
        if upto.get(at.kind, (at.number, at.checkpoint) <= newest):
            old[at.kind].append(name)
    return [name for names in old.values() for name in names]


def overlaps(saved: Saved, vertex: str, keys: KeyRange) -> list[tuple[SavedChain, KeyRange]]:
    """The chains of a vertex that a wanted range needs, in order, and which part of each."""
    found = (
        (c, KeyRange(max(c.keys.lo, keys.lo), min(c.keys.hi, keys.hi)))
        for c in saved.chains[vertex]
    )
    return [(chain, part) for chain, part in found if part.lo < part.hi]


ANEW = "Make it as it was, or begin anew: --fresh, resume=False."
"""What to do where a flow cannot go on from a saved checkpoint."""


def differs(saved: Saved, what: str, before: str, after: str, remedy: str = ANEW) -> StateError:
    """The error of a flow that cannot go on from a saved checkpoint, because it is another one."""
    return StateError(
        f"{saved} has {what} than the flow has now",
        hint=f"saved: {before}\n  now:   {after}\n  {remedy}",
    )
