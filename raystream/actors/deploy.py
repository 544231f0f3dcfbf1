"""Running a plan on Ray: join or start a cluster, follow the job, leave."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.exceptions import (
    ActorUnavailableError,
    AuthenticationError,
    RayError,
    RayTaskError,
)

from raystream.actors import access, environment, own_ray
from raystream.actors.carrying import refuse_unpicklable
from raystream.actors.controller import Charter, Controller
from raystream.actors.head import Head, HeadGoneError
from raystream.actors.leaving import sigterm_leaves
from raystream.actors.naming import CONTROLLER, NAMESPACE, actor_name, kill, new_run, processes_of
from raystream.actors.pool import release
from raystream.actors.staff import cause_of, runtime_env
from raystream.controller.members import Options
from raystream.controller.report import JobReport, Sample
from raystream.dataflow.plan import Plan
from raystream.errors import ConfigError, GraphError, JobError, RaystreamError

FOLLOW_SECONDS = 0.5
ON_HEAD = {"node:__internal_head__": 0.001}
"""The controller lives on the head node: Ray itself does not survive that one either."""
SAMPLES_SECONDS = 60.0
"""How long the controller may take to say how far the job is, before it is asked again."""
SPILL_BYTES = 128 << 20
SPILLING = ("min_spilling_size", "max_spilling_file_size_bytes")
CONNECT_SECONDS = 5.0
STARTS = 2
"""So often it is tried to start a Ray."""
END_SECONDS = 10.0
"""How long a job may take to end when it is interrupted, before it is killed."""


def run_on_ray(
    plan: Plan,
    *,
    address: str,
    on_progress: Callable[[Sample], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    options: Options | None = None,
) -> JobReport:
    """Run a plan on a Ray cluster to the end of its input.

    Args:
        address: `"auto"` joins the cluster of this machine or job, else starts one for this run;
            another value is the address of a cluster.
        on_note: told where a cluster is that was started for this run.
        options: copies, spare processes, and what a recovery starts from.

    Raises:
        GraphError: the flow is defined in `__main__`, which other processes cannot import, or holds
            what cannot be pickled.
        ConfigError: there is no cluster at the address. Else what the job raised.
    """
    options = options or Options()
    run = plan.durable.run if plan.durable is not None else new_run(plan.job)
    with ready(plan, address, options, durable=plan.durable is not None, on_note=on_note):
        env = environment.environments()
        remote: Any = ray.remote  # its stubs do not know these options
        kind = remote(
            num_cpus=0,
            resources=ON_HEAD,
            lifetime="detached",
            namespace=NAMESPACE,
            name=actor_name(run, CONTROLLER),
            max_restarts=-1,
            max_task_retries=-1,
            concurrency_groups={"control": 2},
            runtime_env=runtime_env(env.others),
        )(Controller)
        charter = Charter(run, secrets.token_hex(16), env, options)
        controller = kind.remote(charter)
        result = controller.run.remote(plan)
        with contextlib.ExitStack() as after:
            if options.pool is not None:  # the controller may have died
                after.callback(_release, run)
            after.callback(_end, run, controller, result)
            try:
                return _follow(controller, result, on_progress, Head(_advice(plan)))
            except HeadGoneError:
                after.pop_all()  # nothing is left to be ended
                raise
            except RayTaskError as error:
                raise cause_of(error) from None
            except RayError as error:
                raise JobError(f"the controller died: {str(error).partition(chr(10))[0]}") from None


def _advice(plan: Plan) -> str:
    """What to do when the cluster of a job is gone."""
    if plan.durable is not None:
        return "Go on from the newest saved cut: `raystream run --resume`."
    return "With durable= a job goes on elsewhere, from what it has saved."


@contextlib.contextmanager
def ready(
    plan: Plan,
    address: str,
    options: Options,
    *,
    durable: bool,
    on_note: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """Be connected to the cluster where a plan is to run, once it is known that it can be run.

    Raises:
        GraphError, ConfigError: see `run_on_ray`.
    """
    refuse_main(plan)
    if options.copies < 1 or options.spares < 0 or options.restore_into < 1:
        raise ConfigError(
            f"copies={options.copies}, spares={options.spares}, restore_into="
            f"{options.restore_into}: at least 1 copy and 1 instance, no negative spares"
        )
    if durable and options.recovery != "state":
        raise ConfigError(
            f"recovery={options.recovery!r} takes no checkpoints: there is nothing to be saved"
        )
    with cluster(address, on_note=on_note):
        refuse_unpicklable(plan)
        yield


def _follow(
    controller: Any, result: Any, on_progress: Callable[[Sample], None] | None, head: Head
) -> JobReport:
    seen = 0.0
    while True:
        done, _ = ray.wait([result], timeout=FOLLOW_SECONDS)
        if not done:
            head.look()
        if on_progress is not None and not done:
            for sample in _samples(controller, seen, head):
                seen = sample.t
                on_progress(sample)
        if done:
            report = ray.get(result)
            if isinstance(report, RaystreamError):
                raise report
            if on_progress is not None:
                *before, last = report.samples
                for sample in (*(s for s in before if s.t > seen), last):
                    on_progress(sample)
            return report


def _samples(controller: Any, since: float, head: Head) -> list[Sample]:
    """The samples since a second; none from a controller that is late: one that has begun again
    looks for its journal first, and of its death `result` tells."""
    asked, until = controller.samples.remote(since), time.monotonic() + SAMPLES_SECONDS
    while not ray.wait([asked], timeout=FOLLOW_SECONDS)[0]:
        head.look()
        if time.monotonic() > until:
            return []
    try:
        found: list[Sample] = ray.get(asked)
    except ActorUnavailableError:
        return []
    return found


def _end(run: str, controller: Any, result: Any) -> None:
    """End a job: ask first, if it still runs (Ctrl-C, SIGTERM), then kill whatever there is. A
    second Ctrl-C ends the wait only. What has ended with its cluster needs no end."""
    with contextlib.suppress(RayError):
        try:
            if not ray.wait([result], timeout=0)[0]:
                controller.cancel.remote()
                ray.wait([result], timeout=END_SECONDS)
        finally:
            ray.kill(controller)
            for process in processes_of(run):
                kill(run, process)


def _release(run: str) -> None:
    with contextlib.suppress(RayError, RuntimeError):
        release(run)


@contextlib.contextmanager
def cluster(
    address: str, *, start: bool = True, on_note: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Be connected to a cluster; leave it afterwards, and end it if it was started here.

    Args:
        start: whether to start one where `"auto"` finds none. on_note: told where that one is.
    """
    if ray.is_initialized():
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
    with access.as_before():
        _connect(address, common, start=start, on_note=on_note)
        with sigterm_leaves(sigterm):
            try:
                yield
            finally:
                ray.shutdown()


def _connect(
    address: str, common: dict[str, Any], *, start: bool, on_note: Callable[[str], None] | None
) -> None:
    """Connect this process to a Ray, and show that who it is.

    Args:
        common: options of `ray.init`. start, on_note: see `cluster`.

    Raises:
        ConfigError: there is none at the address, or it is not open to this process.
    """
    try:
        if address == "auto":
            _start(common, start=start, on_note=on_note)
        else:
            _answers(address)
            if (token := own_ray.noted().get(address)) is not None:
                if token:
                    access.show(token)
                else:
                    access.show_token_of_user()
            ray.init(address=address, job_config=environment.job_config(), **common)
    except AuthenticationError as error:
        raise ConfigError(
            f"the Ray cluster at {address!r} is not open to this process: {error.message}",
            hint="Set RAY_AUTH_MODE=token, and the cluster's token in RAY_AUTH_TOKEN or"
            " ~/.ray/auth_token.",
        ) from None
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"no Ray cluster at {address!r}: {str(error).partition(chr(10))[0]}",
            hint="Start one with `ray start --head`, or leave the address away.",
        ) from None


@contextlib.contextmanager
def visited(address: str) -> Iterator[None]:
    """Be connected to a cluster where a job may run, to look at it or to ask for something.

    Unlike for a run, `"auto"` is also the Ray that a run on this machine has started for itself.
    """
    if address == "auto" and not ray.is_initialized() and "RAY_ADDRESS" not in os.environ:
        address = _joinable() or _of_a_run() or address
    with cluster(address, start=False):
        yield


@contextlib.contextmanager
def joined(address: str) -> Iterator[bool]:
    """Be connected to the cluster at an address, if there is one; whether there is."""
    with contextlib.ExitStack() as stack:
        there = True
        try:
            stack.enter_context(cluster(address, start=False))
        except ConfigError:
            there = False
        yield there


def listens(address: str) -> bool:
    """Whether somebody listens at host:port."""
    try:
        _answers(address)
    except ConnectionError:
        return False
    return True


def _answers(address: str) -> None:
    """Look whether somebody listens at host:port: Ray itself would try for minutes.

    Raises:
        ConnectionError: nobody does.
    """
    host, _, port = address.rpartition(":")
    if "://" in address or not port.isdecimal():
        return  # another form of address, which Ray judges
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(f"nobody answers there ({error})") from None


def _start(common: dict[str, Any], *, start: bool, on_note: Callable[[str], None] | None) -> None:
    """Join the cluster that `ray start` made on this machine; else start one for this run.

    A cluster that another program keeps for itself is left alone.

    Raises:
        ConfigError: there is none, and none is to be started; or it does not start.
    """
    if (address := _joinable()) is not None:
        access.show_token_of_user()
        ray.init(address=address, job_config=environment.job_config(), **common)
        return
    if not start:
        raise ConfigError(
            "no Ray is there: neither `ray start` nor a run has started one on this machine",
            hint="A job that ran on a Ray of its own has ended with it. For a job elsewhere, say"
            " where: --address.",
        )
    _set_defaults()
    token = access.show_own()
    start_ray(**common)
    started = own_ray.note(token)
    if on_note is not None:
        on_note(f"started a Ray for this run, at {started}")


def _joinable() -> str | None:
    """Where the cluster is that `ray start` made on this machine, if it is still there."""
    from ray._private import utils

    noted: Any = utils.read_ray_address
    address: str | None = noted()
    return address if address in _running() else None


def _of_a_run() -> str | None:
    """Where the Ray is that a run on this machine has started for itself, if there is one."""
    address = own_ray.found(_running())
    if address is not None:
        _set_defaults()
    return address


def _running() -> set[str]:
    """The addresses of the Rays of this machine."""
    from ray._private import services

    find: Any = services.find_gcs_addresses
    return set(find())


def _set_defaults() -> None:
    """The settings of a Ray that a run starts for itself, unless the user has others."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # An agent of Ray measures all its processes every 5 s, which takes 50 ms of a processor, for a
    # dashboard that is not there.
    os.environ.setdefault("REPORTER_UPDATE_INTERVAL_MS", "60000")
    # When its store is full, Ray writes up to 2,000 objects to one file, gigabytes of checkpoints,
    # and has their memory back when all of it is written. Less than the least size it begins to
    # write only when it writes nothing else; with both sizes alike that is one file at a time.
    spilling = {f"RAY_{name}": f"{SPILL_BYTES}" for name in SPILLING}
    if not spilling.keys() & os.environ.keys():
        os.environ.update(spilling)


def start_ray(**options: Any) -> None:
    """Start a Ray of this process's own, which ends with it.

    Ray gives its processes half a minute to load, which is not enough on a machine that is busy
    or reads its packages for the first time. The second time they are in memory.

    Raises:
        ConfigError: it did not start a second time either.
    """
    for attempt in range(1, STARTS + 1):
        try:
            with environment.given(fixed := environment.fixed()), own_ray.apart():
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


def refuse_main(plan: Plan) -> None:
    """Refuse flows whose code lives in `__main__`.

    Raises:
        GraphError: names what is defined there.
    """
    for vertex in plan.vertices:
        owned: list[Any] = [vertex.source, vertex.sink, vertex.spec and vertex.spec.target]
        owned += [f.spec.target for f in vertex.fused]
        owned += [s.cls for s in (*vertex.schemas, *(p.schema for p in vertex.ports))]
        for thing in owned:
            if thing is None:
                continue
            module = getattr(thing, "__module__", None) or type(thing).__module__
            if module == "__main__":
                name = getattr(thing, "__name__", type(thing).__name__)
                raise GraphError(
                    f"{name} is defined in __main__, which a cluster's processes cannot import",
                    where=vertex.where,
                    hint="Put the flow into a module and run it with"
                    " `raystream run module:flow --address auto`.",
                )
