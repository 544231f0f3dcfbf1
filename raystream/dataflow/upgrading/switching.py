"""When one instance waits for a new version of the code, and when it goes on with it."""

from __future__ import annotations

from collections.abc import Sequence

from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.errors import InternalError

NOWHERE = -1
"""No instance is ever at this epoch."""


class Switching:
    """Knows the versions of the code that come. `tell` and `fail` are for any thread, the rest is
    for the one that computes; that asks `holds` before each step."""

    def __init__(self) -> None:
        self.version = 0
        """The number of the version that the instance runs; 0 for the one that the job began with.
        What it sends is marked with it."""
        self.taken = 0
        """The number of the newest version that it has at hand, and before which it waits until
        that is settled. Any thread may read it."""
        self.failed: tuple[int, str] = (0, "")
        """The number of the newest version that it could not get, and why."""
        self.told: Sequence[CodeVersion] = ()
        """All versions that it was told of; empty as long as there was never another one."""
        self._looked: Sequence[CodeVersion] = self.told
        self._ahead: tuple[CodeVersion, ...] = ()
        self._hold = self._next = NOWHERE

    def tell(self, versions: Sequence[CodeVersion]) -> None:
        """These are the versions now; the instance has the code of all of them at hand."""
        self.told = versions

    def fail(self, number: int, why: str) -> None:
        """The code of a version cannot be had in this process."""
        self.failed = (number, why)

    def holds(self, position: int, reached: int = 0) -> bool:
        """Whether an instance at this epoch waits, because the version that comes next is not
        settled.

        Args:
            reached: the last epoch of which its code has made something, if that is a later one.
                It does not take a version that is proposed after an epoch before that.

        Raises:
            InternalError: it has passed the epoch after which a settled version begins.
        """
        if self.told is not self._looked:
            self._look(position, reached)
        return position == self._hold

    def stop(self, after: int, upto: int) -> int:
        """The epoch at which a step ends that begins after one epoch and could go on to another:
        no step is made by two versions."""
        if not self._ahead:
            return upto
        return min([upto, *(v.after for v in self._ahead if v.after > after)])

    def due(self, position: int) -> bool:
        """Whether another version is to make the epoch after this one."""
        return position == self._next

    def next(self) -> CodeVersion:
        """The version that comes next, which the instance runs from now on."""
        version, *rest = self._ahead
        self._ahead = tuple(rest)
        self.version = version.number
        self._set()
        return version

    def _look(self, position: int, reached: int) -> None:
        told = self.told
        ahead = [v for v in told if v.number > self.version]
        for v in ahead:
            if v.settled and v.after < position:
                raise InternalError(f"epoch {position} was made by code of before epoch {v.after}")
        reached = max(position, reached)
        self._ahead = tuple(v for v in ahead if (position if v.settled else reached) <= v.after)
        self._looked = told
        self._set()
        if self._ahead:  # only now: what is taken is not passed
            self.taken = max(self.taken, self._ahead[-1].number)

    def _set(self) -> None:
        first = self._ahead[0] if self._ahead else None
        self._hold = first.after if first is not None and not first.settled else NOWHERE
        self._next = first.after if first is not None and first.settled else NOWHERE
