"""Everything private of Ray that raystream touches, and nothing else does.

Ray has no public call for these things. Each function says what it is for;
`tests/native/test_private_parts.py` says in words when a version of Ray no longer has one of them.
What Ray loads slowly is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from ray import _raylet
from ray._private import services, utils, worker
from ray.exceptions import RpcError
from ray.experimental import internal_kv
from ray.job_config import JobConfig

_services: Any = services  # the stubs do not know all that these have
_utils: Any = utils
_worker: Any = worker
_its: Any = _raylet
_kv: Any = internal_kv

# ------------------------------------------------------------------- the Rays of this machine


def head_addresses() -> set[str]:
    """The addresses (host:port) of the heads of all Rays that run on this machine."""
    return set(_services.find_gcs_addresses())


def noted_address() -> str | None:
    """The address that `ray start` noted on this machine last; its Ray may have ended."""
    address: str | None = _utils.read_ray_address()
    return address


def temp_folder() -> Path:
    """The folder where Ray keeps one folder per session."""
    from ray._common import utils

    folder: Any = utils.get_default_ray_temp_dir
    return Path(folder())


def session_folder() -> Path:
    """The folder of the session of the Ray that this process has started."""
    return Path(_worker._global_node.get_session_dir_path())


@contextmanager
def processes_in_groups_of_their_own() -> Iterator[None]:
    """Processes that Ray starts inside the block lead process groups of their own.

    Only where the kernel ends them with the process that started them. Elsewhere Ray finds them
    through the group of the process that started them, and they stay in it.
    """
    popen = _services.ConsolePopen
    if _utils.detect_fate_sharing_support():
        _services.ConsolePopen = partial(popen, process_group=0)
    try:
        yield
    finally:
        _services.ConsolePopen = popen


# --------------------------------------------------------------------------------- tokens


def reload_token() -> None:
    """Have Ray read its variables for tokens again: it keeps what it has read once."""
    _its.Config.initialize("")
    _its.AuthenticationTokenLoader.instance().reset_cache()


def user_has_token() -> bool:
    """Whether the user has a token for all Rays: `ray.init` makes one where there is none."""
    has: Any = _its.AuthenticationTokenLoader.instance().has_token
    return bool(has(ignore_auth_mode=True))


def refuse_wrong_token(address: str) -> None:
    """Ask the cluster at host:port whether it accepts the token that this process shows.

    To join a cluster that does not, Ray tries 20 times, and then says that it could not connect.

    Raises:
        ray.exceptions.AuthenticationError: it does not.
    """
    with suppress(RpcError):  # nobody answers: Ray says so when it joins
        _its.GcsClient(address=address)


# ---------------------------------------------------------------------- where workers import


def job_config(folders: list[str]) -> JobConfig:
    """Have all workers look for modules in these folders, too; the last folder comes first."""
    return JobConfig(_py_driver_sys_path=folders)


def driver_folders() -> set[str]:
    """The folders where workers of this process's job look for modules, besides their own."""
    return set(_worker.global_worker.core_worker.get_job_config().py_driver_sys_path)


# ------------------------------------------------------------------------ actors and nodes


def restarts_of(actor_id: str) -> int | None:
    """How often Ray has restarted an actor, as the cluster knows it now.

    Returns:
        -1 if the actor is not to live any more. None if the cluster does not answer, or does not
        know the actor.
    """
    from ray._private.state import state

    try:
        known = state.actor_table(actor_id)
    except Exception:  # whatever keeps the cluster from answering
        return None
    if not known:
        return None
    return -1 if known["State"] == "DEAD" else int(known["NumRestarts"])


def draining_nodes() -> Mapping[str, int]:
    """The ids of nodes that Ray drains, and when they end: Unix milliseconds, 0 if unknown."""
    from ray._private.state import state

    found: dict[str, int] = state.get_draining_nodes()
    return found


def metric_seconds() -> float:
    """How many seconds there are from one time that a process hands its metrics on to the next."""
    return max(1000.0, _its.Config.metrics_report_interval_ms()) / 1000


class Pulse:
    """Asks the head of the cluster that this process is connected to for a sign of life."""

    def __init__(self) -> None:
        self._client = _worker.global_worker.gcs_client

    def feel(self, timeout: float) -> None:
        """Ask the head, and wait up to `timeout` seconds.

        Raises:
            AuthenticationError: another cluster answers at its address. RayError: no answer.
        """
        self._client.internal_kv_get(b"head", b"raystream", timeout=timeout)


def drain_preempted(
    gcs: str, find: Any, reason: str, deadline_ms: int, *, timeout: float
) -> tuple[str, bool, str]:
    """Have Ray drain a node because its machine is about to be taken away.

    Args:
        gcs: the address of the cluster. find: called with (id, instance id, address) of all nodes
            that are alive; it returns the id of one. reason: for Ray's log. deadline_ms: when the
            machine ends, in Unix milliseconds.

    Returns:
        The id of the node, whether Ray drains it, and why not.
    """
    from ray.core.generated import autoscaler_pb2, gcs_pb2

    autoscaler: Any = autoscaler_pb2
    infos: Any = gcs_pb2
    client = _its.GcsClient(address=gcs)
    nodes = client.get_all_node_info(timeout=timeout).values()
    alive = [n for n in nodes if n.state == infos.GcsNodeInfo.ALIVE]
    node: str = find([(n.node_id.hex(), n.instance_id, n.node_manager_address) for n in alive])
    why = autoscaler.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    taken, refusal = client.drain_node(node, why, reason, deadline_ms)
    return node, taken, refusal


# ---------------------------------------------------------------------- the key-value store


def kv_keys(prefix: str, namespace: str) -> list[str]:
    """The keys of the cluster's key-value store that begin so."""
    return [key.decode() for key in _kv._internal_kv_list(prefix, namespace=namespace)]


def kv_get(key: str, namespace: str) -> str:
    """A value of the cluster's key-value store; "" if there is none."""
    return (_kv._internal_kv_get(key, namespace=namespace) or b"").decode()


def kv_put(key: str, value: str, namespace: str, *, overwrite: bool = True) -> None:
    """Put a value into the cluster's key-value store; unless `overwrite`, the first one stays."""
    _kv._internal_kv_put(key, value, overwrite=overwrite, namespace=namespace)


def kv_delete(key: str, namespace: str) -> None:
    """Remove a key from the cluster's key-value store."""
    _kv._internal_kv_del(key, namespace=namespace)
