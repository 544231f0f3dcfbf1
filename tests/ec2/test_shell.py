"""What the commands of `cluster.yaml` come to on a node, through all shells that Ray puts around.

The home of the node and the programs in it are made here; the programs say how they were called.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ec2.conftest import cluster_yaml
from tests.gates import LIMIT_SECONDS, until

SAY = """#!/bin/bash
shown="$RAY_AUTH_MODE:$RAY_USE_TLS|$RAY_enable_autoscaler_v2|$RAY_OVERRIDE_LABELS"
printf '%s\\n' "$(basename $0) $*|$shown" >> ~/said
"""
BASHRC = "case $- in *i*) ;; *) return;; esac\n"
"""As on Ubuntu: whatever is behind it, only interactive shells read."""


ADDRESSES = ("10.0.0.7", "172.17.0.1")
"""Those of the node; with Docker it has two."""


def signing(home: Path) -> str:
    """How the node signs its certificate."""
    hosts = " ".join(f"--host {address}" for address in ADDRESSES)
    ray = home / ".ray"
    return f"raystream certificates {ray}/node --by {ray}/ca --days 3650 {hosts}"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / ".bashrc").write_text(BASHRC)
    for name in ("ray", "python", "pip", "raystream", "hostname"):
        (tmp_path / "venv" / "bin" / name).write_text(SAY)
        (tmp_path / "venv" / "bin" / name).chmod(0o755)
    (tmp_path / "venv" / "bin" / "hostname").write_text(
        f"#!/bin/sh\necho '{' '.join(ADDRESSES)} '\n"
    )
    return tmp_path


def on_node(home: Path, commands: list[str], exports: dict[str, str], **variables: Any) -> None:
    """Run commands as Ray's updater does, but for SSH itself: what is behind the address is a line
    for a shell there."""
    from ray.autoscaler._private import command_runner
    from ray.autoscaler._private.util import with_envs

    for command in with_envs(commands, exports):
        told = command_runner._with_environment_variables(command, variables)
        line = " ".join(command_runner._with_interactive(told))
        environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        shell = ["sh", "-c", line]
        subprocess.run(
            shell, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True,
            timeout=LIMIT_SECONDS,
        )  # fmt: skip


def said(home: Path, lines: int) -> list[list[str]]:
    """How programs were called: the command, and what it was told."""

    def found() -> list[list[str]]:
        return [line.split("|") for line in (home / "said").read_text().splitlines()]

    until(lambda: (home / "said").exists() and len(found()) >= lines)
    assert len(found()) == lines, found()
    return found()


def test_a_head_is_installed_and_started(home: Path) -> None:
    config = cluster_yaml()
    on_node(home, config["setup_commands"], {})
    v2 = {"RAY_enable_autoscaler_v2": "1", "RAY_CLOUD_INSTANCE_ID": "i-1"}
    on_node(home, config["head_start_ray_commands"], v2, RAY_OVERRIDE_RESOURCES={"CPU": 4})
    (home / "ray-head").unlink()  # what begins the head again ends with that
    until(lambda: "ray start" in (home / "said").read_text())
    pip, stop, signed, *others = (
        line.split("|") for line in (home / "said").read_text().splitlines()
    )
    start = next(each for each in others if each[0].startswith("ray start"))
    told = ["token:1", "1", ""]
    assert ["ray status", *told] in others
    assert pip[0].startswith("pip install") and pip[0].endswith(f"{home}/raystream[s3,tls]")
    assert (stop, signed) == (["ray stop", *told], [signing(home), *told])
    command, _, system = start[0].partition(" --system-config=")
    assert command.startswith("ray start --head") and start[1:] == told
    assert json.loads(system)["health_check_failure_threshold"] == 3


def test_an_operator_node_joins_and_watches(home: Path) -> None:
    config = cluster_yaml()
    for _ in range(2):  # a node may be set up again
        on_node(home, config["setup_commands"], {})
    labels = config["available_node_types"]["operator-spot"]["labels"]
    joins = {"RAY_HEAD_IP": "10.0.0.1", "RAY_CLOUD_INSTANCE_ID": "i-2"}
    on_node(home, config["worker_start_ray_commands"], joins, RAY_OVERRIDE_LABELS=labels)
    told = ["token:1", "", '{"market":"spot"}']
    assert said(home, 6)[2:] == [
        ["ray stop", *told],
        [signing(home), *told],
        ["ray start --address=10.0.0.1:6379 --object-manager-port=8076", *told],
        ["python -m raystream.actors.cluster.spot --address 10.0.0.1:6379", *told],
    ]
    assert (home / ".bashrc").read_text().count("ray-env") == 1
