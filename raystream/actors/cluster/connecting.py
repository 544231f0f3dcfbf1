"""Finding, starting and joining a Ray cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.exceptions import AuthenticationError

from raystream.actors.cluster import auth, environment, private_ray
from raystream.actors.cluster import ray_internals as internals
from raystream.actors.cluster.sigterm import sigterm_leaves
from raystream.errors import ConfigError

SPILL_BYTES = 128 << 20
SPILLING = ("min_spilling_size", "max_spilling_file_size_bytes")
CONNECT_SECONDS = 5.0
STARTS = 2
"""How often it is tried to start a Ray."""


class _Guests:
    """Who uses the connection of this process that another of its threads has made. It is closed
    when nobody uses it any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._left = False
        """Whether the one that has made it does not use it any more."""

    @contextlib.contextmanager
    def visit(self) -> Iterator[None]:
        """Use it."""
        with self._lock:
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
                if self._left and not self._count:
                    self._close()

    def leave(self) -> None:
        """The one that has made it does not use it any more."""
        with self._lock:
            self._left = True
            if not self._count:
                self._close()

    def _close(self) -> None:
        self._left = False
        ray.shutdown()


_guests = _Guests()


@contextlib.contextmanager
def cluster(
    address: str, *, start: bool = True, on_note: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Be connected to a cluster; leave it afterwards, and end it if it was started here. Where this
    process is connected, use that connection: it stays until the last one has left it.

    Args:
        start: whether to start one where `"auto"` finds none.
        on_note: called with the address of the one that was started.
    """
    if ray.is_initialized():
        with _guests.visit():
            yield
        return
    common: dict[str, Any] = {
        "log_to_driver": False,
        "configure_logging": True,
        "logging_level": "ERROR",
    }
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or "auto"
    sigterm = signal.getsignal(signal.SIGTERM)
    with auth.as_before():
        _connect(address, common, start=start, on_note=on_note)
        with sigterm_leaves(sigterm):
            try:
                yield
            finally:
                _guests.leave()


def _connect(
    address: str, common: dict[str, Any], *, start: bool, on_note: Callable[[str], None] | None
) -> None:
    """Connect this process to a Ray cluster, with the token that the cluster asks for.

    Args:
        common: options of `ray.init`. start, on_note: see `cluster`.

    Raises:
        ConfigError: there is none at the address, it does not accept this process's token, or it
            is the address of a dashboard.
    """
    if address.startswith(("http://", "https://")):
        raise ConfigError(
            f"{address} is where jobs are submitted, not the address of a Ray cluster",
            hint="Say --address HOST:PORT, as `ray start` prints it, or on the head itself unset"
            " RAY_ADDRESS. From elsewhere: `ray job submit --address URL -- raystream status`.",
        )
    try:
        if address == "auto":
            _start(common, start=start, on_note=on_note)
        else:
            _answers(address)
            _join(address, common)
    except AuthenticationError as error:
        raise ConfigError(
            f"the Ray cluster at {address!r} is not open to this process: {error.message}",
            hint="Set RAY_AUTH_MODE=token, and the cluster's token in RAY_AUTH_TOKEN or"
            " ~/.ray/auth_token.",
        ) from None
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"no Ray cluster at {address!r}: {str(error).partition(chr(10))[0]}",
            hint="Start one with `ray start --head`, or leave out the address.",
        ) from None


def _join(address: str, common: dict[str, Any]) -> None:
    """Join the cluster at an address. To a Ray of this machine this process shows the token that
    the user has for it; to one elsewhere only where the user's variables say so.

    Raises:
        AuthenticationError: it does not accept this process's token.
    """
    token = private_ray.noted().get(address)
    if token:
        auth.show(token)
    elif token is not None or address in _running():
        auth.show_token_of_user()
    if _is_plain(address):
        auth.refuse_wrong_token(address)
    ray.init(address=address, job_config=environment.job_config(), **common)


@contextlib.contextmanager
def visited(address: str) -> Iterator[None]:
    """Be connected to a cluster where a job may run, to look at the job or to ask it for something.

    Unlike for a run, `"auto"` also finds the Ray that a run on this machine has started for itself.
    """
    if address == "auto" and not ray.is_initialized() and "RAY_ADDRESS" not in os.environ:
        address = _joinable() or _of_a_run() or address
    with cluster(address, start=False):
        yield


@contextlib.contextmanager
def joined(address: str) -> Iterator[bool]:
    """Be connected to the cluster at an address, if there is one. Yields whether there is."""
    with contextlib.ExitStack() as stack:
        there = True
        try:
            stack.enter_context(cluster(address, start=False))
        except ConfigError:
            there = False
        yield there


def of_other_runs(address: str) -> list[str]:
    """The addresses of the Rays that runs of this user have started for themselves on this machine,
    where a run with this address joins none of them and starts one, too."""
    if address != "auto" or "RAY_ADDRESS" in os.environ or _joinable() is not None:
        return []
    there = sorted(private_ray.noted().keys() & _running())
    if there:
        _set_defaults()
    return there


def listens(address: str) -> bool:
    """Whether a process listens at host:port."""
    try:
        _answers(address)
    except ConnectionError:
        return False
    return True


def _answers(address: str) -> None:
    """Check that a process listens at host:port: Ray itself would try for minutes.

    Raises:
        ConnectionError: none does.
    """
    if not _is_plain(address):
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(f"nobody answers there ({error})") from None


def _is_plain(address: str) -> bool:
    """Whether an address is host:port. Of other forms Ray is the judge."""
    return "://" not in address and address.rpartition(":")[2].isdecimal()


def _start(common: dict[str, Any], *, start: bool, on_note: Callable[[str], None] | None) -> None:
    """Join the cluster that `ray start` made on this machine. Otherwise start one for this run.

    A cluster that another program keeps for itself is left alone.

    Raises:
        ConfigError: there is none, and none is to be started; or it does not start.
    """
    if (address := _joinable()) is not None:
        _join(address, common)
        return
    if not start:
        raise ConfigError(
            "no Ray is there: neither `ray start` nor a run has started one on this machine",
            hint="A job that ran on a Ray of its own has ended with it. For a job elsewhere, say"
            " where: --address.",
        )
    _set_defaults()
    token = auth.show_own()
    start_ray(**common)
    started = private_ray.note(token)
    if on_note is not None:
        on_note(f"started a Ray for this run, at {started}")


def _joinable() -> str | None:
    """The address of the cluster that `ray start` made on this machine, if it is still there."""
    address = internals.noted_address()
    return address if address in _running() else None


def _of_a_run() -> str | None:
    """The address of the Ray that a run on this machine has started for itself, if there is one."""
    address = private_ray.found(_running())
    if address is not None:
        _set_defaults()
    return address


def _running() -> set[str]:
    """The addresses of the Rays of this machine."""
    return internals.head_addresses()


def _set_defaults() -> None:
    """The settings of a Ray that a run starts for itself, unless the user has others."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # An agent of Ray measures all its processes every 5 s, which takes 50 ms of a processor, for a
    # dashboard that is not there.
    os.environ.setdefault("REPORTER_UPDATE_INTERVAL_MS", "60000")
    # Ray starts its workers with niceness 15. Beside a busy program of niceness 0, a broker for
    # example, such a process gets about a thirtieth of a processor.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # When its store is full, Ray writes up to 2,000 objects to one file, gigabytes of checkpoints,
    # and gets their memory back only when all of the file is written. It begins to write less than
    # the minimum size only while it writes nothing else; with both sizes alike, that is one file at
    # a time.
    spilling = {f"RAY_{name}": f"{SPILL_BYTES}" for name in SPILLING}
    if not spilling.keys() & os.environ.keys():
        os.environ.update(spilling)


def start_ray(**options: Any) -> None:
    """Start a Ray of this process's own, which ends with the process.

    Ray gives its processes half a minute to load. That is not enough on a machine that is busy, or
    that reads its packages for the first time. At the second attempt they are in memory.

    Raises:
        ConfigError: it did not start at the second attempt either.
    """
    for attempt in range(1, STARTS + 1):
        try:
            with environment.given(fixed := environment.fixed()), private_ray.apart():
                ray.init(
                    "local",
                    include_dashboard=False,
                    _node_ip_address="127.0.0.1",
                    job_config=environment.job_config(),
                    **options,
                )
        except Exception as error:  # Ray raises just that
            if attempt == STARTS:
                raise ConfigError(
                    f"Ray did not start on this machine: {str(error).partition(chr(10))[0]}",
                    hint=f"It was tried {STARTS} times. Is the machine very busy, or its memory or"
                    " disk full? Ray says more in /tmp/ray/session_latest/logs/raylet.err.",
                ) from None
        else:
            environment.have(ray.get_runtime_context().gcs_address, fixed)
            return
