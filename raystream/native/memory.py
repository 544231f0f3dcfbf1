"""How much memory this node has and how much of it is used, as Ray's memory monitor counts it, and
what this process takes of it. Linux only; elsewhere all numbers are 0."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

RAY_THRESHOLD = "RAY_memory_usage_threshold"
"""The variable that says above which share of a node's memory Ray kills processes."""
RAY_DEFAULT = 0.95
EARLIER = 0.05
"""How much earlier, as a share of the node's memory, raystream stops: a checkpoint that is copied
and a table that grows take this much between two looks."""
EARLIER_BYTES = 512 << 20
"""The same in bytes, for small nodes, where it is at most a quarter of all."""
UNLIMITED = 1 << 60
"""A control group with a limit from here on has none."""


class MemoryUse(NamedTuple):
    """Memory in bytes at one moment. All are 0 where the system does not tell."""

    own: int
    """What this process takes, without memory that it shares with others."""
    node: int
    """What all processes of the node take, or of the control group that limits them. Pages of files
    do not count: they can be given back."""
    limit: int
    """What they may take before raystream stops a job."""


UNKNOWN = MemoryUse(0, 0, 0)


def memory_use(root: Path = Path("/")) -> MemoryUse:
    """What this process and its node use now. root: where `proc` and `sys` are."""
    used, total = _node(root)
    with suppress(OSError, ValueError, IndexError):
        _, resident, shared, *_ = (root / "proc/self/statm").read_text().split()
        pages = int(resident) - int(shared)
        return MemoryUse(pages * os.sysconf("SC_PAGE_SIZE"), used, _limit(total))
    return UNKNOWN


def _limit(total: int) -> int:
    """How much of a node's memory may be used."""
    share = RAY_DEFAULT
    with suppress(ValueError):
        share = float(os.environ.get(RAY_THRESHOLD, "") or RAY_DEFAULT)
    earlier = max(EARLIER * total, min(EARLIER_BYTES, total / 4))
    return max(0, round(share * total - earlier))


def _node(root: Path) -> tuple[int, int]:
    """Used and total bytes of the node, or of the control group if that may use less."""
    used = total = 0
    with suppress(OSError, ValueError, KeyError):
        info = _table(root / "proc/meminfo")
        total = info["MemTotal:"] * 1024
        used = total - info["MemAvailable:"] * 1024
    for group in (_group(root / "sys/fs/cgroup"), _older_group(root / "sys/fs/cgroup/memory")):
        if group is not None and group[1] < min(total or UNLIMITED, UNLIMITED):
            used, total = group
    return used, total


def _group(folder: Path) -> tuple[int, int] | None:
    """Used and limit of a control group, version 2."""
    with suppress(OSError, ValueError):
        limit = int((folder / "memory.max").read_text())  # "max": a ValueError, there is none
        files = _table(folder / "memory.stat")
        used = int((folder / "memory.current").read_text())
        return used - files.get("inactive_file", 0) - files.get("active_file", 0), limit
    return None


def _older_group(folder: Path) -> tuple[int, int] | None:
    """Used and limit of a control group, version 1."""
    with suppress(OSError, ValueError):
        limit = int((folder / "memory.limit_in_bytes").read_text())
        files = _table(folder / "memory.stat")
        used = int((folder / "memory.usage_in_bytes").read_text())
        return used - files.get("total_inactive_file", 0) - files.get("total_active_file", 0), limit
    return None


def _table(file: Path) -> dict[str, int]:
    """The numbers of a file that has a name and a number in each line."""
    rows = (line.split() for line in file.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1}
