"""What the processes of a job take of the machine, as samples of it tell."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

_PAGE = os.sysconf("SC_PAGE_SIZE")
_KEEPER = "keeper"


class Usage:
    """Cores in use and memory by operator, and for the processes beside them by what they are.

    Memory is what was resident at most, of all instances together. Pages that processes share, such
    as checkpoints in the object store, count for keepers only. Only processes of this machine show,
    and only on Linux.
    """

    def __init__(self) -> None:
        self._first: Any = None
        self._last: Any = None
        self._memory: defaultdict[str, int] = defaultdict(int)

    def add(self, sample: Any) -> None:
        """The next sample of the job."""
        self._first = self._first or sample
        self._last = sample
        now: defaultdict[str, int] = defaultdict(int)
        for name, pid in (sample.processes or {"process/0": os.getpid()}).items():
            what = name.partition("/")[0]
            now[what] += resident(pid, shared=what == _KEEPER)
        for name, size in now.items():
            self._memory[name] = max(self._memory[name], size)

    def cores(self) -> dict[str, float]:
        """Mean cores in use by operator, between the first sample and the last."""
        if self._first is self._last:
            return {}  # no sample, or only one
        seconds = max(self._last.t - self._first.t, 1e-9)
        return {
            name: (last.cpu - self._first.operators[name].cpu) / seconds
            for name, last in self._last.operators.items()
        }

    def memory(self) -> dict[str, int]:
        """Bytes by operator; of this process alone if the job ran in it."""
        return {name: size for name, size in self._memory.items() if size}


def resident(pid: int, *, shared: bool) -> int:
    """Bytes of a process of this machine in memory, with or without those that it shares; 0 where
    it is not known."""
    try:
        _, all_pages, of_others, *_ = Path(f"/proc/{pid}/statm").read_text("ascii").split()
    except OSError:
        return 0
    return (int(all_pages) - (0 if shared else int(of_others))) * _PAGE
