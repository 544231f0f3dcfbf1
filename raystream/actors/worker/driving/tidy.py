"""When the cyclic garbage collector of an instance's process runs."""

from __future__ import annotations

import gc
import time

GC_BITE_SECONDS = 0.0005
"""How long a look at young objects is to take."""
GC_SECONDS = (0.05, 10.0)
"""How often young objects are looked at: at the most, and at the least."""
GC_ALL_SECONDS = 900.0
GC_ALL_SHARE = 2000
"""All objects are looked at again after GC_ALL_SECONDS, or after GC_ALL_SHARE times what that took
last, if this is longer."""


class Tidy:
    """The cyclic garbage collector runs between epochs, in small bites.

    It looks at young objects only: what was there at the start is frozen, and rows of state hold no
    cycles. A look stops the flow for as long as it takes to walk over what was made since the last
    one and is still there, such as entries of logs. So the more there is of that, the sooner the
    next look comes: after as long as would have made the last one take GC_BITE_SECONDS. A full
    collection would stop the flow for as long as it takes to walk over all of them: 0.1 s for what
    is imported alone, so there is none at the start either. The collector was on until then and
    left nothing to find. What grew old meanwhile is looked at now and then, the more seldom the
    longer that takes.
    """

    def __init__(self) -> None:
        gc.freeze()
        self._at = time.monotonic()
        self._every = GC_SECONDS[0]
        self._all_at = self._at + GC_ALL_SECONDS

    def __call__(self) -> None:
        now = time.monotonic()
        since = now - self._at
        if since < self._every:
            return
        gc.collect(2 if now > self._all_at else 1)
        self._at = time.monotonic()
        took = self._at - now
        if now > self._all_at:
            self._all_at = self._at + max(GC_ALL_SECONDS, GC_ALL_SHARE * took)
        else:
            self._every = next_look(since, took)


def next_look(since: float, took: float) -> float:
    """After how many seconds to look at young objects again, if a look `since` seconds after the
    one before it took `took` seconds."""
    least, most = GC_SECONDS
    return max(least, min(most, 2 * since, since * GC_BITE_SECONDS / max(took, 1e-9)))
