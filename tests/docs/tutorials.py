"""Pages of docs/tutorials as steps: files to save, and commands with what they print."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.docs.test_docs import ROOT, blocks
from tests.gates import LIMIT_SECONDS

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Saved:
    """A file that the reader saves."""

    name: str
    text: str


@dataclass(frozen=True)
class Typed:
    """Lines that the reader types into a shell."""

    lines: tuple[str, ...]
    prints: str | None
    """What the page says that they print; `...` stands for anything. None: it does not say."""


def steps(document: str) -> list[Saved | Typed]:
    """What the reader of a page does, in order."""
    page = (ROOT / document).read_text(encoding="utf-8").splitlines()
    found: list[Saved | Typed] = []
    for block in blocks(document):
        text = "\n".join(block.lines) + "\n"
        before = " ".join(page[max(0, block.first - 4) : block.first - 1])
        saved = re.findall(r"Save this as `([\w.]+)`", before)
        if saved:
            found.append(Saved(saved[-1], text))
        elif block.language == "sh":
            found.append(Typed(block.lines, None))
        else:
            last = found.pop()
            assert block.language == "text" and isinstance(last, Typed) and last.prints is None
            found.append(Typed(last.lines, text))
    return found


def assert_prints(step: Typed, printed: str) -> None:
    """What was printed is what the page says."""
    if step.prints is not None:
        same = doctest.OutputChecker().check_output(step.prints, printed, FLAGS)
        assert same, f"{step.lines}:\n{printed}\n--- but the page says\n{step.prints}"


def environment() -> dict[str, str]:
    """Of a shell in which raystream is installed from this checkout."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "COLUMNS": "120"}


def shell(folder: Path, *lines: str) -> str:
    """What lines print that a reader types in a folder; each has to succeed."""
    done = subprocess.run(
        ["bash", "-euc", "\n".join(lines)],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{lines}:\n{done.stdout}"
    return done.stdout
