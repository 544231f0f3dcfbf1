"""python -m benchmarks against REV: this tree and an older commit, in turns.

The commit is checked out beside, and both run the same commands with the same Python and the same
installed packages. Each work runs once in each tree before it counts, because the first run
compiles and makes the input. In each pair the order is another one. What the table shows is how
many times the figure of the commit the figure of this tree is, with an interval of 95 %.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.against.ratios import Compared, table
from benchmarks.against.works import WORKS, Sizes, Work, measured
from benchmarks.jobs.compare import machine
from raystream.errors import JobError

ROOT = Path(__file__).resolve().parents[2]


def main(
    rev: Annotated[str, typer.Argument(help="A commit, as git knows it.", show_default=False)],
    works: Annotated[str, typer.Option(help=f"Of {', '.join(WORKS)}.")] = ",".join(WORKS),
    pairs: Annotated[int, typer.Option(min=1, help="Runs of each tree that count.")] = 10,
    itself: Annotated[
        bool, typer.Option("--itself", help="Run the commit twice in each pair: its own spread.")
    ] = False,
    records: Annotated[
        int, typer.Option(min=20_000, help="Records of W1, and words of W2.")
    ] = 20_000_000,
    seconds: Annotated[int, typer.Option(min=60, help="Seconds of Linear Road traffic.")] = 10_800,
    warm: Annotated[bool, typer.Option(help="Whether a run of each goes before.")] = True,
    limit: Annotated[float, typer.Option(help="Seconds that a run may take.")] = 600.0,
    data: Annotated[Path, typer.Option(help="Where inputs are kept.")] = Path("data/against"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per run, too.")] = False,
) -> None:
    """This tree and an older commit in turns: medians, and paired ratios with an interval."""
    names = works.split(",")
    if unknown := [name for name in names if name not in WORKS]:
        raise typer.BadParameter(f"--works {unknown[0]}: of {', '.join(WORKS)}")
    sizes = Sizes(data=data.resolve(), records=records, traffic_seconds=seconds)
    console = Console(stderr=True)
    with worktree(rev) as (then, commit):
        if "linear-road" in names:
            make_traffic(sizes)
        trees = {"now": ROOT, "then": then, **({"then again": then} if itself else {})}
        compared = []
        for name in names:
            figures: dict[str, list[float]] = {tree: [] for tree in trees}
            for i in range(pairs + warm):
                for tree in in_turn([*trees], i):
                    console.print(f"[dim]{name}, {tree}: run {i + 1} of {pairs + warm}[/dim]")
                    result = measured(WORKS[name], trees[tree], sizes, limit)
                    counts = i >= warm
                    if counts:
                        figures[tree].append(WORKS[name].figure(result))
                    if as_json:
                        said = {"against": name, "tree": tree, "counts": counts, **result}
                        print(json.dumps(said), flush=True)
            compared.append(compared_of(WORKS[name], figures))
            console.print(table(compared[-1:], commit), markup=False, soft_wrap=True)
    print(f"{machine()}; {commit} and this tree in turns.\n\n{table(compared, commit)}")


def in_turn(trees: list[str], at: int) -> list[str]:
    """The order in which the trees run in one pair."""
    random.Random(at).shuffle(trees)
    return trees


def compared_of(work: Work, figures: dict[str, list[float]]) -> Compared:
    """The figures of a work by their trees."""
    return Compared(work, figures["now"], figures["then"], figures.get("then again", ()))


def make_traffic(sizes: Sizes) -> None:
    """Make the traffic of Linear Road, where it is not there yet."""
    folder = sizes.data / sizes.traffic
    if not (folder / "meta.json").exists():
        from spark_ingest.generate import generate

        generate(folder, xways=1, seconds=sizes.traffic_seconds, seed=7)


@contextmanager
def worktree(rev: str) -> Iterator[tuple[Path, str]]:
    """A checkout of a commit in a folder of its own, which is removed in the end, and the short
    name of the commit.

    Raises:
        JobError: git does not know the commit.
    """
    commit = git("rev-parse", "--short", "--verify", f"{rev}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="against-") as folder:
        tree = Path(folder, commit)
        git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree, commit
        finally:
            git("worktree", "remove", "--force", str(tree))


def git(*arguments: str) -> str:
    """What git says."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise JobError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()
