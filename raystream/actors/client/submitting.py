"""Submitting a plan to a Ray cluster: start its controller, follow the job, end it."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.exceptions import (
    ActorUnavailableError,
    RayError,
    RayTaskError,
)

from raystream.actors.client.code_watch import CodeWatch
from raystream.actors.client.head_watch import Head, HeadGoneError
from raystream.actors.cluster.by_value import make_portable
from raystream.actors.cluster.connecting import cluster
from raystream.actors.cluster.environment import environments, runtime_env
from raystream.actors.cluster.pickling import refuse_unpicklable
from raystream.actors.control.actor_names import (
    CONTROLLER,
    NAMESPACE,
    actor_name,
    kill,
    new_run,
    processes_of,
)
from raystream.actors.control.answers import Charter
from raystream.actors.control.calls import cause_of
from raystream.actors.control.controller import Controller
from raystream.actors.control.node_pool import release
from raystream.controller.options import Options
from raystream.controller.protocol.strategies import strategy_of
from raystream.controller.reporting.report import JobReport, Sample
from raystream.dataflow.plan import Plan
from raystream.errors import ConfigError, JobError, LostError, RaystreamError
from raystream.security.contexts import Certificates
from raystream.security.credentials import Credentials

FOLLOW_SECONDS = 0.5
HEAD_NODE = "node:__internal_head__"
"""What Ray's head node offers, and no other."""
CONTROLLER_NODE = "controller_node"
"""What nodes offer that are to host controllers."""
A_BIT = 0.001
"""How much of that a controller takes."""
SAMPLES_SECONDS = 60.0
"""How long the controller may take to answer with samples, before it is asked again."""
END_SECONDS = 10.0
"""How long a job that was interrupted may take to end. Then it is killed."""


def run_on_ray(
    plan: Plan,
    *,
    address: str,
    on_progress: Callable[[Sample], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    options: Options | None = None,
    certificates: Certificates | None = None,
) -> JobReport:
    """Run a plan on a Ray cluster to the end of its input.

    Args:
        address: `"auto"` joins the cluster of this machine or of the submitted Ray job; where there
            is none it starts one for this run. Another value is the address of a cluster.
        on_progress: called with samples of the totals.
        on_note: called with the address of a cluster that was started for this run.
        options: copies, spare processes, and what a recovery starts from.
        certificates: for TLS between the processes of the job; None for none.

    Raises:
        GraphError: the flow holds what cannot be pickled.
        ConfigError: there is no cluster at the address. Otherwise what the job raised.
    """
    options = options or Options()
    run = plan.run = plan.durable.run if plan.durable is not None else new_run(plan.job)
    with ready(plan, address, options, durable=plan.durable is not None, on_note=on_note):
        env = environments()
        remote: Any = ray.remote  # its stubs do not know these options
        kind = remote(
            num_cpus=0,
            resources=home(),
            lifetime="detached",
            namespace=NAMESPACE,
            name=actor_name(run, CONTROLLER),
            max_restarts=-1,
            max_task_retries=-1,
            concurrency_groups={"control": 2},
            runtime_env=runtime_env(env.others),
        )(Controller)
        credentials = Credentials(secrets.token_hex(16), certificates)
        charter = Charter(run, credentials, env, options)
        controller = kind.remote(charter)
        result = controller.run.remote(plan)
        with contextlib.ExitStack() as after:
            if options.pool is not None:  # the controller may have died
                after.callback(_release, run)
            after.callback(_end, run, controller, result)
            try:
                code = CodeWatch(controller, plan)
                return _follow(controller, result, on_progress, Head(_advice(plan)), code)
            except HeadGoneError:
                after.pop_all()  # nothing is left to be ended
                raise
            except RayTaskError as error:
                raise cause_of(error) from None
            except RayError as error:
                raise JobError(f"the controller died: {str(error).partition(chr(10))[0]}") from None


def home() -> dict[str, float]:
    """What a node has to offer that runs the controller: `controller_node` if a node offers that,
    otherwise what only the head offers. When that node is gone, Ray starts the controller again on
    the next node that offers it.

    It is no affinity to a node: a node that has just joined may not know that one yet, and would
    run the controller itself.
    """
    listed: Any = ray.nodes
    offered = [n["Resources"] for n in listed() if n["Alive"]]
    wanted = CONTROLLER_NODE if any(r.get(CONTROLLER_NODE) for r in offered) else HEAD_NODE
    return {wanted: A_BIT}


def _advice(plan: Plan) -> str:
    """What to do when the cluster of a job is gone."""
    if plan.durable is not None:
        return "Go on from the newest saved checkpoint: `raystream run --resume`."
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
    """Be connected to the cluster where a plan is to run, after checks that it can run there.

    Raises:
        GraphError, ConfigError: see `run_on_ray`.
    """
    make_portable(plan.vertices)
    if options.copies < 1 or options.spares < 0 or options.restore_into < 1:
        raise ConfigError(
            f"copies={options.copies}, spares={options.spares}, restore_into="
            f"{options.restore_into}: at least 1 copy and 1 instance, no negative spares"
        )
    if durable and not strategy_of(options.recovery).stores_checkpoints:
        raise ConfigError(
            f"recovery={options.recovery!r} takes no checkpoints: there is nothing to be saved"
        )
    with cluster(address, on_note=on_note):
        refuse_unpicklable(plan.vertices)
        yield


def _follow(
    controller: Any,
    result: Any,
    on_progress: Callable[[Sample], None] | None,
    head: Head,
    code: CodeWatch,
) -> JobReport:
    seen = 0.0
    while True:
        done, _ = ray.wait([result], timeout=FOLLOW_SECONDS)
        if not done:
            head.look()
            code.look()
        if on_progress is not None and not done:
            for sample in _samples(controller, seen, head):
                seen = sample.t
                on_progress(sample)
        if done:
            report = ray.get(result)
            if isinstance(report, LostError):
                code.last()
            if isinstance(report, RaystreamError):
                raise report
            if on_progress is not None:
                *before, last = report.samples
                for sample in (*(s for s in before if s.t > seen), last):
                    on_progress(sample)
            return report


def _samples(controller: Any, since: float, head: Head) -> list[Sample]:
    """The samples later than `since` seconds after the start; none from a controller that is late.
    One that was restarted looks for its journal first. If it has died, `result` raises."""
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
    """End a job. If it still runs (Ctrl-C, SIGTERM), ask its controller first; then kill the rest.

    A second Ctrl-C ends the wait only. If the cluster is gone, so is the job.
    """
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
