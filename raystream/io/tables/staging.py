"""What instances have staged of a table, and which of it goes into the next snapshot.

Each instance stages an *entry* at each checkpoint: the files of its key groups since the one
before. An instance that goes on from a checkpoint makes everything after it again. So an entry of
one that came before counts up to there only. What counts has to cover all key groups of all epochs
since the last snapshot, each once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from raystream.errors import InternalError
from raystream.schema.types import KeyRange


class StagedFile(NamedTuple):
    """A file that no snapshot has yet."""

    path: str
    """Below the place of the table."""
    rows: int
    size: int
    changed: int
    """When it was written, in milliseconds of Unix time."""


class StagedEntry(NamedTuple):
    """An entry: the files of some key groups, with the rows of the epochs after `after` up to
    `upto`. Without files it says that there were no rows."""

    run: str
    number: int
    generation: int
    begun: int
    """The checkpoint from which its instance goes on."""
    after: int
    upto: int
    keys: KeyRange
    files: tuple[StagedFile, ...] = ()

    @property
    def name(self) -> str:
        """The same instance stages the same epochs under the same name."""
        keys = f"{self.keys.lo:05d}-{self.keys.hi:05d}"
        return f"staged-{self.run}-{self.after:09d}-{keys}-{self.generation:06d}.json"

    def encoded(self) -> str:
        """The text of the entry."""
        return json.dumps(self)

    def replaces(self, other: StagedEntry) -> bool:
        """Whether its instance has made again what another one has staged."""
        later = (self.number, self.generation) > (other.number, other.generation)
        return later and self.begun < other.upto and self.keys.overlaps(other.keys)


def decoded(text: str) -> StagedEntry:
    """An entry that was stored."""
    run, number, generation, begun, after, upto, keys, files = json.loads(text)
    there = tuple(StagedFile(*f) for f in files)
    return StagedEntry(run, number, generation, begun, after, upto, KeyRange(*keys), there)


class Chosen(NamedTuple):
    """What goes into a snapshot, and what goes for good."""

    files: list[StagedFile]
    replaced: list[StagedEntry]
    cut: list[StagedEntry]
    """Entries without files that go on where a later instance has begun."""


def choose(entries: Iterable[StagedEntry], after: int, epoch: int) -> Chosen:
    """The files of the snapshot at an epoch.

    Args:
        after: the epoch of the snapshot before.

    Raises:
        InternalError: something is not there, or there twice.
    """
    there = [e for e in entries if e.upto > after and (e.upto <= epoch or not e.files)]
    counts, replaced, cut = [], [], []
    for e in there:
        again = min((other.begun for other in there if other.replaces(e)), default=e.upto)
        if again < e.upto and e.files:
            replaced.append(e)
            continue
        if again < e.upto:  # one that was thought dead went on saying that there was nothing
            cut.append(e)
        if e.after < min(again, epoch):
            counts.append(e._replace(upto=again))
    _check(counts, after, epoch)
    ordered = sorted(counts, key=lambda e: (e.after, e.keys))
    return Chosen([f for e in ordered for f in e.files], replaced, cut)


def _check(counts: Sequence[StagedEntry], after: int, epoch: int) -> None:
    bounds = sorted({0, *(b for e in counts for b in e.keys)})
    if len(bounds) == 1:
        raise InternalError(f"nothing is staged of the epochs {after + 1} to {epoch}")
    for lo, hi in pairwise(bounds):
        at = after
        for e in sorted((e for e in counts if e.keys.lo <= lo < e.keys.hi), key=lambda e: e.after):
            if e.after > at or (e.after < at and e.files):
                break
            at = max(at, min(e.upto, epoch))
        if at != epoch:
            raise InternalError(
                f"what is staged of the key groups {KeyRange(lo, hi)} is not the epochs"
                f" {after + 1} to {epoch}, each once"
            )
