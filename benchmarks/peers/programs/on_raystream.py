"""raystream: `benchmarks.peers.ours`, as the code of a flow is not to be in the main module."""

from __future__ import annotations

from benchmarks.peers.ours import WORKS
from benchmarks.peers.programs.protocol import asked


def main() -> None:
    task = asked()
    WORKS[task.work](task, "auto")


if __name__ == "__main__":
    main()
