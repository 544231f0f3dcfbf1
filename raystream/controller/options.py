"""How a job is run: all options, those of scaling and of the pool of nodes too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from raystream.controller.elastic.detector import interval_of
from raystream.controller.elastic.policy import CpuThreshold, Policy
from raystream.controller.elastic.pool import PoolOptions
from raystream.controller.planning.run_options import bytes_of
from raystream.controller.protocol.members import ProtocolOptions
from raystream.controller.protocol.strategies import RecoveryMode
from raystream.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ProtocolOptions):
    """How a job is run."""

    policy: Policy | None = None
    """What decides by itself which ranges operators have; None for nothing."""
    bounds: Mapping[str, tuple[int, int]] | None = None
    """By operator the least and the greatest number of its instances."""
    pool: PoolOptions | None = None
    """A pool of spare nodes; None for none."""
    state_folder: str | None = None
    """The folder on each node for checkpoints and rows that memory has no room for; None for the
    folder for temporary files."""
    state_memory: int | None = None
    """Bytes of memory that the rows of an instance may take; None for any number."""
    checkpoint_memory: int | None = None
    """Bytes of each node's object store for recent checkpoints; None for the usual."""
    traces: str | None = None
    """The address of a collector of OpenTelemetry for the decisions of the job; None for none."""


def options_of(
    cluster: str | None,
    copies: int,
    spares: int,
    recovery: RecoveryMode,
    restore_into: int,
    policy: Policy | Literal["auto"] | None,
    bounds: Mapping[str, tuple[int, int]] | None,
    pool: PoolOptions | int | None,
) -> Options:
    """The options for these arguments of `run`.

    Raises:
        ConfigError: they do not go together.
    """
    if isinstance(policy, str) and policy == "auto":
        policy = None if pool is None else CpuThreshold()
    if policy is not None:
        if not _is_policy(policy):
            raise ConfigError(
                f"policy={policy!r} is none: it has no `decide`, or no `interval`",
                hint="For example policy=rs.CpuThreshold().",
            )
        interval_of(policy)
    if cluster is None and (policy is not None or bounds or pool is not None):
        raise ConfigError(
            "policy, bounds and pool need a cluster: in this process nothing scales",
            hint='Add cluster="auto", or leave out --local.',
        )
    if isinstance(pool, int):
        pool = PoolOptions(pool)
    if not isinstance(pool, PoolOptions | None):
        raise ConfigError(f"pool={pool!r:.80}: a number of spare nodes, or rs.PoolOptions")
    if bounds and policy is None:
        raise ConfigError(
            "bounds without a policy: nothing changes numbers of instances",
            hint="Add --policy cpu (policy=rs.CpuThreshold()).",
        )
    return Options(
        copies=copies,
        spares=spares,
        recovery=recovery,
        restore_into=restore_into,
        policy=policy,
        bounds=bounds,
        pool=pool,
    )


def _is_policy(given: object) -> bool:
    """Whether an object is a policy, as far as can be seen without calling it."""
    decides = callable(getattr(given, "decide", None)) and not isinstance(given, type)
    return decides and hasattr(given, "interval")


def with_room(
    options: Options,
    folder: str | os.PathLike[str] | None,
    checkpoints: int | str | None,
    state: int | str | None,
) -> Options:
    """The options with a folder for checkpoints and rows, and with limits of memory.

    Args:
        folder: of files on each node; None for the usual one.
        checkpoints: bytes of memory for recent checkpoints, a number or text such as `"4GiB"`.
        state: bytes of memory for the rows of an instance, likewise.

    Raises:
        ConfigError: a size is no such number or text.
    """
    where = None if folder is None else os.path.abspath(folder)
    return replace(
        options,
        state_folder=where,
        checkpoint_memory=None
        if checkpoints is None
        else bytes_of("checkpoint_memory", checkpoints),
        state_memory=None if state is None else bytes_of("state_memory", state),
    )


_ON_CLUSTER = (
    "copies", "spares", "recovery", "restore_into", "together", "state_folder", "checkpoint_memory",
    "traces",
)  # fmt: skip


def refuse_here(options: Options, cluster: str | None = None) -> None:
    """Refuse options that have no effect in this process, where no instance can die alone.

    Args:
        cluster: where the job runs; None for this process. On a cluster nothing is refused.

    Raises:
        ConfigError: such an option is given.
    """
    if cluster is not None:
        return
    rows = options.state_memory is not None  # some may lie in the folder, in this process too
    without = [name for name in _ON_CLUSTER if name != "state_folder" or not rows]
    given = [name for name in without if getattr(options, name) != getattr(Options(), name)]
    if given:
        raise ConfigError(
            f"{given[0]} needs a cluster: in this process there are no keepers and no spares",
            hint='Add cluster="auto", or leave out --local. What is to outlive the process goes to'
            " durable (--durable).",
        )
