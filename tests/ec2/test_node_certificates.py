"""Nodes that sign their certificates as `cluster.yaml` has them do, each in a home of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from raystream.security.certificates import write_authority
from tests.actors.helpers.heads import (
    BIN,
    Head,
    environment,
    started_head,
    started_node,
    token,
)
from tests.ec2.conftest import cluster_yaml, head_options
from tests.ec2.test_shell import on_node
from tests.gates import LIMIT_SECONDS, until
from tests.processes import free_port

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FLOW = """
import os, signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import raystream as rs


class Order(NamedTuple):
    time: int
    user: int


class Total(NamedTuple):
    user: int
    n: int


class Tally(rs.State):
    n: int = 0


@rs.operator(key="user")
def count(order: Order, tally: Tally) -> Iterator[Total]:
    if order.time == 400 and not (killed := Path({folder!r}, "killed")).exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    tally.n += 1
    yield Total(order.user, tally.n)


flow = rs.Flow("killed-once")
orders = rs.io.iterable([Order(t, t % 3) for t in range(600)], Order)
source = flow.source(orders, epochs=rs.by_time(seconds=1, speed=100))
source.through(count).to(rs.io.csv({folder!r} + "/totals"))
"""

GIVES_UP_SOON = {"RAY_py_gcs_connect_timeout_s": "2", "RAY_gcs_rpc_server_connect_timeout_s": "1"}
"""Ray would try for 45 s."""


class Cluster(NamedTuple):
    """Two nodes; `inside` and `without` are the environments of commands on the first one, with
    TLS and without."""

    head: Head
    inside: dict[str, str]
    without: dict[str, str]


def signed(home: Path, authority: Path, address: str) -> dict[str, str]:
    """Set a node up, as far as it is about certificates: what its shells have then."""
    programs = home / "venv" / "bin"
    programs.mkdir(parents=True)
    (home / ".ray").mkdir()
    (home / ".ray" / "ca").symlink_to(authority)
    does = {"hostname": f"echo {address}", "pip": "", "ray": "", "raystream": f"{BIN}/raystream $@"}
    for name, line in does.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    config = cluster_yaml()
    for command in [*config["setup_commands"], config["worker_start_ray_commands"][1]]:
        on_node(home, [command], {})
    line = ["sh", "-c", ". ~/ray-env; env"]
    told = subprocess.run(line, env={"HOME": str(home)}, capture_output=True, text=True, check=True)
    variables = dict(v.split("=", 1) for v in told.stdout.splitlines())
    return {name: value for name, value in variables.items() if name.startswith("RAY_")}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    homes = tmp_path_factory.mktemp("homes")
    write_authority(homes / "ca", 1)
    one, two = (signed(homes / f"node{n}", homes / "ca", f"127.0.1.{n}") for n in (1, 2))
    assert one["RAY_USE_TLS"] == "1" and one["RAY_TLS_SERVER_KEY"] != two["RAY_TLS_SERVER_KEY"]
    at = f"127.0.1.1:{free_port()}"
    with (
        token() as shown,
        started_head(*head_options(), at=at, env={**one, **shown}) as head,
        started_node(head, "--node-ip-address=127.0.1.2", env={**two, **shown}),
    ):
        made = Cluster(head, {**one, **shown}, shown)
        until(lambda: both_are_there(status(made, made.inside)))
        yield made


def asked(
    cluster: Cluster, env: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "ray", *arguments],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def status(cluster: Cluster, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return asked(cluster, env, "status", "--address", cluster.head.address)


def both_are_there(told: subprocess.CompletedProcess[str]) -> bool:
    """The head writes down every few seconds which nodes it has, and that is told."""
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout.count("1 node_") == 2


def test_a_job_on_nodes_with_certificates_of_their_own_recovers(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "killed.py").write_text(FLOW.format(folder=str(tmp_path)))
    run = ("python", "-m", "raystream", "run", "killed:flow", "--copies", "2")
    where = ("--address", cluster.head.url, "--working-dir", str(tmp_path / "flows"))
    done = asked(cluster, cluster.inside, "job", "submit", *where, "--", *run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "killed").exists()
    files = (tmp_path / "totals").rglob("*.csv")
    lines = [line for file in files for line in file.read_text().splitlines()]
    rows = sorted(tuple(map(int, line.split(","))) for line in lines if line[0].isdigit())
    assert rows == [(user, n) for user in range(3) for n in range(1, 201)]


def test_the_token_alone_opens_no_door(cluster: Cluster) -> None:
    refused = status(cluster, {**cluster.without, **GIVES_UP_SOON})
    assert refused.returncode != 0 and "while waiting for GCS" in refused.stderr, refused.stderr
    said = (cluster.head.folder / "session_latest" / "logs" / "gcs_server.err").read_text()
    assert "Handshake failed" in said and "WRONG_VERSION_NUMBER" in said, said
    assert status(cluster, cluster.inside).returncode == 0
