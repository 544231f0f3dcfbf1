"""The nodes of the cluster as a controller sees them, and which of them its job has to leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from raystream.actors.cluster.head import HeadWatch
from raystream.actors.control.node_pool import NodePool
from raystream.controller.elastic.pool import OPERATOR_NODE, PoolOptions, told
from raystream.controller.protocol.machine import Machine
from raystream.errors import ConfigError

ZONE = "ray.io/availability-zone"
"""Ray's label for the zone of a node."""
NODES_SECONDS = 1.0
"""How often it is looked which nodes are alive."""


class Nodes:
    """The nodes that are alive, and the job's pool of them.

    Args:
        note: called with notes for the story of the job.
        head: what tells of nodes.
    """

    def __init__(
        self, run: str, note: Callable[[str], None], head: HeadWatch | None = None
    ) -> None:
        self.alive: tuple[str, ...] = ()
        self.for_operators: frozenset[str] = frozenset()
        """Those that the cluster's configuration reserves for operators."""
        self.zones: dict[str, str] = {}
        """The zone of each node that is alive and has one, by node."""
        self._run = run
        self._note = note
        self._head = head or HeadWatch()
        self._ending: Mapping[str, float] = {}
        self._pool: NodePool | None = None
        self._looked = 0.0
        self._away = 0.0
        """Since when the head does not answer, on the monotonic clock; 0 while it does."""

    def take_pool(self, options: PoolOptions, *, again: bool) -> None:
        """Take the pool of the cluster.

        Args:
            again: the job goes on after its controller was restarted. If another job has the pool
                by now, it goes on without.

        Raises:
            ConfigError: another job has it.
        """
        try:
            self._pool = NodePool(self._run, options)
        except ConfigError as error:
            if not again:
                raise
            self._note(str(error))

    @property
    def head_answers(self) -> bool:
        """Whether the head of the cluster answers. While it does not, nothing can be started."""
        return self._head.answers

    def look(self) -> None:
        """See which nodes are alive. While the head does not say, they stay as they were."""
        self._looked = time.monotonic()
        self._tell_of_head()
        if (seen := self._head.seen()) is None:
            return
        alive = {n["NodeID"]: n for n in seen.nodes}
        self._ending = seen.ending
        self.alive = tuple(sorted(alive))
        self.for_operators = frozenset(
            node for node, n in alive.items() if n["Resources"].get(OPERATOR_NODE)
        )
        zones = {node: (n.get("Labels") or {}).get(ZONE, "") for node, n in alive.items()}
        self.zones = {node: zone for node, zone in zones.items() if zone}

    def _tell_of_head(self) -> None:
        """Say in the story that the head is gone, and that it is back."""
        now = time.monotonic()
        if not self._head.answers and not self._away:
            self._away = now
            self._note("the head of the cluster does not answer: nothing is started meanwhile")
        elif self._head.answers and self._away:
            self._note(f"the head of the cluster answers again, after {now - self._away:.0f} s")
            self._away = 0.0

    def due(self) -> bool:
        """Whether it is time to look again."""
        return time.monotonic() - self._looked > NODES_SECONDS

    def doubt(self) -> None:
        """Look again soon: a process has died, and its node may be gone, too."""
        self._looked = 0.0
        self._head.soon()

    def to_leave(self, machine: Machine) -> dict[str, str]:
        """The nodes that the job has to leave now, and why; has the pool filled up."""
        left = machine.journal.drained
        leave = (
            dict.fromkeys(self._ending, "it is about to be taken away") if self.alive[1:] else {}
        )
        if self._pool is not None and self._head.answers:
            before = self._pool.pool
            pool = self._pool.look(machine.hiring.used, left, machine.hiring.wanted)
            if note := told(before, pool, self._pool.options):
                self._note(note)
            leave |= dict.fromkeys(pool.returned, "it was one too many")
        if not machine.members:
            return {}  # no instance is there yet that could leave
        return {node: leave[node] for node in sorted(leave.keys() & set(self.alive) - left)}
