"""Ray for the benchmarks that need it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def runtime() -> Iterator[None]:
    """The Ray that other tests have started, or one of its own; runs join it."""
    import ray

    if ray.is_initialized():
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.delenv("RAY_ADDRESS", raising=False)
        ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
        )
        yield
        ray.shutdown()
