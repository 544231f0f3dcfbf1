"""Saved cuts: what a store outside of the cluster knows of a job, so that it can go on after all.

    <job>/runs/<run>                                            taken by one run, by its number
    <job>/images/<run>/<vertex>/<lo>-<hi>/<base>-<cut>-<crc32>  one image, never changed
    <job>/cuts/<run>-<cut>                                      the manifest of a cut, written last

A cut counts once its manifest is there and all images that it names are. Runs of a job are
numbered: one that goes on from a saved cut has a greater number than the one that saved it, so that
(run, cut) orders all cuts. Images of one cut may serve later ones, of later runs, too.

Here is what these things are called, what they hold and what may be deleted; `raystream.io.saves`
does it.
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
from raystream.schema.types import KeyRange

VERSION = 2
READ = (1, 2)
"""The versions that can be read. The first does not say which columns cut epochs."""
_HEAD = b"raystream saved cut %d %08x\n"
_HEAD_LIKE = re.compile(rb"raystream saved cut (\d{1,9}) ([0-9a-f]{8})\n")

RegisterRow = tuple[str, int, int, int, bool]
"""An entry of the boundary register: split, epoch, end position, watermark, end flag."""


class SavedImage(NamedTuple):
    """One stored image. base: 0 in a full one. size in bytes; crc32 of all of them."""

    name: str
    base: int
    cut: int
    size: int
    crc32: int


class SavedChain(NamedTuple):
    """What makes up one range: images that are needed, each but the first on the one before."""

    keys: KeyRange
    images: tuple[SavedImage, ...]


@dataclass(frozen=True)
class Layout:
    """What must be the same in whoever goes on.

    ticks: flow units of time per second. shapes: per vertex the shape of its state in words, "" for
    none. edges: per edge, by its id, in words what goes where.
    """

    groups: int
    ticks: int
    shapes: Mapping[str, str]
    edges: tuple[str, ...]


@dataclass(frozen=True)
class Saved:
    """One committed cut of a job: the content of a manifest.

    Args:
        number: of the run that saved it; `run` is the name by which its sinks know it.
        clock: origin, seconds and speed; None for arrival cuts.
        columns: by source the column by whose values it is cut, and the ticks of that.
        splits: per source the names of its splits, in order.
        register: what the boundary register holds from this cut on.
        chains: per vertex the chains of its ranges, which tile all key groups.
    """

    job: str
    number: int
    run: str
    cut: int
    cut_every: int
    layout: Layout
    chains: Mapping[str, tuple[SavedChain, ...]]
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    clock: tuple[float, float, float | None] | None = None
    register: tuple[RegisterRow, ...] = ()
    columns: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"cut {self.cut} of run {self.number} of {self.job}"

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


def manifest_name(job: str, number: int, cut: int) -> str:
    """Where the manifest of a cut is."""
    return f"{folder_of(job)}/cuts/{number:06d}-{cut:012d}"


def saved_image(
    job: str,
    number: int,
    vertex: str,
    keys: KeyRange,
    base: int,
    cut: int,
    data: Any,
    crc32: int | None = None,
) -> SavedImage:
    """What a manifest says of an image whose stored form is `data` (bytes), with this checksum.
    Other content has another name, so what was stored once is never changed."""
    crc32 = zlib.crc32(data) if crc32 is None else crc32
    name = (
        f"{folder_of(job)}/images/{number:06d}/{folder_of(vertex)}/{keys.lo:05d}-{keys.hi:05d}/"
        f"{base:012d}-{cut:012d}-{crc32:08x}"
    )
    return SavedImage(name, base, cut, memoryview(data).nbytes, crc32)


class Named(NamedTuple):
    """What a name says: of which run's claim (cut 0), manifest or image it is."""

    kind: str
    number: int
    cut: int


_NAMES = {
    "runs": re.compile(r"runs/(\d+)()"),
    "cuts": re.compile(r"cuts/(\d+)-(\d+)"),
    "images": re.compile(r"images/(\d+)/[^/.][^/]*/\d+-\d+/\d+-(\d+)-[0-9a-f]{8}"),
}
"""By kind the form of a name behind the folder of its job."""


def named(job: str, name: str) -> Named | None:
    """What a name stands for; None if it is not one that this module gives to things of a job."""
    folder, _, rest = name.partition("/")
    kind, _, _ = rest.partition("/")
    form = _NAMES.get(kind) if folder == folder_of(job) else None
    match = None if form is None else form.fullmatch(rest)
    if match is None:
        return None
    number, cut = match.groups()
    return Named(kind, int(number), int(cut or 0))


# ---------------------------------------------------------------- the stored form


def encode(saved: Saved) -> bytes:
    """The manifest, as a line with a checksum and a line of JSON; equal ones have equal bytes."""
    if found := _flaw(saved):
        raise InternalError(f"{saved} was to be saved, but {found}")
    values = {**vars(saved), "layout": vars(saved.layout)}
    body = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return _HEAD % (VERSION, zlib.crc32(body)) + body


def decode(job: str, name: str, data: bytes | memoryview) -> Saved:
    """The saved cut of a job whose manifest, of this name, has this content.

    Raises:
        StateError: it is damaged, incomplete, of another version, or of something else.
    """
    data = bytes(data)
    head = _HEAD_LIKE.match(data)
    if head is None:
        raise StateError(f"{name} is no manifest of a saved cut: it does not begin as one")
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
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StateError(
            f"{name} is no manifest of a saved cut: {type(error).__name__}: {error}"
        ) from error
    if saved.job != job or name != manifest_name(job, saved.number, saved.cut):
        raise StateError(f"{name} is not what it is called: it holds {saved}")
    if found:
        raise StateError(f"{name} is not whole: {found}")
    return saved


def _parsed(values: Any) -> Saved:
    layout, clock = values["layout"], values["clock"]
    return Saved(
        **{
            **values,
            "layout": Layout(**{**layout, "edges": tuple(layout["edges"])}),
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
    """Why a manifest cannot stand for a whole cut; empty if it can."""
    if set(saved.chains) != set(saved.layout.shapes):
        return "it does not hold the images of all operators"
    for vertex, chains in saved.chains.items():
        ends = [0, *(end for c in chains for end in c.keys), saved.layout.groups]
        gaps = any(a != b for a, b in zip(ends[::2], ends[1::2], strict=True))
        if gaps or not all(c.keys.lo < c.keys.hi for c in chains):
            return f"the ranges of {vertex} do not make up all {saved.layout.groups} key groups"
        for chain in chains:
            bases = [chain.images[0].base, *(i.cut for i in chain.images)] if chain.images else [0]
            if [i.base for i in chain.images] != bases[:-1] or not 0 < bases[-1] <= saved.cut:
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
    """The images that are not there, or not with their size: what to store, or what is lost."""
    return [i for i in images if there.get(i.name) != i.size]


def droppable(
    job: str,
    there: Iterable[str],
    whole: Sequence[Saved],
    number: int,
    keep: Collection[str] = (),
) -> list[str]:
    """What run `number` may delete: what neither of the newest two whole cuts needs.

    Manifests come first: at no moment one refers to what is gone. Names that are not of this job
    stay, and so does what may belong to a cut that is not committed yet, or to a later run.

    Args:
        whole: the newest two whole cuts, the newest first; with fewer nothing may be deleted.
        keep: names of images that are about to be referred to.
    """
    if len(whole) < 2 or whole[0].number > number:
        return []
    newest, second = ((s.number, s.cut) for s in whole)
    needed = {i.name for s in whole for i in s.images} | set(keep)
    old: dict[str, list[str]] = {"cuts": [], "images": [], "runs": []}
    for name in sorted(there):
        at = named(job, name)
        if at is None or name in needed:
            continue
        upto = {"cuts": (at.number, at.cut) < second, "runs": at.number < second[0]}
        if upto.get(at.kind, (at.number, at.cut) <= newest):
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
"""What to do where a flow cannot go on from a saved cut."""


def refuse_other(
    saved: Saved,
    now: Layout,
    upgraded: Collection[str] = (),
    upgrades: Mapping[str, str] | None = None,
) -> None:
    """Check that a flow as it is now can go on from a saved cut.

    Args:
        upgraded: vertices whose state is brought into its new shape when it is read.
        upgrades: by vertex how its state could be.

    Raises:
        StateError: it cannot; what was saved and what is there now are in the hint.
    """
    was = saved.layout
    pairs: list[tuple[str, Any, Any, str]] = [
        ("another number of key groups", was.groups, now.groups, ANEW),
        ("another time unit (ticks a second)", was.ticks, now.ticks, ANEW),
        ("another set of operators", sorted(was.shapes), sorted(now.shapes), ANEW),
        ("other streams", was.edges, now.edges, ANEW),
    ]
    if sorted(was.shapes) == sorted(now.shapes):
        pairs += [
            (
                f"another state of {vertex}",
                shape or "none",
                now.shapes[vertex] or "none",
                (upgrades or {}).get(vertex, ANEW),
            )
            for vertex, shape in was.shapes.items()
            if vertex not in upgraded
        ]
    for what, before, after, remedy in pairs:
        if before != after:
            raise differs(saved, what, _words(before), _words(after), remedy)


def differs(saved: Saved, what: str, before: str, after: str, remedy: str = ANEW) -> StateError:
    """What is raised when a flow cannot go on from a saved cut, because something is different."""
    return StateError(
        f"{saved} has {what} than the flow has now",
        hint=f"saved: {before}\n  now:   {after}\n  {remedy}",
    )


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
