"""Tries the tests of the core: `python tools/mutants.py [MODULE ...] [--sample N] [--seed N]`.

mutmut changes one thing at a time in a copy of the tree, in `.mutants`, and runs the tests that
reach it. A mutant that no test notices has survived. What is shown is killed and survived by
module; survivors are shown as diffs. `docs/lab/mutants.md` names those that change nothing.

mutmut is installed there too, beside the environment of the project, whose packages it uses.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".mutants"
TOOL, TREE = HOME / "tool", HOME / "tree"
PACKAGES = ["mutmut==3.8.1", "libcst==1.9.0", "setproctitle==1.3.8", "coverage==7.17.5"]
"""Without what they depend on: the project's environment has it, but for the interactive browser
of mutants, which is not used."""

CORE = {
    "raystream/dataflow/inlet.py": ["tests/dataflow/test_inlet.py"],
    "raystream/dataflow/order.py": ["tests/dataflow/test_order.py"],
    "raystream/dataflow/logic/windows.py": ["tests/dataflow/logic/test_windows.py"],
    "raystream/dataflow/instances/*.py": [
        "tests/dataflow/instances/test_emitted.py",
        "tests/dataflow/test_checkpoint_epochs.py",
        "tests/local/test_job.py",
    ],
    "raystream/state/images/partition.py": [
        "tests/state/images/test_partition.py",
        "tests/state/images/test_image.py",
        "tests/state/images/test_image_parts.py",
        "tests/state/images/test_slots.py",
        "tests/state/tables/test_backend.py",
        "tests/state/tables/test_string_dictionary.py",
        "tests/dataflow/snapshot/test_restore.py",
    ],
    "raystream/state/images/chain.py": ["tests/state/images/test_chain.py"],
    "raystream/state/log/epoch_log.py": ["tests/state/log/test_epoch_log.py"],
    "raystream/controller/protocol/*.py": ["tests/controller/protocol"],
}
"""Modules, and the tests beside them, which are to kill their mutants."""
ARGUMENTS = [
    *("-q", "-p", "no:cacheprovider", "-m", "not ray and not spark"),
    *("-o", "faulthandler_timeout=0"),  # mutmut has limits of its own, and is slow where it looks
]
COPIED = ["raystream", "tests", "lrb", "spark_ingest", "benchmarks", "examples", "pyproject.toml"]
SURVIVED, UNTRIED = {0, 5, 33}, {None, 2, 34}
"""What mutmut notes of mutants: pytest's exit code, or a number of its own. A mutant that no test
reaches (5, 33) has survived; one that was interrupted (2) or skipped (34) was not tried."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help="parts of names; all of the core unless given")
    parser.add_argument("--sample", type=int, help="so many mutants of each module, not all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    asked = parser.parse_args(arguments)
    chosen = {m: t for m, t in CORE.items() if not asked.modules or matches(m, asked.modules)}
    if not chosen:
        parser.error(
            f"no module of the core: {' '.join(asked.modules)}; there are {', '.join(CORE)}"
        )
    install()
    make_tree(chosen)
    if asked.sample is None:
        run()
        names = [name for results in found().values() for name in results]
    else:
        run("none")  # makes all mutants, and sees which test reaches which; tries none
        if not (TREE / "mutants" / "mutmut-stats.json").exists():
            print(f"the tests failed without any mutant: see {HOME / 'log'}", file=sys.stderr)
            return 2
        names = sample(found(), asked.sample, asked.seed)
        run(*names)
    return report({module: {n: r[n] for n in r if n in {*names}} for module, r in found().items()})


def matches(module: str, parts: Sequence[str]) -> bool:
    """Whether a module is asked for."""
    return any(part in module for part in parts)


def install() -> None:
    """Install mutmut, unless these versions are there."""
    note = HOME / "packages"
    if note.exists() and note.read_text().split() == PACKAGES:
        return
    shutil.rmtree(TOOL, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(TOOL)]
    subprocess.run([*command, *PACKAGES], check=True)
    note.write_text("\n".join(PACKAGES))


def make_tree(chosen: dict[str, list[str]]) -> None:
    """Copy what tests need, and write for mutmut what it is to change and which tests it is to
    run."""
    shutil.rmtree(TREE, ignore_errors=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, TREE / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, TREE / name)
    settings = {
        "source_paths": ["raystream"],
        "only_mutate": [*chosen],
        "also_copy": COPIED[2:-1],
        "pytest_add_cli_args": ARGUMENTS,
        "pytest_add_cli_args_test_selection": [test for tests in chosen.values() for test in tests],
        "use_git_change_detection": False,
        "track_dependencies": False,
    }
    with (TREE / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("\n[tool.mutmut]\n")
        file.writelines(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())


def run(*names: str) -> None:
    """Have mutmut make the mutants, and try some; all unless named. What it says is in the log:
    where no mutant has the name that was given, that is an error."""
    with (HOME / "log").open("a") as log:
        subprocess.run(
            mutmut("run", *names),
            cwd=TREE,
            env=environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )


def mutmut(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mutmut", *arguments]


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(TOOL), str(TREE)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def found() -> dict[str, dict[str, int | None]]:
    """By module: its mutants, each with the exit code of the tests; None if it was not tried."""
    results = {}
    for meta in sorted((TREE / "mutants").rglob("*.py.meta")):
        module = str(meta.relative_to(TREE / "mutants")).removesuffix(".meta")
        results[module] = json.loads(meta.read_text())["exit_code_by_key"]
    return results


def sample(results: dict[str, dict[str, int | None]], size: int, seed: int) -> list[str]:
    """So many mutants of each module, or all where there are fewer."""
    draw = random.Random(seed).sample
    return [n for r in results.values() for n in sorted(draw(sorted(r), min(size, len(r))))]


def report(results: dict[str, dict[str, int | None]]) -> int:
    """Print a table and the survivors; 1 if a mutant was not tried, as after a test that fails."""
    total: Counter[str] = Counter()
    print(f"{'module':<46} killed survived untried")
    for module, tried in results.items():
        counts = Counter(verdict(code) for code in tried.values())
        total += counts
        if tried:
            print(f"{module:<46} {row(counts)}")
    print(f"{'all':<46} {row(total)}")
    for tried in results.values():
        for name in (n for n, code in tried.items() if verdict(code) == "survived"):
            command = mutmut("show", name)
            shown = subprocess.run(
                command, cwd=TREE, env=environment(), text=True, capture_output=True, check=False
            )
            print(f"\n{shown.stdout.strip() or name}")
    if total["untried"]:
        print(f"\nWhy some were not tried is in {HOME / 'log'}")
    return 1 if total["untried"] or not total else 0


def verdict(code: int | None) -> str:
    """What became of a mutant. One that never ends, or is of the wrong type, is killed too."""
    if code in UNTRIED:
        return "untried"
    return "survived" if code in SURVIVED else "killed"


def row(counts: Counter[str]) -> str:
    return f"{counts['killed']:6} {counts['survived']:8} {counts['untried']:7}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
