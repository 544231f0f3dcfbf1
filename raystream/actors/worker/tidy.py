"""When the cyclic garbage collector of an instance's process runs."""

from __future__ import annotations

import gc
import time

GC_SECONDS = 2.0
"""How often young objects are looked at."""
GC_ALL_SECONDS = 900.0
GC_ALL_SHARE = 2000
"""All objects are looked at again after GC_ALL_SECONDS, or after GC_ALL_SHARE times what that took
last, if this is longer."""


class Tidy:
    """The cyclic garbage collector runs between epochs, now and then.

    It looks at young objects only: what was there at the start is frozen, and rows of state hold no
    cycles. A full collection would stop the flow for as long as it takes to walk over all of them:
    0.1 s for what is imported alone, so there is none at the start either. The collector was on
    until then and left nothing to find. What grew old meanwhile is looked at now and then, the more
    seldom the longer that takes.
    """

    def __init__(self) -> None:
        gc.freeze()
        self._at = time.monotonic()
        self._all_at = self._at + GC_ALL_SECONDS

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._at > GC_SECONDS:
            gc.collect(2 if now > self._all_at else 1)
            self._at = time.monotonic()
            if now > self._all_at:
                self._all_at = self._at + max(GC_ALL_SECONDS, GC_ALL_SHARE * (self._at - now))
