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


def note() -> str:
    """Note the Ray that this process has just started; its address."""
    address = ray.get_runtime_context().gcs_address
    me: Any = worker  # its stubs do not know all that it has
    Path(me._global_node.get_session_dir_path(), NOTE).write_text(address, encoding="utf-8")
    return address


def found(running: set[str]) -> str | None:
    """Where the Ray is that a run of this user has started for itself, if there is one.

    Args:
        running: the addresses of all Rays of this machine.

    Raises:
        ConfigError: there are several.
    """
    from ray._common import utils

    folder: Any = utils.get_default_ray_temp_dir  # untyped
    own = set()
    for path in Path(folder()).glob(f"session_*/{NOTE}"):
        with suppress(OSError):  # another user's, or removed meanwhile
            if path.stat().st_uid == os.getuid():
                own.add(path.read_text(encoding="utf-8").strip())
    there = sorted(own & running)
    if len(there) > 1:
        raise ConfigError(
            "several runs on this machine have started a Ray of their own",
            hint=f"Say which: --address {' or '.join(there)}.",
        )
    return there[0] if there else None
