"""The only place that touches Ray, sockets, threads and clocks: shells round the pure machines."""

import os

# Read when Ray is imported. That a process died is told by the job, once, with what came of it.
os.environ.setdefault(
    "RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed|Task Controller.run failed"
)
