"""EC2 on this machine: a server of `moto`, where boto3 and Ray's launcher find it."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "ami-12c6146b"
"""One of those that the server knows."""


def cluster_yaml() -> dict[str, Any]:
    """`cluster.yaml`, with an image."""
    read: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))
    filled = copy.deepcopy(read)  # which resolves what YAML shares
    for kind in filled["available_node_types"].values():
        kind["node_config"]["ImageId"] = IMAGE
    return filled


def head_options() -> list[str]:
    """What `cluster.yaml` gives `ray start` on the head, paths of the head and ports left out."""
    (command,) = [c for c in cluster_yaml()["head_start_ray_commands"] if "ray start" in c]
    words = shlex.split(command.partition("ray start")[2].partition(">>")[0])
    elsewhere = ("--autoscaling-config", "--port", "--object", "--block")
    return [w for w in words if not w.startswith(elsewhere)]


@pytest.fixture(scope="module")
def ec2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An EC2 without instances; the environment in which it is found.

    One for a module, with all that Ray does there: Ray keeps its connections.
    """
    from moto.server import ThreadedMotoServer

    home = tmp_path_factory.mktemp("home")
    (home / ".ssh").mkdir()
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "anybody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-west-2",
        "AWS_EC2_METADATA_DISABLED": "true",
        "MOTO_IAM_LOAD_MANAGED_POLICIES": "true",
        "NO_PROXY": "127.0.0.1",
        "HOME": str(home),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.chdir(ROOT)
        yield environment
    server.stop()


@pytest.fixture(scope="module")
def made(ec2: dict[str, str]) -> dict[str, Any]:
    """The configuration after `ray up` has made what it needs: a role, keys, a network."""
    from ray.autoscaler._private.aws import config as aws
    from ray.autoscaler._private.util import prepare_config

    class Time:
        """Nobody waits for IAM to know in all its places."""

        @staticmethod
        def sleep(_: float) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aws, "time", Time)
        return aws.bootstrap_aws(prepare_config(cluster_yaml()))
