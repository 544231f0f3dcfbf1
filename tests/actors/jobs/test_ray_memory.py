"""A job on Ray whose state fills its node: it ends with words before Ray kills processes.

The node is a control group with little memory, which Ray and raystream see as the machine's own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.actors.helpers.heads import ROOT, end, environment, short_folder
from tests.gates import LIMIT_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.slow]

GROUPS = Path("/sys/fs/cgroup/memory")
MEMORY = 4_000_000_000
INSIDE = f'mount --bind "$0" {GROUPS} && echo $$ > {GROUPS}/cgroup.procs && exec "$@"'
FLOW = """
from tests.ever_more_keys import filled
flow = filled(2_000_000_000)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    made = GROUPS / f"raystream-test-{os.getpid()}"
    try:
        made.mkdir()
        (made / "memory.limit_in_bytes").write_text(str(MEMORY))
        subprocess.run(["unshare", "--mount", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        with suppress(OSError):
            made.rmdir()
        pytest.skip(f"a control group of version 1 and a mount of one's own need root: {error}")
    yield made
    with suppress(OSError):  # what Ray leaves for a moment is still in it
        made.rmdir()


@pytest.mark.long
def test_the_operator_that_fills_its_node_is_named(group: Path) -> None:
    with short_folder() as folder:
        (folder / "fills.py").write_text(FLOW)
        run = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", INSIDE, str(group)]
            + [sys.executable, "-m", "raystream", "run", "fills:flow", "--spares", "0"],
            cwd=folder,
            env=environment(PYTHONPATH=str(ROOT), TMPDIR=str(folder)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            said, _ = run.communicate(timeout=LIMIT_SECONDS)
        finally:
            if run.poll() is None:
                end(run, signal.SIGKILL)
            assert run.stdout is not None
            run.stdout.close()
    assert "error: fill has no memory left: fill/0 keeps " in said, said
    assert "rows of state in " in said and "rs.forget" in said and "is lost" not in said
    assert run.returncode == 1 and "Traceback" not in said, said
