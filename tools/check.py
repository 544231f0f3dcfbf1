"""Style, layers and types, and with `--tests` the tests: everything runs, then the verdict.

python tools/check.py [--tests [arguments for pytest]]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
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

NONE_FOUND = 5
"""Pytest's exit code when no test was chosen."""


def main(arguments: list[str]) -> int:
    failed = [name for name, command in CHECKS.items() if not check(name, command)]
    if arguments[:1] == ["--tests"]:
        print(flush=True)
        if not tests(arguments[1:]):
            failed.append("tests")
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def tests(arguments: list[str]) -> bool:
    """Tests that start Ray mostly wait, so the others run beside them, and are shown afterwards."""
    with tempfile.TemporaryFile("w+") as said:
        others = subprocess.Popen(
            command_of(["pytest", "-m", "not ray", *arguments]),
            cwd=ROOT,
            env=environment(),
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            codes = [run(["pytest", "-m", "ray", *arguments]).returncode, others.wait()]
        finally:
            others.kill()
            others.wait()
            said.seek(0)
            print("\n" + said.read(), end="", flush=True)
    return set(codes) <= {0, NONE_FOUND} and 0 in codes


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
    return subprocess.run(
        command_of(command),
        cwd=ROOT,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        check=False,
    )


def command_of(command: list[str]) -> list[str | Path]:
    return [BIN / command[0], *command[1:]]


def environment() -> dict[str, str]:
    """The checkers find the environment by PATH, wherever this was called from."""
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
