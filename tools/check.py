"""Style, layers and types, and with `--tests` the tests: everything runs, then the verdict.

python tools/check.py [--tests [--long] [arguments for pytest]]

Without arguments for pytest the tests with the mark `long` are left out; with `--long` they are
the ones that run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
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
YIELDING = ["nice", "-n", "19"]
FOLDERS = (
    ("simulation",), ("compiled",), ("dataflow",), ("lrb", "typing"), ("io",), ("spark_ingest",),
    ("durable", "local", "event_time"), ("actors", "benchmarks"), ("docs", "state"),
)  # fmt: skip
"""Tests that start no Ray run in processes by these folders, in this order, after one for all that
is left. The longest come first, so that no long one is alone at the end; what asks servers comes
once the checks, which load the machine most, have ended. What runs in one process, and in which
order, is the same each time."""
LANES = 3
"""So many of these processes run at once: machines differ, so none waits for the others. Those that
ask servers or start Spark wait for half of their time, so there is one more than processors."""
SLOWEST = ("--durations=8", "--durations-min=10")
"""Each part says which of its tests take long, so that it is seen where time goes on a machine."""
LINES_SHOWN = 60
SHOWN_SECONDS = 0.2
OF_RAY = {
    "RAY_worker_niceness": "0",  # its own is 15, and then they wait for the other tests
    "REPORTER_UPDATE_INTERVAL_MS": "60000",  # for a dashboard that is not looked at
}
"""Settings of each Ray that tests start."""
END_SECONDS = 15.0
"""How long tests that are interrupted may take to end what they have started."""


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # of a script's `&` it is ignored
    with ExitStack() as stack:
        parts = started(arguments[1:], stack) if arguments[:1] == ["--tests"] else {}
        before = YIELDING if parts else []
        failed = [name for name, command in CHECKS.items() if not check(name, command, *before)]
        if parts and not shown(parts):
            failed.append("tests")
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def started(arguments: list[str], stack: ExitStack) -> dict[str, Running]:
    """Tests that start Ray mostly wait, so the others run beside them, and are shown afterwards.

    The others, and the checks, are the ones that yield: what waits for Ray's processes has limits.
    """
    long = arguments[:1] == ["--long"]
    arguments = arguments[long:]
    which = " and long" if long else "" if arguments else " and not long"
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

    def part(mark: str, where: Sequence[str], *before: str) -> Running:
        command = [*before, *command_of(["pytest", *SLOWEST, "-m", f"{mark}{which}", *where])]
        made = Running(command, folder / str(len(parts)))
        stack.callback(made.end)
        return made

    parts: dict[str, Running] = {}
    parts["tests that start Ray"] = first = part("ray", arguments or files_that_start_ray())
    first.start()
    for name, where in others(arguments).items():
        parts[name] = part("not ray", where, *YIELDING)
    waiting = deque([*parts.values()][1:])
    for _ in range(LANES):
        threading.Thread(target=one_by_one, args=(waiting,), daemon=True).start()
    return parts


def others(arguments: list[str]) -> dict[str, list[str]]:
    """The arguments for tests that start no Ray, by a name for each process of them."""
    if arguments:
        return {"other tests": arguments}
    found = {f"tests of {' and '.join(f)}": [f"tests/{each}" for each in f] for f in FOLDERS}
    known = [each for folders in found.values() for each in folders]
    return {"other tests": [f"--ignore={each}" for each in known], **found}


def one_by_one(waiting: deque[Running]) -> None:
    """Run what waits, one after the other."""
    while waiting:
        with suppress(IndexError):  # another lane has taken the last one
            part = waiting.popleft()
            part.start()
            part.ended.wait()


def files_that_start_ray() -> list[str]:
    """Others need not be imported."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(f.relative_to(ROOT)) for f in files if "pytest.mark.ray" in f.read_text()]


def shown(parts: dict[str, Running]) -> bool:
    """Print what they write until they end; whether all is well."""
    for name, part in parts.items():
        print(f"\n{name}:", flush=True)
        part.show()
    for name, part in parts.items():
        if part.failed:  # it is far above by now, or was long: what is wrong is said last
            print(f"\nof {name}, exit code {part.code}:\n{part.summary()}")
    return not any(p.failed for p in parts.values()) and 0 in [p.code for p in parts.values()]


class Running:
    """A command that writes to a file: what it leaves behind cannot keep us waiting. It is in a
    group of its own: an interrupt reaches it once, from here."""

    def __init__(self, command: Sequence[str | Path], file: Path) -> None:
        self._command, self._file = command, file
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._over = False
        self.ended = threading.Event()
        """It has ended, or is not to start."""
        file.touch()

    def start(self) -> None:
        """Start it, and see to it that its end is known; unless it was ended before."""
        with self._starting, self._file.open("wb") as said:
            if self._over:
                return
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=environment(),
                stdout=said,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        threading.Thread(target=self._wait, args=(self._process,), daemon=True).start()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self.ended.set()

    def show(self) -> None:
        """Print what it writes until it ends."""
        with self._file.open(errors="replace") as said:
            ended = False
            while not ended:
                ended = self.ended.is_set()
                print(said.read(), end="", flush=True)
                time.sleep(0 if ended else SHOWN_SECONDS)

    def end(self) -> None:
        """End it, or do not let it start."""
        with self._starting:
            self._over, process = True, self._process
        if process is not None:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(END_SECONDS)
            process.kill()
            process.wait()
        self.ended.set()

    @property
    def code(self) -> int:
        """Its exit code, once it has ended."""
        self.ended.wait()
        return 1 if self._process is None else self._process.wait()

    @property
    def failed(self) -> bool:
        return self.code not in {0, NONE_FOUND}

    def summary(self) -> str:
        """Pytest's own. Where it came to none the last lines, and if a test hung where that was."""
        lines = self._file.read_text(errors="replace").splitlines()
        begins = [i for i, line in enumerate(lines) if "short test summary" in line]
        if begins:
            return "\n".join(lines[begins[-1] :])
        ours = [line for line in lines if line.startswith(f'  File "{ROOT}/')]
        where = [line for line in ours if f'"{BIN.parent}/' not in line]
        return "\n".join([*lines[-LINES_SHOWN:], *(["", "in our files:"] if where else []), *where])


def check(name: str, command: list[str], *before: str) -> bool:
    """One line when all is well, the tool's own words when not. before: a command that runs it."""
    begun = time.monotonic()
    done = subprocess.run(
        [*before, *command_of(command)],
        cwd=ROOT,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    verdict = "FAILED" if done.returncode else "ok"
    print(f"{name:<16} {verdict:<7} {time.monotonic() - begun:4.1f} s", flush=True)
    if done.returncode:
        print(done.stdout, flush=True)
    return done.returncode == 0


def command_of(command: list[str]) -> list[str | Path]:
    return [BIN / command[0], *command[1:]]


def environment() -> dict[str, str]:
    """The checkers find the environment by PATH, wherever this was called from."""
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **OF_RAY, "PATH": path, "PYTHONPATH": str(ROOT)}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
