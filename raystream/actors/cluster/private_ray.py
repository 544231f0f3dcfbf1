"""The Rays that runs have started for themselves: noted in Ray's folder for other commands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import ray

from raystream.actors.cluster import ray_internals as internals
from raystream.errors import ConfigError

NOTE = "raystream_address"
"""The file in the folder of a Ray's session that has its address. Like all of the folder, it stays
when the Ray has ended."""


@contextmanager
def apart() -> Iterator[None]:
    """The processes of a Ray that is started inside the block are in process groups of their own.

    A signal to the group of a run (from `timeout`, or a supervisor) is for the run, which needs its
    Ray to end the job. Where the kernel does not end Ray's processes with the run, they stay in its
    group, by which Ray ends them.
    """
    with internals.processes_in_groups_of_their_own():
        yield


def note(token: str) -> str:
    """Note the Ray that this process has just started, readable by this user alone.

    Returns its address.

    Args:
        token: the token that it asks for; "" if that is the user's own, or none.
    """
    address = ray.get_runtime_context().gcs_address
    path = internals.session_folder() / NOTE
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{address}\n{token}\n")
    return address


def noted() -> dict[str, str]:
    """The tokens, by address, of all Rays that runs of this user have started for themselves. Those
    that have ended are among them."""
    own = {}
    for path in sorted(
        internals.temp_folder().glob(f"session_*/{NOTE}")
    ):  # by time: the last one counts
        with suppress(OSError, ValueError):  # another user's, or removed, or written meanwhile
            if path.stat().st_uid == os.getuid():
                address, token = path.read_text(encoding="utf-8").splitlines()
                own[address] = token
    return own


def found(running: set[str]) -> str | None:
    """The address of the Ray that a run of this user has started for itself, if there is one.

    Args:
        running: the addresses of all Rays of this machine.

    Raises:
        ConfigError: there are several.
    """
    there = sorted(noted().keys() & running)
    if len(there) > 1:
        raise ConfigError(
            "several runs on this machine have started a Ray of their own",
            hint=f"Say which: --address {' or '.join(there)}.",
        )
    return there[0] if there else None
