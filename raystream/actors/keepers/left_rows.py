"""Removes the folders of rows on disk of processes that have died.

A successor may want them for a while (`raystream.state.tiers.row_folder`), so that the keeper of a
node removes those of its own run when the job ends, and those of other runs when nothing was
written there for long.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from raystream.state.keeping.files import alive
from raystream.state.tiers.row_folder import PREFIX

OLD_SECONDS = 600.0
"""After so long without a new file nobody will go on from a folder of a dead process."""


def sweep_rows(where: str | None, ended: str = "") -> None:
    """Remove the folders of processes that are dead.

    Args:
        where: in which the folders lie; None for the folder of temporary files.
        ended: a run that has ended: nobody will go on from what it has left. Of other runs old
            folders are removed.
    """
    for path in Path(where or tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        run, _, process = path.name.removeprefix(PREFIX).rpartition("-")
        if not process.isdecimal() or alive(int(process)):
            continue
        try:
            old = time.time() - path.stat().st_mtime > OLD_SECONDS
        except OSError:  # another keeper has removed it
            continue
        if old or (ended and run == ended):
            shutil.rmtree(path, ignore_errors=True)
