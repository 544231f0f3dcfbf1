"""What a controller is made with, and what it answers to clients."""

from __future__ import annotations

from typing import NamedTuple

from raystream.actors.cluster.environment import Environment
from raystream.controller.options import Options
from raystream.controller.planning.upgrading import FlowOutline
from raystream.controller.protocol.history import MoveRecord, UpgradeRecord
from raystream.controller.protocol.move_requests import Move
from raystream.dataflow.plan import Clock
from raystream.security.credentials import Credentials


class Charter(NamedTuple):
    """What a controller is made with. Ray keeps it, and makes the controller with it again."""

    run: str
    """A name that no other run of any job has."""
    credentials: Credentials
    """What the instances of the job show each other."""
    env: Environment
    """The variables of the job's processes."""
    options: Options
    """What the submitter has chosen."""


class JobOutcome(NamedTuple):
    """How a job has ended, if it has, and how far its checkpoints are."""

    ended: str
    """How it has ended, in words; empty while it runs."""
    unsaved: str
    """Why the newest checkpoint that should be in the durable tier is not; empty if it is."""
    committed: int = 0
    """The newest committed checkpoint."""
    saved: int | None = None
    """The newest checkpoint in the durable tier; None without one."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return bool(self.ended)


class Moves(NamedTuple):
    """The moves of a job."""

    under_way: tuple[Move, ...]
    """Those that have not ended."""
    ended: tuple[MoveRecord, ...]
    """Those that have."""
    over: bool = False
    """Whether the job has ended."""


class RunningCode(NamedTuple):
    """The code of a job."""

    outline: FlowOutline
    """What another version of the code has to fit."""
    number: int
    """The number of the version; 0 for the one that the job began with."""
    ended: tuple[UpgradeRecord, ...]
    """The upgrades that are settled, or were given up."""
    over: bool
    """Whether the job has ended."""
    name: str = ""
    """Where the flow was found, `module:name`; empty if no command found it."""
    clock: Clock | None = None
    """How event time becomes epochs; None where epochs are cut by arrival."""
    checkpoint_every: int = 100
    """There is a checkpoint at the end of every n-th epoch."""
