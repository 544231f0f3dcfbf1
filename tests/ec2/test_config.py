"""`cluster.yaml` is what Ray takes, and means to Ray what it says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from raystream.actors.cluster.connecting import SPILL_BYTES, SPILLING
from raystream.controller.elastic.pool import OPERATOR_NODE
from tests.ec2.conftest import ROOT, cluster_yaml, head_options
from tests.gates import LIMIT_SECONDS


def valid(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration as Ray completes it.

    Raises:
        jsonschema.ValidationError, ValueError: Ray does not take it.
    """
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared: dict[str, Any] = prepare_config(config)
    validate_config(prepared)
    return prepared


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(ROOT)
    return valid(cluster_yaml())


def test_ray_takes_it(prepared: dict[str, Any]) -> None:
    assert prepared["head_node_type"] == "head"
    assert prepared["docker"] == {}


@pytest.mark.parametrize("change", [{"idle_minutes": 2}, {"max_workers": "12"}, {"provider": {}}])
def test_ray_would_refuse_what_is_wrong(change: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"idle_minutes|'12'|type"):
        valid({**cluster_yaml(), **change})


def test_what_the_autoscaler_reads(
    prepared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig

    config = AutoscalingConfig(prepared, skip_content_hash=True)
    kinds = config.get_node_type_configs()
    workers = {name: kind for name, kind in kinds.items() if name != "head"}
    assert config.get_max_num_worker_nodes() == 12
    for kind in workers.values():
        assert kind.resources == {OPERATOR_NODE: 1}
        assert (kind.min_worker_nodes, kind.max_worker_nodes) == (0, 12)
    markets = {k.labels["market"]: k.priority for k in workers.values()}
    assert markets == {"spot": 1, "on-demand": 0}
    node_configs = {n: config.get_cloud_node_config(n) for n in workers}
    assert {n for n, c in node_configs.items() if "InstanceMarketOptions" in c} == {"operator-spot"}


def test_nodes_get_all_that_installing_the_project_takes(prepared: dict[str, Any]) -> None:
    mounts = {k.rpartition("/")[2]: v for k, v in prepared["file_mounts"].items()}
    assert mounts.pop("auth_token") == "~/.ray/auth_token"
    assert mounts.pop("ca") == "~/.ray/ca"
    assert all((ROOT / path).exists() and name == path for name, path in mounts.items())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {*packages, *project["project"]["license-files"]} <= {*mounts}
    (install,) = [c for c in prepared["setup_commands"] if "pip install" in c]
    assert "constraints.txt" in install and "[s3,tls]" in install
    assert {"s3", "tls"} <= {*project["project"]["optional-dependencies"]}


def test_every_node_wants_the_token(prepared: dict[str, Any]) -> None:
    commands = prepared["head_start_ray_commands"] + prepared["worker_start_ray_commands"]
    starts = [c for c in commands if "ray start" in c or "raystream.actors" in c]
    assert len(starts) == 3
    assert all("RAY_AUTH_MODE=token" in c for c in starts)


def test_a_machine_that_is_gone_is_missed_soon() -> None:
    (option,) = [o for o in head_options() if o.startswith("--system-config=")]
    system = json.loads(option.partition("=")[2])
    period, timeout = system["health_check_period_ms"], system["health_check_timeout_ms"]
    assert system["health_check_failure_threshold"] * (period + timeout) <= 10_000
    assert [system[name] for name in SPILLING] == [SPILL_BYTES, SPILL_BYTES]


def test_the_watcher_for_spot_notices_is_started_as_it_wants(prepared: dict[str, Any]) -> None:
    from typer import Typer
    from typer.main import get_command

    from raystream.actors.cluster.spot import main

    (line,) = [c for c in prepared["worker_start_ray_commands"] if "raystream.actors" in c]
    arguments = re.search(r"-m raystream\.actors\.cluster\.spot (.*?)>>", line)
    assert arguments is not None and line.endswith("&")
    app = Typer()
    app.command()(main)
    given = shlex.split(arguments[1].replace("$RAY_HEAD_IP", "10.0.0.1"))
    context = get_command(app).make_context("spot", given)
    assert context.params["address"] == "10.0.0.1:6379"


def test_the_watcher_of_another_head_does_not_keep_it_away(prepared: dict[str, Any]) -> None:
    (line,) = [c for c in prepared["worker_start_ray_commands"] if "raystream.actors" in c]
    lock = re.search(r"flock -n (\S+) ", line)
    assert lock is not None and "$RAY_HEAD_IP" in lock[1]


def test_all_commands_are_ones_of_a_shell(prepared: dict[str, Any]) -> None:
    names = [k for k in prepared if k.endswith("_commands")]
    found = [command for name in names for command in prepared[name]]
    assert len(found) >= 10
    for command in found:
        subprocess.run(["bash", "-n", "-c", command], check=True, timeout=LIMIT_SECONDS)


def test_a_machine_that_updates_itself_is_waited_for(
    prepared: dict[str, Any], tmp_path: Path
) -> None:
    """`apt-get update` waits for no lock; here it can be had the third time."""
    for name, does in {
        "cloud-init": "exit 2",
        "sleep": "exit 0",
        "sudo": 'echo "$@" >> said; case "$*" in *update*) [ $(wc -l < said) -ge 3 ];; esac',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    for command in prepared["initialization_commands"]:
        shell = ["bash", "-c", command]
        subprocess.run(shell, cwd=tmp_path, env=path, check=True, timeout=LIMIT_SECONDS)
    *updates, install = (tmp_path / "said").read_text().splitlines()
    assert len(updates) == 3 and all("apt-get -q update" in u for u in updates)
    assert "install python3-venv" in install
