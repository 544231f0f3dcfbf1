"""The pace of a job that releases recorded data by the clock: how long its epochs are, and when
each is released.

Both follow from the flow alone, never from the load: where epochs end is a constant of the run.
"""

from __future__ import annotations

from collections.abc import Callable

from raystream.dataflow.plan import Plan

PACED_EPOCH_SECONDS = 0.01
"""Real seconds of an epoch of a paced run, unless the flow says otherwise. A record waits half of
them on average; each epoch costs each instance some tenths of a millisecond of CPU."""
UNPACED_EPOCH_SECONDS = 1.0
"""Event seconds of an epoch of an unpaced run, unless the flow says otherwise."""


def length_of(speed: float | None, ticks: int) -> float:
    """Event seconds of an epoch for which the flow names no length: whole ticks, at least one.

    Args:
        speed: event seconds per real second; None without a pace.
        ticks: the ticks of a second, of the source that has the fewest.
    """
    wanted = UNPACED_EPOCH_SECONDS if speed is None else PACED_EPOCH_SECONDS * speed
    return max(1, round(wanted * ticks)) / ticks


def release_of(plan: Plan) -> Callable[[int], float] | None:
    """When an epoch is released, by its number, in seconds after the origin was: at its last tick,
    because then the last record that it can have is due. None for a job without a pace.

    An epoch of one tick is released as it begins, so its records wait for nothing.
    """
    clock = plan.clock
    if clock is None or clock.speed is None:
        return None
    seconds, speed = clock.seconds, clock.speed
    cut = [v.epochs for v in plan.vertices if v.epochs is not None and v.epochs.column is not None]
    tick = 1 / (plan.ticks * max(epochs.ticks for epochs in cut))
    return lambda epoch: (epoch * seconds - tick) / speed
