"""Pushing records into a running job by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from raystream.actors.client.jobs import asked, chosen
from raystream.actors.client.watching import addresses
from raystream.actors.cluster.connecting import visited
from raystream.actors.control.actor_names import CONTROLLER, actor, running
from raystream.errors import ConfigError, InputError
from raystream.io.push.entrance import Entrance
from raystream.push import Client
from raystream.security.contexts import Certificates
from raystream.security.tokens import signed

GIVE_UP_SECONDS = 60.0


def push(job: str, source: str, records: Sequence[Mapping[str, Any]], address: str, *,
         end: bool = False) -> None:  # fmt: skip
    """Push records into a job, and return when they are recorded.

    Args:
        job: its name, or that of one of its runs.
        source: the name of a push source of it.
        end: end the input of the source afterwards.

    Raises:
        ConfigError: there is no such job or source. InputError: a record does not fit. JobError:
            the job does not answer.
    """
    with visited(address):
        run, at = _entrance(job, source)
        certificates = asked(run, actor(run, CONTROLLER).certificates)
        hosts = addresses()
    scheme = "http" if certificates is None else "https"
    urls = [f"{scheme}://{host}:{at.port}" for host in hosts]
    with Client(urls, at.token, path=at.path, give_up=GIVE_UP_SECONDS, tls=certificates) as client:
        for record in records:
            client.push(record)
        client.flush()
        if end:
            client.end()


def expiring_token(job: str, source: str, ends: float, address: str) -> str:
    """A token with which clients push into a source until it expires.

    Args:
        job, source, address: as for `push`. ends: when it expires, in Unix seconds.

    Raises:
        ConfigError: there is no such job or source. JobError: the job does not answer.
    """
    with visited(address):
        _, at = _entrance(job, source)
    return signed(at.token, "push", ends)


def _entrance(job: str, source: str) -> tuple[str, Entrance]:
    """The name of the run, and where clients push into a source of it."""
    run = chosen(job, running())
    controller = actor(run, CONTROLLER)
    found = None if controller is None else asked(run, controller.entrances)
    if found is None:
        raise ConfigError(f"{run} has just ended, or has not begun yet")
    if source not in found:
        raise ConfigError(
            f"{run} has no push source {source!r}",
            hint=f"It has {', '.join(sorted(found))}."
            if found
            else "It has none: sources to push into are made with rs.io.push.",
        )
    return run, found[source]


def certificates_of(job: str, address: str) -> Certificates:
    """The certificates of a job that runs with TLS.

    Args:
        job: its name, or that of one of its runs. address: that of its Ray cluster.

    Raises:
        ConfigError: there is no such job, or it runs without TLS. JobError: it does not answer.
    """
    with visited(address):
        run = chosen(job, running())
        controller = actor(run, CONTROLLER)
        found = None if controller is None else asked(run, controller.certificates)
    if found is None:
        raise ConfigError(f"{run} runs without TLS", hint="Run it with --tls.")
    return found


def records_in(lines: Sequence[str]) -> list[Mapping[str, Any]]:
    """Records given as JSON, each of them an object or a list of objects.

    Raises:
        InputError: something is neither.
    """
    found: list[Mapping[str, Any]] = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise InputError(f"{line[:80]!r} is no JSON: {error}") from None
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                raise InputError(f"{line[:80]!r} is no object, nor a list of objects")
            found.append(one)
    return found
