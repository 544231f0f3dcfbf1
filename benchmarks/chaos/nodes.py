"""Raylets on this machine: all may be killed, the head too, and each is replaced."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import psutil

from benchmarks.chaos.spaces import Cut, Spaces

HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
ON_DISK = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_rpc_server_reconnect_timeout_s": "300"}
"""What the head knows is stored on its disk, and nodes and processes wait so long for a head that
is gone."""
STORE = "RAY_gcs_storage_path"
HOSTS = 24
"""How many namespaces there are."""
ENDS_SECONDS = 8.0
"""How long a node that was cut off may take to end, once Ray has told it to."""


class Nodes:
    """Raylets on this machine; each that is killed is replaced.

    Ray's processes end with the thread that started them. So the head is begun again by a thread
    that lives as long as this object.

    Args:
        count: how many, with the head.
        head_dies: whether the head may be killed. Then Ray stores what it knows on disk, and this
            process connects to another node.
        cuts: whether links may be cut. Then each node is in a network namespace of its own, and
            this process in that of the second one, to which it connects.

    Raises:
        NoNamespacesError: links cannot be cut on this machine.
    """

    def __init__(self, count: int, *, head_dies: bool = False, cuts: bool = False) -> None:
        from ray.cluster_utils import Cluster

        from raystream.actors.cluster.environment import fixed, have
        from raystream.actors.cluster.ray_internals import reload_token as reload_settings

        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._head_args: dict[str, Any] = {
            "num_cpus": 1,
            "include_dashboard": False,
            "_system_config": HEALTH_CHECKS,
        }
        self._store = tempfile.mkdtemp(prefix="rs-gcs-") if head_dies else ""
        self._started = 0
        self._spaces = Spaces(HOSTS) if cuts else None
        self._hosts: dict[int, int] = {}
        """By node its host, where links may be cut."""
        self._threads: list[ThreadPoolExecutor] = []
        self._cut: int | None = None
        """The node whose link is cut, or was until a moment ago."""
        self._whole_at = 0.0
        """When it was mended and the node has had time to end, if it has to."""
        if self._spaces is not None:
            self._spaces.enter(1)  # also for all threads that come
            self._head_args["node_ip_address"] = self._spaces.address(0)
        if head_dies:
            os.environ.update(ON_DISK | {STORE: self._store})
            reload_settings()
            self._head_args["gcs_server_port"] = _free_port()
            self._head_args.setdefault("node_ip_address", self._address())
        os.environ.update(fixed())  # for those that are started later, too
        self.head_is_away = False
        self._starter = self._at(0)
        self._cluster: Any = self._starter.submit(
            Cluster,
            initialize_head=True,
            head_node_args=self._head_args,
            shutdown_at_exit=False,  # that would need signals, which other threads cannot set
        ).result()
        self.address: str = self._cluster.address
        have(self.address, fixed())
        self.head = _raylet(self._cluster.head_node)
        self._workers = {_raylet(n): n for n in (self._add() for _ in range(count - 1))}
        head_node: Any = self._cluster.head_node
        self._logs = str(head_node.get_logs_dir_path())
        self.home: int | None = None
        """The node to which this process is connected, if that is not the head."""
        if head_dies or cuts:
            self._connect()

    def _at(self, host: int) -> ThreadPoolExecutor:
        """A thread that starts the processes of a host, and lives as long as they may."""
        enter = None if self._spaces is None else partial(self._spaces.enter, host)
        self._threads.append(ThreadPoolExecutor(1, f"host {host}", enter))
        return self._threads[-1]

    def _address(self) -> str:
        """An address of its own for each node. Ray takes 127.0.0.1 for any of this machine."""
        self._started += 1
        return f"127.0.{self._started // 250}.{self._started % 250 + 1}"

    def _add(self) -> Any:
        if self._spaces is None:
            apart = {"node_ip_address": self._address()} if self._store else {}
            return self._cluster.add_node(num_cpus=1, **apart)
        used = {host for node, host in self._hosts.items() if psutil.pid_exists(node)}
        host = min(set(range(1, HOSTS)) - used)
        apart = {"node_ip_address": self._spaces.address(host)}
        add = partial(self._cluster.add_node, num_cpus=1, **apart)
        node = self._at(host).submit(add).result()
        self._hosts[_raylet(node)] = host
        return node

    def _connect(self) -> None:
        """Connect this process to a node that is not the head: it would end with the head."""
        import ray

        from raystream.actors.cluster.environment import job_config

        self.home = next(iter(self._workers))
        ray.init(
            self.address,
            _node_ip_address=self._workers[self.home].node_ip_address,
            job_config=job_config(),
            log_to_driver=False,
            logging_level=logging.ERROR,
        )

    @property
    def logs(self) -> str:
        """The folder where Ray keeps what the processes logged."""
        return self._logs

    def kill(self, node: int) -> None:
        """Kill the node whose raylet has this process id, with all that runs on it; start another.

        Raises:
            KeyError: it is the head, or none of these.
        """
        self._cluster.remove_node(self._workers.pop(node), allow_graceful=False)
        new = self._add()
        self._workers[_raylet(new)] = new

    @property
    def is_cut(self) -> bool:
        """Whether a link is cut, or was until a moment ago."""
        return self._cut is not None

    def cut(self, node: int, how: Cut, seconds: float) -> None:
        """Cut the link of a node for so many seconds.

        Raises:
            KeyError: the node is none of these.
        """
        assert self._spaces is not None, "links are not to be cut"
        host = self._hosts[node]
        self._spaces.cut(host, how)
        self._cut, self._whole_at = node, time.monotonic() + seconds + ENDS_SECONDS
        mend = threading.Timer(seconds, self._spaces.mend, [host])
        mend.daemon = True
        mend.start()

    def replace_cut(self) -> None:
        """Start another node for one that has ended since its link was cut: Ray ends a node that it
        has taken for dead."""
        node = self._cut
        if node is None or time.monotonic() < self._whole_at:
            return
        self._cut = None
        if self._workers[node].dead_processes():
            self.kill(node)

    def strike_head(self, seconds: float, *, whole: bool) -> None:
        """Kill Ray's server on the head, or all of the head; begin it again after so many seconds.

        Returns at once when it is killed.
        """
        self.head_is_away = True
        if whole:
            self._cluster.remove_node(self._cluster.head_node, allow_graceful=False)
        else:
            self._cluster.head_node.kill_gcs_server()
        self._starter.submit(self._begin_again, seconds, whole)

    def _begin_again(self, seconds: float, whole: bool) -> None:
        time.sleep(seconds)
        if whole:
            self._cluster.add_node(**self._head_args)
            self.head = _raylet(self._cluster.head_node)
        else:
            self._cluster.head_node.start_gcs_server()
        self.head_is_away = False

    def close(self) -> None:
        """End all raylets."""
        import ray

        self._starter.submit(bool).result()  # a head that comes back has come
        if self.home is not None:
            ray.shutdown()
        self._cut = None
        self._cluster.shutdown()
        for thread in self._threads:
            thread.shutdown()
        if self._spaces is not None:
            self._spaces.close()
        if self._store:
            for name in (*ON_DISK, STORE):
                os.environ.pop(name, None)
            with suppress(OSError):
                shutil.rmtree(self._store)


def _raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
