"""Where the process of an instance has rows that memory has no room for, and what it finds there of
instances of the same node that it goes on from."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path

from raystream.api.row_shapes import shape_of
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.plan import Plan
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.state.tiers.row_folder import RowFolder, folder_name, left_at

log = logging.getLogger("raystream.rows")


def row_folder(
    plan: Plan, place: Place, committed: int, seat: int = 0, version: CodeVersion | None = None
) -> RowFolder | None:
    """A folder for the rows of an instance, with those that instances of this node have left of its
    range at a checkpoint. None for an instance that has no rows on disk; also where the folder
    cannot be made: then files have no names, and the first of them brings the error.

    committed: the checkpoint; 0 at the beginning. seat: of the instance in this process.
    version: that of the code which made the checkpoint; None for the one that the job began with.
    """
    mine = f"{os.getpid()}.{seat}" if seat else str(os.getpid())
    spec = plan.vertices[place.vertex].spec
    shape = None if spec is None or plan.state_memory is None else shape_of(spec)
    if shape is None or not plan.run:
        return None
    where = Path(plan.state_folder or tempfile.gettempdir())
    shutil.rmtree(where / folder_name(plan.run, mine), ignore_errors=True)
    try:  # this process may have tried to take a place before
        files = RowFolder.made(where, plan.run, mine, 0 if version is None else version.number)
    except OSError as error:
        log.warning("%s: no folder for rows on disk: %s", place.name, error)
        return None
    if committed:
        kept = shape.fingerprint if version is None else version.shapes[place.operator]
        at = plan.run, place.operator, kept, place.keys, committed, files.code
        if found := left_at(where, *at):
            files.take(found, plan.groups)
    return files
