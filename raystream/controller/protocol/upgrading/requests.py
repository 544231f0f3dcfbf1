"""Upgrades as values: what is asked for, and what the journal has of one that is under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UPGRADE_SECONDS = 300.0
"""How long it may take until all instances have the new code at hand. Then the upgrade is given
up."""
TRIES_MAX = 8
"""How many epochs are proposed at most, each further ahead: an instance may pass one before it
hears of it."""
AHEAD_LEAST = 2
"""How many epochs after the newest known one an epoch is at least that is proposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRequest:
    """Other code for a job."""

    code: bytes = field(repr=False)
    """The code of all vertices; see `dataflow.upgrading.versions`."""
    name: str
    """Where the flow was found, `module:name`."""
    shapes: Mapping[str, str] = field(repr=False)
    """By vertex the fingerprint of its rows; empty for one without rows."""
    base: int
    """The number of the newest version that the code was compared with, 0 for that with which the
    job began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """An upgrade under way, as the journal has it. Times are in seconds, by the controller's
    clock."""

    wanted: UpgradeRequest
    """The request."""
    began: float
    """When the request was taken up."""
    proposed: int = 0
    """The number under which the code is proposed now; 0 if it is not."""
    told: int = 0
    """The version of the assignment with which that was said first."""
    since: float = 0.0
    """When that was."""
    furthest: int = 0
    """The greatest epoch that an instance had worked at then, as far as it was known."""
    tries: int = 0
    """How many epochs were proposed."""
