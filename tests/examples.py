"""How many examples a property is tried on: few, or RAYSTREAM_EXAMPLES=10 times as many."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

FACTOR = float(os.environ.get("RAYSTREAM_EXAMPLES", "1"))


def examples(n: int) -> settings:
    """Try a property on `n` examples (times the factor); a failure prints how to repeat it."""
    return settings(
        max_examples=max(1, round(n * FACTOR)),
        deadline=None,
        print_blob=True,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
