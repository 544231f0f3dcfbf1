"""A job whose cluster's head is away for a while; what was seen, as a line of JSON."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.chaos.nodes import Nodes
from benchmarks.chaos.works import Words

SECONDS = 16
STRIKE_AT = 5.0
AWAY_SECONDS = 6.0


class Striker:
    """Strikes the head once a checkpoint is committed, and notes what is committed meanwhile."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.committed = list[int]()
        """While the head was away."""
        self.processes: tuple[set[int], set[int]] = set(), set()
        """When it was struck, and at the end."""

    def __call__(self, sample: Any) -> None:
        committed = sample.committed
        if self.processes[0]:
            self.processes = self.processes[0], set(sample.processes.values())
            if self.nodes.head_is_away:
                self.committed.append(committed.epoch)
        elif sample.t > STRIKE_AT and committed is not None and committed.epoch > 0:
            self.processes = set(sample.processes.values()), set()
            self.nodes.strike_head(AWAY_SECONDS, whole=False)


def main() -> None:
    nodes = Nodes(3, head_dies=True)
    try:
        striker = Striker(nodes)
        found = Words(200, arrival=False).run(
            striker, SECONDS, cluster=nodes.address, copies=2, spares=0
        )
    finally:
        nodes.close()
    before, after = striker.processes
    told = {
        "answers": found.found,
        "wrong": found.wrong,
        "recoveries": len(found.recoveries),
        "committed": len({*striker.committed}),
        "lost": len(before - after),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
