"""Rays that runs started for themselves: noted in Ray's folder, where other commands find them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray._private import services, utils, worker

from raystream.errors import ConfigError

NOTE = "raystream_address"
"""The file in the folder of a Ray's session that says where it is. It stays when that has ended, as
all of the folder does."""


@contextmanager
def apart() -> Iterator[None]:
    """The processes of a Ray that is started meanwhile are in groups of their own.

    A signal to the group of a run (from `timeout`, or a supervisor) is for the run, which needs its
    Ray to end the job. Where the kernel does not end them with the process that started them, they
    stay in its group: by that Ray ends them there.
    """
    its: Any = services  # their stubs do not know all that they have
    kernel_ends_them: Any = utils.detect_fate_sharing_support
    popen = its.ConsolePopen
    if kernel_ends_them():
        its.ConsolePopen = partial(popen, process_group=0)
    try:
        yield
    finally:
        its.ConsolePopen = popen


def note(token: str) -> str:
    """Note the Ray that this process has just started, for this user alone; its address.

    Args:
        token: what it asks for; "" if that is the user's, or nothing.
    """
    address = ray.get_runtime_context().gcs_address
    me: Any = worker  # its stubs do not know all that it has
    path = Path(me._global_node.get_session_dir_path(), NOTE)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{address}\n{token}\n")
    return address


def noted() -> dict[str, str]:
    """The address of each Ray that runs of this user have started for themselves, also of those
    that have ended, and what it asks for."""
    from ray._common import utils

    folder: Any = utils.get_default_ray_temp_dir  # untyped
    own = {}
    for path in sorted(Path(folder()).glob(f"session_*/{NOTE}")):  # by time: the last one counts
        with suppress(OSError, ValueError):  # another user's, or removed, or written meanwhile
            if path.stat().st_uid == os.getuid():
                address, token = path.read_text(encoding="utf-8").splitlines()
                own[address] = token
    return own


def found(running: set[str]) -> str | None:
    """Where the Ray is that a run of this user has started for itself, if there is one.

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
