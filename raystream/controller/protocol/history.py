"""What has happened to a job: recoveries, and moves and upgrades that have ended."""

from __future__ import annotations

from dataclasses import dataclass

from raystream.renamed import old_field
from raystream.schema.types import KeyRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Instances died, and others took their places."""

    t: float
    """Seconds since the job's start at which the death was noticed."""
    gone: tuple[str, ...]
    """The names of the instances that died."""
    new: tuple[str, ...]
    """The names of the instances that replaced them."""
    committed: int
    """The checkpoint from which the new instances went on."""
    seconds: float
    """How long it took until they were at work; catching up is not included."""
    because: str
    """What died, and why, in words."""

    floor = old_field("floor", "committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """A move that has ended: ranges of an operator went to other instances, or should have."""

    t: float
    """Seconds since the job's start at which the move was asked for."""
    operator: str
    """The name of the operator, source or sink whose instances were moved."""
    gone: tuple[str, ...]
    """The names of the instances that gave up their ranges."""
    new: tuple[str, ...]
    """The names of the instances that took ranges, in the order of these ranges."""
    ranges: tuple[KeyRange, ...]
    """All ranges that the operator was to have afterwards, also those that stayed."""
    committed: int
    """The checkpoint from which the new instances began; -1 if none was given a place."""
    mode: str
    """How the new instances got their state: "replay" or "handover"."""
    tries: int
    """How many attempts were made."""
    place: float
    """Seconds until there were processes for all places."""
    restore: float
    """Seconds from then until these processes had their state."""
    replay: float
    """Seconds from then until they had caught up with the owners and owned their ranges."""
    because: str
    """Why the move was asked for."""
    failed: str = ""
    """Why the move was given up; empty if it was not."""
    nbytes: int = 0
    """Bytes of state that the new instances were given by keepers and owners. What they read again
    from logs is not counted."""

    floor = old_field("floor", "committed")

    @property
    def ended(self) -> float:
        """Seconds since the job's start at which the move was done, or given up."""
        return self.t + self.place + self.restore + self.replay


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRecord:
    """An upgrade that is settled, or was given up: the job has other code, or should have."""

    t: float
    """Seconds since the job's start at which the upgrade was asked for."""
    name: str
    """Where the flow was found, `module:name`."""
    number: int
    """The number of the version of the code; 0 if the upgrade was given up."""
    after: int
    """The last epoch that the code before has made; 0 if the upgrade was given up."""
    tries: int
    """How many epochs were proposed."""
    seconds: float
    """How long it took until the epoch was settled, or the upgrade was given up."""
    failed: str = ""
    """Why the upgrade was given up; empty if it was not."""
