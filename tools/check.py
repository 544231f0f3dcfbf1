"""Style, layers and types, and with `--tests` the tests: everything runs, then the verdict.

python tools/check.py [--tests [arguments for pytest]]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

CHECKS = {
    "style": ["ruff", "check", "-q", "."],
    "layers": ["lint-imports", "--no-logo", "--no-cache"],
    "types (mypy)": ["mypy", "--no-error-summary"],
    "types (pyright)": ["pyright"],
}

WORKERS = ["-n", "2", "--dist", "loadgroup"]
"""Tests that start Ray run beside those that do not."""


def main(arguments: list[str]) -> int:
    failed = [name for name, command in CHECKS.items() if not check(name, command)]
    if arguments[:1] == ["--tests"]:
        print(flush=True)
        if run(["pytest", *WORKERS, *arguments[1:]]).returncode:
            failed.append("tests")
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def check(name: str, command: list[str]) -> bool:
    """One line when all is well, the tool's own words when not."""
    begun = time.monotonic()
    done = run(command, quiet=True)
    verdict = "FAILED" if done.returncode else "ok"
    print(f"{name:<16} {verdict:<7} {time.monotonic() - begun:4.1f} s", flush=True)
    if done.returncode:
        print(done.stdout, flush=True)
    return done.returncode == 0


def run(command: list[str], *, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    # The checkers find the environment by PATH, wherever this was called from.
    env = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [BIN / command[0], *command[1:]],
        cwd=ROOT,
        env=env,
        text=True,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        check=False,
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
