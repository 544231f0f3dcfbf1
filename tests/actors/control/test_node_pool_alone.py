"""A cluster holds the pool of one job."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import ray

import raystream as rs
from raystream.actors.control import node_pool as pool
from raystream.actors.control.actor_names import CONTROLLER, NAMESPACE, actor_name
from raystream.errors import ConfigError
from tests.flows import Line, Rows, lines, split
from tests.gates import LIMIT_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]

OTHER = "other-01234567"


class Other:
    """A controller of another job, by its name."""

    def here(self) -> None: ...


@pytest.fixture
def other() -> Iterator[None]:
    """Another job that runs and has the pool."""
    remote: Any = ray.remote
    name = actor_name(OTHER, CONTROLLER)
    actor = remote(num_cpus=0, name=name, namespace=NAMESPACE)(Other).remote()
    ray.get(actor.here.remote(), timeout=LIMIT_SECONDS)
    pool.claim(OTHER)
    yield
    pool.release(OTHER)
    ray.kill(actor)


@pytest.mark.usefixtures("other")
def test_the_pool_of_a_second_job_is_refused_and_the_first_is_named() -> None:
    flow = rs.Flow("second")
    source = flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=30))
    source.through(split).to(rs.io.console())
    with pytest.raises(ConfigError, match=f"holds the pool of {OTHER}"):
        flow.run(cluster="auto", pool=1)
    assert pool.holder().run == OTHER


def test_whose_controller_is_gone_has_no_pool_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = {"a", "b"}
    monkeypatch.setattr(pool, "running", lambda: [*alive])
    pool.claim("a")
    pool.claim("a")  # when it was restarted
    with pytest.raises(ConfigError, match="holds the pool of a"):
        pool.claim("b")
    alive.discard("a")
    pool.claim("b")
    pool.release("a")
    assert pool.holder().run == "b"
    pool.release("b")
    assert pool.holder().run == ""


def test_of_several_that_claim_it_together_one_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [f"run-{i}" for i in range(8)]
    monkeypatch.setattr(pool, "running", lambda: runs)

    def claimed(run: str) -> bool:
        try:
            pool.claim(run)
        except ConfigError:
            return False
        return True

    with ThreadPoolExecutor(len(runs)) as threads:
        got = dict(zip(runs, threads.map(claimed, runs), strict=True))
    assert [run for run, has in got.items() if has] == [pool.holder().run]
    pool.release(pool.holder().run)
