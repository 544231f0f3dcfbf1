"""The only place that touches Ray, sockets, threads and clocks: shells round the pure machines.

Each may import those below it.

    client     what a process outside a job does with it: submit, watch, rescale, stop
    control    the controller of a job: an actor, and how it reaches the job's other actors
    worker     the actors that run instances
    keepers    the actors that hold checkpoints
    network    pieces on their way from one instance to another
    cluster    Ray itself: connecting, tokens, environments, and all that is private of Ray
"""

import os

# Read when Ray is imported. That a process died is told by the job, once, with what came of it.
os.environ.setdefault(
    "RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed|Task Controller.run failed"
)
