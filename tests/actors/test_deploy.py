"""Before a job begins: which cluster, and which flows it would take. No Ray is started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._common import utils as ray_utils
from ray._private import services, utils
from ray._raylet import (
    AuthenticationMode,
    AuthenticationTokenLoader,
    get_authentication_mode,
)
from ray.exceptions import AuthenticationError

import raystream as rs
from raystream.actors import access, deploy, environment, own_ray
from raystream.actors.deploy import cluster, refuse_main, visited
from raystream.cli import REFUSED
from raystream.controller.members import Options
from raystream.controller.planning import make_plan
from raystream.controller.report import Sample
from raystream.errors import ConfigError, GraphError, Stopped
from raystream.run import Follow
from raystream.testing import Collect
from tests.flows import Line, Rows, Running, Word, lines, running, split


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "127.0.0.1:99999", "nowhere.invalid:6379", "odd"]
)
def test_an_address_where_nobody_answers_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy.ray, "is_initialized", lambda: False)
    with pytest.raises(ConfigError, match="no Ray cluster at"), cluster(address):
        pass


def test_a_cluster_that_wants_a_token_is_no_bug(tmp_path: Path) -> None:
    """Ray asks for one as soon as somebody listens there."""
    unset = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"}
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env |= {"RAY_AUTH_MODE": "token", "HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-m", "raystream", "jobs", "--address", address]
        done = subprocess.run(
            command, check=False, env=env, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == REFUSED
    assert "is not open to this process" in done.stderr and "RAY_AUTH_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr and "report it" not in done.stderr


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a Ray is when it has started."""
    monkeypatch.setattr(environment, "_given", {})
    context = SimpleNamespace(gcs_address="127.0.0.1:7")
    monkeypatch.setattr(deploy.ray, "get_runtime_context", lambda: context)
    return "127.0.0.1:7"


def test_a_ray_that_was_too_slow_to_start_is_started_again(
    monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    tried: list[dict[str, Any]] = []

    def init(address: str, **options: Any) -> None:
        tried.append(options)
        if len(tried) < 2:
            raise Exception("The current node timed out during startup.\nAnd more.")

    monkeypatch.setattr(deploy.ray, "init", init)
    deploy.start_ray(num_cpus=3)
    assert [options["num_cpus"] for options in tried] == [3, 3]
    assert [*environment._given] == [at]


def test_a_ray_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(address: str, **options: Any) -> None:
        raise Exception("The current node timed out during startup.\nAnd more.")

    monkeypatch.setattr(deploy.ray, "init", init)
    with pytest.raises(ConfigError, match=r"did not start .* timed out during startup\.") as caught:
        deploy.start_ray()
    assert "tried 2 times" in caught.value.hint


def test_auto_is_the_cluster_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy.ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"no Ray cluster at '127.0.0.1:1'"), cluster("auto"):
        pass


def test_a_cluster_that_was_killed_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Ray goes on noting its address, and would join it for minutes unless told to start one."""
    asked: list[str | None] = []
    monkeypatch.setattr(services, "find_gcs_addresses", set[str])
    monkeypatch.setattr(utils, "read_ray_address", lambda: "192.0.2.1:6379")
    monkeypatch.setattr(deploy.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(deploy.ray, "init", lambda address=None, **options: asked.append(address))
    monkeypatch.setattr(deploy.ray, "shutdown", lambda: None)
    monkeypatch.setattr(own_ray, "note", lambda token: at)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    told: list[str] = []
    with cluster("auto", on_note=told.append):
        pass
    assert asked == ["local"]
    assert told == ["started a Ray for this run, at 127.0.0.1:7"]


def ray_of_a_run(folder: Path, session: str, address: str) -> None:
    noted = folder / f"session_{session}" / own_ray.NOTE
    noted.parent.mkdir()
    noted.write_text(f"{address}\ntoken of {session}\n", encoding="utf-8")


def test_who_looks_finds_the_ray_that_a_run_started_for_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str | None] = []
    ray_of_a_run(tmp_path, "1", "127.0.0.1:1")
    for session in ("0", "1b", "2"):  # earlier ones that had the same address have ended
        ray_of_a_run(tmp_path, session, "127.0.0.1:2")
    monkeypatch.setattr(ray_utils, "get_default_ray_temp_dir", lambda: str(tmp_path))
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: {"127.0.0.1:2", "127.0.0.1:3"})
    monkeypatch.setattr(utils, "read_ray_address", lambda: None)
    monkeypatch.setattr(deploy, "_answers", lambda address: None)
    monkeypatch.setattr(deploy.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(deploy.ray, "init", lambda address=None, **options: asked.append(address))
    monkeypatch.setattr(deploy.ray, "shutdown", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = {name: os.environ.get(name) for name in (access.MODE, access.TOKEN)}
    with visited("auto"):
        assert (os.environ[access.MODE], os.environ[access.TOKEN]) == ("token", "token of 2")
        assert get_authentication_mode() == AuthenticationMode.TOKEN
    assert {name: os.environ.get(name) for name in before} == before
    assert get_authentication_mode() == AuthenticationMode.DISABLED
    assert asked == ["127.0.0.1:2"]
    with pytest.raises(ConfigError, match="no Ray is there"), cluster("auto", start=False):
        pass  # a run leaves it alone: it ends with the other one
    ray_of_a_run(tmp_path, "3", "127.0.0.1:3")
    with pytest.raises(ConfigError, match="several runs") as caught, visited("auto"):
        pass
    assert "--address 127.0.0.1:2 or 127.0.0.1:3" in caught.value.hint
    monkeypatch.setattr(os, "getuid", lambda: -1)
    with pytest.raises(ConfigError, match="no Ray is there"), visited("auto"):
        pass  # those of other users are not looked at


def test_a_ray_of_a_run_asks_for_a_token_unless_the_user_has_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (access.TOKEN, access.TOKEN_PATH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(access.MODE, "disabled")
    assert access.show_own() == "" and os.environ[access.MODE] == "disabled"
    monkeypatch.delenv(access.MODE)
    with access.as_before():
        token = access.show_own()
        assert len(token) == 64 and os.environ[access.TOKEN] == token
        assert get_authentication_mode() == AuthenticationMode.TOKEN
        assert AuthenticationTokenLoader.instance().get_raw_token() == token
    monkeypatch.setenv(access.TOKEN_PATH, "/somewhere")
    assert access.show_own() == "" and access.MODE not in os.environ


def test_every_process_of_a_job_imports_only_what_it_needs_to_start() -> None:
    heavy = "{'numba', 'pandas', 'pyarrow.compute', 'ray.autoscaler.sdk'}"
    code = f"import sys, raystream.actors.deploy; print(sorted({heavy} & set(sys.modules)))"
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_flow_of_main_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @rs.operator(key="word")
    def here(word: Word) -> Iterator[Running]:
        yield Running(word.word, 1)

    here.__module__ = "__main__"
    flow = rs.Flow("main")
    source = flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=30))
    source.through(split).through(here).to(Collect())
    with pytest.raises(GraphError, match="here is defined in __main__") as caught:
        refuse_main(make_plan(flow))
    assert caught.value.where is not None and caught.value.where.file == __file__
    assert "raystream run module:flow" in caught.value.hint


def test_bounds_of_nobody_are_refused_before_anything_is_started() -> None:
    flow = rs.Flow("bounded")
    source = flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=30), name="lines")
    source.through(split).through(running, name="count").to(Collect(), name="out")
    with pytest.raises(ConfigError, match="no operator 'cuont'") as caught:
        flow.run(cluster="127.0.0.1:1", policy=rs.CpuThreshold(), bounds={"cuont": (1, 2)})
    assert "There are lines, count, out" in str(caught.value)


@pytest.mark.parametrize(("given", "begins"), [({}, 3), ({"count": 4}, 4), ({"count": 1}, 1)])
def test_an_operator_begins_with_the_least_of_its_bounds_unless_more_is_said(
    given: dict[str, int], begins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = rs.Flow("bounded")
    source = flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=30), name="lines")
    source.through(split).through(running, name="count").to(Collect(), name="out")
    ran: list[Any] = []
    monkeypatch.setattr(Follow, "run", lambda _self, plan: ran.append(plan))
    bounds = {"count": (3, 5), "lines": (1, 1)}
    flow.run(cluster="127.0.0.1:1", instances=given, policy=rs.CpuThreshold(), bounds=bounds)
    (plan,) = ran
    assert {v.name: len(plan.ranges[v.id]) for v in plan.vertices} == {
        "lines": 1,
        "count": begins,
        "out": 1,
    }


class Hasty:
    """A policy that looks at reports of no time."""

    interval = 0.0

    def decide(self, loads: object) -> list[rs.Target]:
        return []


@pytest.mark.parametrize("policy", ["cpu", rs.CpuThreshold, Hasty(), object()])
def test_what_is_no_policy_is_refused_before_anything_is_started(policy: Any) -> None:
    flow = rs.Flow("judged")
    flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=30)).to(Collect())
    with pytest.raises(ConfigError, match=r"policy=.* is none"):
        flow.run(cluster="127.0.0.1:1", policy=policy)


@pytest.mark.parametrize(
    ("policy", "pool", "taken"),
    [
        ("auto", None, None),
        ("auto", 2, rs.CpuThreshold()),
        (None, 2, None),
        (rs.RateBased(), 2, rs.RateBased()),
    ],
)
def test_a_pool_scales_by_itself_unless_it_is_not_to(
    policy: Any, pool: int | None, taken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Options] = []

    def refuse(plan: object, *, options: Options, **told: object) -> None:
        given.append(options)
        raise Stopped("enough")

    monkeypatch.setattr(deploy, "run_on_ray", refuse)
    flow = rs.Flow("pooled")
    flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=30)).to(Collect())
    with pytest.raises(Stopped):
        flow.run(cluster="auto", policy=policy, pool=pool)
    assert (given[0].policy, given[0].pool) == (taken, pool and rs.PoolOptions(pool))


def test_a_controller_that_is_late_is_no_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has begun again looks for its journal before it answers."""
    waits = {
        "result": iter([([], ["result"]), ([], ["result"]), (["result"], [])]),
        "samples": iter([([], ["samples"]), (["samples"], [])]),
    }
    sample = Sample(1.0, {}, {}, None)
    answers = iter([[sample], SimpleNamespace(samples=(sample,))])
    looks: list[None] = []
    head: Any = SimpleNamespace(look=lambda: looks.append(None))
    monkeypatch.setattr(deploy, "SAMPLES_SECONDS", -1.0)
    monkeypatch.setattr(ray, "wait", lambda calls, **_: next(waits[calls[0]]))
    monkeypatch.setattr(ray, "get", lambda _: next(answers))
    controller = SimpleNamespace(samples=SimpleNamespace(remote=lambda since: "samples"))
    shown: list[Sample] = []
    report: Any = deploy._follow(controller, "result", shown.append, head)
    assert len(looks) == 3, "whether the cluster is still there is asked whenever one waits"
    assert report.samples == (sample,) and shown == [sample, sample]


def ending(monkeypatch: pytest.MonkeyPatch, wait: Any, processes: Any) -> list[Any]:
    """Who is killed when a run ends, as Ray answers like this; the controller is None."""
    killed: list[Any] = []
    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "kill", lambda _: killed.append(None))
    monkeypatch.setattr(deploy, "processes_of", processes)
    monkeypatch.setattr(deploy, "kill", lambda run, process: killed.append(process))
    return killed


CONTROLLER = SimpleNamespace(cancel=SimpleNamespace(remote=lambda: None))


def test_a_second_ctrl_c_ends_the_wait_and_not_the_killing(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(calls: object, timeout: float) -> tuple[list[str], list[str]]:
        if timeout:
            raise KeyboardInterrupt
        return [], ["result"]

    killed = ending(monkeypatch, wait, lambda run: ["count/0"])
    with pytest.raises(KeyboardInterrupt):
        deploy._end("run", CONTROLLER, "result")
    assert killed == [None, "count/0"]


def test_to_end_a_job_whose_cluster_is_gone_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hide why this process ends: an interrupt, say."""

    def gone(run: str) -> list[str]:
        raise AuthenticationError("WrongClusterID")

    killed = ending(monkeypatch, lambda calls, timeout: (["result"], []), gone)
    deploy._end("run", CONTROLLER, "result")
    assert killed == [None]


def test_the_ray_of_a_run_writes_little_at_a_time_to_disk_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What its store has no room for."""
    names, usual = [f"RAY_{name}" for name in deploy.SPILLING], str(deploy.SPILL_BYTES)
    for given, expected in (({}, [usual, usual]), ({names[1]: "5"}, [None, "5"])):
        monkeypatch.setattr(os, "environ", environ := dict[str, str](given))
        deploy._set_defaults()
        assert [environ.get(name) for name in names] == expected
