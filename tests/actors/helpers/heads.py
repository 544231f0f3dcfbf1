"""Heads of clusters as `ray start` makes them: child processes, on loopback, ended by their ids."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

import psutil

from tests.actors.conftest import GONE_SECONDS
from tests.gates import LIMIT_SECONDS, until
from tests.processes import family_of, free_port, kill_each

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[3]
END_SECONDS = 30.0
"""How long a program may take to end; what is left of it is killed then."""
STARTS = 3
"""How often a head or a node is started that does not come up."""
UP = "Ray runtime started"
LOG_LINES = 40
"""How much of each log of a head is shown when a test fails."""
HEAD_ID = "f" * 51 + "00000"
"""The node id that Ray gives the head of a fake cluster."""

AUTOSCALER = {"RAY_enable_autoscaler_v2": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
GCS = "the address of the cluster"
COMMANDS = [
    *("initialization_commands", "setup_commands", "cluster_synced_files"),
    *(f"{kind}_{what}_commands" for kind in ("head", "worker") for what in ("setup", "start_ray")),
]
"""What Ray wants to see in a configuration although nobody is set up."""


class Head(NamedTuple):
    """address: of the cluster; url: of the dashboard; process: `ray start`; folder: with a short
    name, because Ray makes sockets in it."""

    address: str
    url: str
    process: psutil.Process
    folder: Path


def environment(**more: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    path = f"{BIN}{os.pathsep}{env['PATH']}"
    return {
        **env,
        "PATH": path,
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        **more,
    }


def end(
    process: subprocess.Popen[str],
    how: signal.Signals = signal.SIGTERM,
    seconds: float = END_SECONDS,
) -> None:
    """End a process and all that it started; what is left after so many seconds is killed."""
    family = family_of(process.pid)
    process.send_signal(how)
    _, alive = psutil.wait_procs(family, timeout=seconds)
    kill_each(alive)
    process.wait(GONE_SECONDS)


@contextmanager
def short_folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="rs-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def token() -> Iterator[dict[str, str]]:
    """The environment of who may talk to a cluster that is started with it, and nobody else."""
    with short_folder() as keys:
        (keys / "token").write_text(secrets.token_hex(32))
        yield {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(keys / "token")}


@contextmanager
def started_head(
    *options: str,
    env: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
    at: str = "",
) -> Iterator[Head]:
    """A cluster of one node, to which its autoscaler may add others.

    Args:
        env: more of its environment. config: of the autoscaler; a `GCS` in it is replaced by the
            address of the cluster. at: its address, if it is to be a certain one.
    """
    port, board, agent, metrics, client = (free_port() for _ in range(5))
    host, _, given = at.rpartition(":")
    host, port = host or "127.0.0.1", int(given or port)
    with short_folder() as folder:
        command = [
            *(BIN / "ray", "start", "--head", "--block", "--num-cpus=2", "--disable-usage-stats"),
            *(f"--node-ip-address={host}", f"--port={port}", f"--temp-dir={folder}"),
            *("--dashboard-host=127.0.0.1", f"--dashboard-port={board}"),
            *(f"--dashboard-agent-listen-port={agent}", f"--metrics-export-port={metrics}"),
            *(f"--ray-client-server-port={client}", f"--object-store-memory={100 << 20}"),
            *options,
        ]
        address, url = f"{host}:{port}", f"http://127.0.0.1:{board}"
        if config is not None:
            file = folder / "autoscaling.yaml"
            file.write_text(json.dumps(config).replace(json.dumps(GCS), json.dumps(address)))
            command.append(f"--autoscaling-config={file}")
            env = {**AUTOSCALER, **(env or {})}
        head = _started(command, env or {}, folder / "head.log")
        try:
            assert answers(f"{url}/api/version", head), "the head does not answer"
            yield Head(address, url, psutil.Process(head.pid), folder)
        except BaseException:  # its folder, and all that it said, goes away with it
            _tell_logs(folder)
            raise
        finally:  # by itself it would take seconds, and leave the machines of its autoscaler
            if head.poll() is None:
                end(head, seconds=0.0)


def _started(
    command: Sequence[str | Path], env: Mapping[str, str], log: Path
) -> subprocess.Popen[str]:
    """`ray start --block` that says that all has started, or has ended. It is tried again when it
    ends: Ray gives its processes half a minute, which is not enough on a busy machine."""
    for attempt in range(STARTS):
        with open(log, "w") as file:
            process = subprocess.Popen(
                command, env=environment(**env), stdout=file, stderr=file, text=True
            )
        until(lambda p=process: p.poll() is not None or UP in log.read_text(errors="replace"))
        if process.poll() is None or attempt == STARTS - 1:
            break
    return process


def _tell_logs(folder: Path) -> None:
    """Print the ends of what a head has said. Pytest shows it with a test that fails."""
    logs = folder / "session_latest" / "logs"
    said = [folder / "head.log", *sorted(logs.glob("*.err")), logs / "gcs_server.out"]
    for file in said:
        with suppress(OSError):
            lines = file.read_text(errors="replace").splitlines()[-LOG_LINES:]
            if lines:
                print(f"---- the end of {file.name}", *lines, sep="\n")


def answers(url: str, process: subprocess.Popen[str]) -> bool:
    """Wait until a server answers; False when its process has ended or it takes too long."""
    for _ in range(int(LIMIT_SECONDS) * 4):
        with suppress(OSError):
            try:
                urllib.request.urlopen(url, timeout=5).close()
            except HTTPError as refused:  # who has no token hears that
                refused.close()
            return True
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.25)
            return False
    return False


@contextmanager
def started_node(head: Head, *options: str, env: Mapping[str, str]) -> Iterator[psutil.Process]:
    """A further node, as `ray start` makes it."""
    agent, metrics = free_port(), free_port()
    command = [
        *(BIN / "ray", "start", f"--address={head.address}", "--block", "--num-cpus=1"),
        *("--node-ip-address=127.0.0.1", f"--object-store-memory={80 << 20}"),
        *(f"--dashboard-agent-listen-port={agent}", f"--metrics-export-port={metrics}"),
        *options,
    ]
    node = _started(command, env, head.folder / "node.log")
    try:
        yield psutil.Process(node.pid)
    finally:
        if node.poll() is None:
            end(node, seconds=0.0)


@contextmanager
def autoscaled_head(
    worker: dict[str, Any], env: Mapping[str, str], *, workers_max: int, idle_seconds: float
) -> Iterator[Head]:
    """A cluster whose autoscaler (Ray's, version 2) starts nodes that are processes here.

    `ray.cluster_utils.AutoscalingCluster` is to do that, but wants a file that Ray's package does
    not have, and calls `ray stop`, which ends whatever Ray there is on the machine.

    Args:
        worker: what each node offers. env: more of the environment. idle_seconds: when a node that
            does nothing is ended.
    """
    config = {
        "cluster_name": "fake",
        "max_workers": workers_max,
        "idle_timeout_minutes": idle_seconds / 60,
        "provider": {
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "gcs_address": GCS,
            "head_node_id": HEAD_ID,
            "launch_multiple": True,
        },
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 2}, "node_config": {}, "max_workers": 0},
            "operator": {
                "resources": {"object_store_memory": 80 << 20, **worker},
                "node_config": {},
                "max_workers": workers_max,
            },
        },
        "head_node_type": "ray.head.default",
        **{key: {} for key in ("file_mounts", "docker", "auth")},
        **{key: [] for key in COMMANDS},
    }
    env = {
        **env,
        "RAY_FAKE_CLUSTER": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
        "RAY_NODE_TYPE_NAME": "ray.head.default",
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
    }
    with started_head(env=env, config=config) as head:
        yield head


@contextmanager
def program(
    *arguments: str, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A Python program; its standard error goes into its standard output."""
    child = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment(PYTHONPATH=str(ROOT), **(env or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            end(child)
        assert child.stdout is not None
        child.stdout.close()


def heard(story: subprocess.Popen[str], what: str) -> dict[str, Any]:
    """The next thing that a story tells."""
    assert story.stdout is not None
    line = story.stdout.readline()
    while line.startswith("\x1b[33m(raylet)"):  # Ray says something, too
        line = story.stdout.readline()
    assert line.startswith("{"), line + story.stdout.read()
    told: dict[str, Any] = json.loads(line)
    assert told["what"] == what
    return told
