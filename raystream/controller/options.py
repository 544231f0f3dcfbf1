"""How a job is run: all options, those of scaling and of the pool of nodes too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raystream.controller.elastic.policy import Policy
from raystream.controller.elastic.pool import PoolOptions
from raystream.controller.protocol.members import ProtocolOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ProtocolOptions):
    """How a job is run."""

    policy: Policy | None = None
    """What decides by itself which ranges operators have; None for nothing."""
    bounds: Mapping[str, tuple[int, int]] | None = None
    """By operator the least and the greatest number of its instances."""
    pool: PoolOptions | None = None
    """A pool of spare nodes; None for none."""
