"""Notices that EC2 takes a machine away, and tells Ray: `python -m raystream.actors.cluster.spot`.

EC2 tells a spot instance about two minutes before it takes it, in the instance's metadata. This is
a small process of its own on each node (`cluster.yaml` starts it): it asks every few seconds, and
when the notice is there it has Ray drain the node. From then on Ray puts nothing new there, its
autoscaler does not count the node any more, and controllers find it among the nodes that end
(`raystream.actors.cluster.head.ending`).
"""

from __future__ import annotations

import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from http.client import HTTPException
from typing import Annotated, NamedTuple

import typer

METADATA = "http://169.254.169.254"
"""Where EC2 answers every instance."""
POLL_SECONDS = 5.0
"""How often EC2 recommends to ask."""
ANSWER_SECONDS = 2.0
TOKEN_SECONDS = 21600
"""How long a token is asked for; the longest that EC2 gives."""
GCS_SECONDS = 10.0

log = logging.getLogger("raystream.spot")


class Notice(NamedTuple):
    """action: what EC2 will do (terminate, stop, hibernate); at: when, in Unix seconds."""

    action: str
    at: float


class Metadata:
    """The metadata of the instance (IMDSv2: a token first, which every question carries)."""

    def __init__(self, address: str = METADATA) -> None:
        self._address = address
        self._token = ""
        # A proxy would answer for its own machine.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def get(self, path: str) -> str | None:
        """An entry; None if there is none.

        Raises:
            OSError: the service does not answer, or refuses.
        """
        for _ in range(2):
            if not self._token:
                ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
                self._token = self._ask("PUT", "api/token", ttl)
            try:
                return self._ask("GET", path, {"X-aws-ec2-metadata-token": self._token})
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                if error.code != 401:
                    raise
                self._token = ""  # it is too old
        raise OSError(f"{self._address} refuses the token that it has just given")

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> str:
        url = f"{self._address}/latest/{path}"
        request = urllib.request.Request(url, method=method, headers=headers)
        try:
            with self._open(request, timeout=ANSWER_SECONDS) as answer:
                text: str = answer.read().decode()
        except HTTPException as error:
            raise OSError(f"{url}: {type(error).__name__} {error}") from None
        return text

    def notice(self) -> Notice | None:
        """What EC2 has announced.

        Raises:
            OSError: the service does not answer, or not as it should.
        """
        text = self.get("meta-data/spot/instance-action")
        if text is None:
            return None
        try:
            said = json.loads(text)
            at = datetime.fromisoformat(said["time"]).timestamp()
            return Notice(str(said["action"]), at)
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"a notice that nobody understands: {text!r} ({error!r})") from None


def node_on(nodes: Iterable[tuple[str, str, str]], instance: str, address: str) -> str:
    """The node of an instance.

    Args:
        nodes: the id of each, with the id and the address of its instance; empty if unknown.

    Raises:
        OSError: there is none, or there are several.
    """
    nodes = list(nodes)
    here = [node for node, i, _ in nodes if instance and i == instance]
    here = here or [node for node, _, a in nodes if address and a == address]
    if len(here) != 1:
        raise OSError(f"{len(here) or 'no'} nodes of the cluster are on {instance} ({address})")
    return here[0]


def drain_node(gcs: str, instance: str, address: str, notice: Notice) -> str:
    """Have Ray drain the node of an EC2 instance; its id in Ray.

    Args:
        gcs: the address of the cluster. instance, address: of the instance, its id and IP address;
            Ray knows the id of nodes that its launcher has started.

    Raises:
        OSError: Ray cannot be reached, does not know the node or refuses.
    """
    from ray.exceptions import RayError  # late: Ray takes memory

    from raystream.actors.cluster.ray_internals import drain_preempted

    said, at = f"EC2 will {notice.action} {instance}", int(notice.at * 1000)
    find = partial(node_on, instance=instance, address=address)
    try:
        node, taken, why = drain_preempted(gcs, find, said, at, timeout=GCS_SECONDS)
    except (RayError, RuntimeError) as error:
        raise OSError(f"Ray at {gcs}: {error}") from None
    if not taken:
        raise OSError(f"Ray does not drain {node}: {why}")
    return node


def watch(
    metadata: Metadata, drain: Callable[[str, str, Notice], str], wait: Callable[[], None]
) -> str:
    """Wait for the notice and have the node drained; the node.

    What goes wrong is said, once until it goes well again, and tried again.
    """
    trouble = ""
    while True:
        try:
            notice = metadata.notice()
            if notice is not None:
                instance = metadata.get("meta-data/instance-id") or ""
                address = metadata.get("meta-data/local-ipv4") or ""
                return drain(instance, address, notice)
        except OSError as error:
            if str(error) != trouble:
                log.warning("%s; trying again", error)
            trouble = str(error)
        else:
            if trouble:
                log.warning("the metadata of the instance can be read again")
            trouble = ""
        wait()


def main(
    address: Annotated[str, typer.Option(help="Of the cluster: host:port of its head.")],
    metadata: Annotated[str, typer.Option(help="Of the metadata service.")] = METADATA,
    seconds: Annotated[float, typer.Option(min=0.01, help="Between two looks.")] = POLL_SECONDS,
) -> None:
    """Wait until EC2 takes this machine away, have Ray drain its node, and end."""
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.INFO)

    def drain(instance: str, ip: str, notice: Notice) -> str:
        return drain_node(address, instance, ip, notice)

    log.info("watching %s for the cluster at %s", metadata, address)
    node = watch(Metadata(metadata), drain, lambda: time.sleep(seconds))
    log.info("the machine is taken away: Ray drains node %s", node)


if __name__ == "__main__":
    typer.run(main)
