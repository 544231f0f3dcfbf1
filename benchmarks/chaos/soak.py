"""python -m benchmarks.chaos: strike processes of running jobs, and check every answer.

Paced jobs run on Ray, on raylets of this machine, while their processes are killed or made to
sleep: instances, keepers, the controller, neighbours together, whole nodes. What a job answers must
be what an undisturbed run in one process answers. --work says which job: `words`, a windowed word
count; `together`, the same with instances that share processes; `arrival`, a source whose epochs
are cut by the clock; `pushed`, records that clients push, which are killed, too
(`benchmarks.chaos.pushed`); --data, Linear Road. With --each jobs run one after the other until
every kind of fault was made so often. With --moves ranges are split, merged and moved at random
meanwhile (`benchmarks.chaos.storm`). With --state-memory rows beyond it are on disk. With --readers
clients read the rows of the word count meanwhile, and each answer is checked
(`benchmarks.chaos.readers`).
"""

from __future__ import annotations

import random
import statistics
import sys
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.chaos import storm
from benchmarks.chaos.faults import (
    FAMILIES,
    WARM_SECONDS,
    Monkey,
    Strike,
    kinds_of,
    possible,
)
from benchmarks.chaos.nodes import Nodes
from benchmarks.chaos.pushed import PushedWork
from benchmarks.chaos.readers import Found, Readers
from benchmarks.chaos.works import LinearRoad, Words, Work
from benchmarks.shared.namespaces import NoNamespacesError
from raystream.errors import JobError, RaystreamError

WIDTH = 100
WORKS = ("words", "arrival", "together", "pushed")
NOT_STRUCK = "(not struck)"
"""Who was replaced without a fault of its own."""
LOST = ("the checkpoint of ", "the boundary register is lost", "the journal of the job is lost")
"""How a job ends that has lost all copies of what it needs."""

Verdict = Literal["right", "wrong", "stopped", "failed"]


# ---------------------------------------------------------------- jobs


@dataclass
class Job:
    """What became of a job."""

    strikes: list[Strike]
    verdict: Verdict
    answers: int = 0
    detail: str = ""
    recoveries: list[tuple[float, float, tuple[str, ...]]] = field(default_factory=list)
    asked: list[tuple[storm.Ask, storm.Taken]] = field(default_factory=list)
    moved: list[storm.Done] = field(default_factory=list)
    on_disk: int = 0
    """How many rows were on disk alone, at most."""
    read: Found = field(default_factory=Found)
    """What clients that read its rows were answered."""


def run_job(
    work: Work,
    monkey: Monkey,
    moving: storm.Storm | None,
    seconds: int,
    memory: str | None = None,
    readers: Readers | None = None,
) -> Job:
    """One disturbed job, and whether it was right. memory: for the rows of an instance."""
    address, copies = monkey.nodes.address, monkey.copies

    job = Job(monkey.strikes, "right", asked=[] if moving is None else moving.asked)

    def tell(sample: Any) -> None:
        on_disk = sum(o.rows_on_disk for o in sample.operators.values())
        job.on_disk = max(job.on_disk, on_disk)
        monkey(sample)
        if moving is not None:
            moving(sample)
        if readers is not None and sample.committed.epoch:
            readers.look()

    try:
        said = work.run(tell, seconds, cluster=address, copies=copies, state_memory=memory)
    except RaystreamError as error:
        lost = copies == 1 and isinstance(error, JobError) and error.message.startswith(LOST)
        job.verdict, job.detail = "stopped" if lost else "failed", str(error)
        return job
    finally:
        monkey.close()
        if moving is not None:
            moving.close()
        if readers is not None:
            job.read = readers.close()
    job.answers, job.recoveries, job.moved = said.found, said.recoveries, said.moved
    if said.wrong:
        job.verdict, job.detail = "wrong", f"{said.wrong:,} of {said.found:,} answers are wrong"
    elif job.read.wrong:
        job.verdict, job.detail = "wrong", f"{len(job.read.wrong):,} readers' answers are wrong"
    return job


class Row(NamedTuple):
    """What came of one kind of fault. jobs: in how many jobs it was made; by verdict."""

    kind: str
    strikes: int
    replaced: int
    ms: list[float]
    jobs: Counter[str]


def tally(kinds: Sequence[str], jobs: Iterable[Job]) -> list[Row]:
    """A row for each kind, and one for those who were replaced without having been struck."""
    rows = {kind: Row(kind, 0, 0, [], Counter()) for kind in (*kinds, NOT_STRUCK)}
    for job in jobs:
        struck = {victim: s.kind for s in job.strikes for victim in s.victims}
        for kind, n in Counter(s.kind for s in job.strikes).items():
            rows[kind] = rows[kind]._replace(strikes=rows[kind].strikes + n)
            rows[kind].jobs[job.verdict] += 1
        for _, seconds, gone in job.recoveries:
            by_kind = Counter(struck.get(name, NOT_STRUCK) for name in gone)
            for kind, n in by_kind.items():
                rows[kind] = rows[kind]._replace(replaced=rows[kind].replaced + n)
                rows[kind].ms.append(seconds * 1e3)
    return [r for r in rows.values() if r.kind != NOT_STRUCK or r.replaced]


def _table(rows: Iterable[Row]) -> Table:
    table = Table(title="Faults, and who was replaced")
    columns = ("strikes", "replaced", "median ms", "most ms", "jobs", "wrong", "failed", "stopped")
    table.add_column("kind")
    for column in columns:
        table.add_column(column, justify="right")
    for r in rows:
        times = (f"{statistics.median(r.ms):.0f}", f"{max(r.ms):.0f}") if r.ms else ("", "")
        verdicts = (str(r.jobs[v]) for v in ("wrong", "failed", "stopped"))
        table.add_row(
            r.kind, str(r.strikes), str(r.replaced), *times, str(r.jobs.total()), *verdicts
        )
    return table


# ---------------------------------------------------------------- the command


def main(
    seconds: Annotated[int, typer.Option(min=10, help="How long a job runs, about.")] = 60,
    rate: Annotated[int, typer.Option(min=20, help="Lines, or records, a second.")] = 1000,
    work: Annotated[str, typer.Option(help=f"{', '.join(WORKS)}.")] = "words",
    data: Annotated[
        Path | None, typer.Option(help="Linear Road over this prepared folder, instead of words.")
    ] = None,
    kinds: Annotated[
        str, typer.Option(help=f"Of {', '.join(FAMILIES)}; all that can be, but cut, unless given.")
    ] = "",
    each: Annotated[
        int | None, typer.Option(min=1, help="So many faults of each kind, in several jobs.")
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between faults, on average.")] = 3.0,
    moves: Annotated[
        float, typer.Option(min=0, help="Ranges split, merged and moved, a minute on average.")
    ] = 0.0,
    epoch: Annotated[
        float | None, typer.Option(help="Seconds of an epoch of Linear Road; 0.05 unless given.")
    ] = None,
    most: Annotated[
        int, typer.Option(min=2, help="Instances that moves give anything at most.")
    ] = storm.MOST,
    nodes: Annotated[int, typer.Option(min=1, help="Raylets, the first of which is the head.")] = 1,
    copies: Annotated[int, typer.Option(min=1, help="Keepers that hold a checkpoint.")] = 1,
    state_memory: Annotated[
        str | None, typer.Option(help="Memory for the rows of an instance, as in 20kB.")
    ] = None,
    readers: Annotated[
        int, typer.Option(min=0, help="Clients that read rows of the word count meanwhile.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of the choice of faults and victims.")] = 1,
) -> None:
    """Strike processes of running jobs, and check every answer."""
    families = _families(kinds, possible(copies, nodes))
    chosen = _work(work, rate, data, epoch, every, seed)
    if readers and not (isinstance(chosen, Words) and not chosen.arrival):
        raise typer.BadParameter("--readers: of --work words or together, whose epochs are known")
    made = kinds_of(families, chosen.chains)
    rng = random.Random(seed)
    raylets = _raylets(nodes, families)
    asked = Asked(
        seconds=seconds, each=each, every=every, moves=moves, most=most, copies=copies,
        memory=state_memory, readers=readers,
    )  # fmt: skip
    try:
        jobs = _run_all(chosen, raylets, made, rng, asked)
        logs = raylets.logs
    finally:
        raylets.close()
    rows = tally(made, jobs)
    _show(rows, jobs, asked, seed)
    bad = [j for j in jobs if j.verdict in ("wrong", "failed")]
    if bad:
        Console().print(f"logs: {logs}", soft_wrap=True)
    missed = [r.kind for r in rows if r.kind != NOT_STRUCK and r.strikes < (each or 0)]
    if missed:
        Console().print(f"struck less often than asked for: {', '.join(missed)}")
    sys.exit(1 if bad or missed else 0)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How jobs are run and struck."""

    seconds: int
    """How long a job runs, about."""
    each: int | None
    """How many faults of each kind are made, in several jobs; None: one job, faults at random."""
    every: float
    """Seconds between faults, on average."""
    moves: float
    """How many moves are asked for in a minute."""
    most: int
    """How many instances moves give anything at most."""
    copies: int
    """How many keepers hold a checkpoint."""
    memory: str | None
    """For the rows of an instance; None: for all of them."""
    readers: int
    """How many clients read rows."""


def _show(rows: Sequence[Row], jobs: Sequence[Job], asked: Asked, seed: int) -> None:
    """Print what came of all jobs."""
    wide = Console(width=WIDTH)
    wide.print(_table(rows))
    if asked.moves:
        moved = storm.tally((a for j in jobs for a in j.asked), (m for j in jobs for m in j.moved))
        wide.print(storm.table(moved))
    Console().print(_summed(rows, jobs, asked, seed))
    if asked.readers:
        Console().print(_read(jobs))


def _summed(rows: Sequence[Row], jobs: Sequence[Job], asked: Asked, seed: int) -> str:
    """What came of all jobs, in a line."""
    counts = Counter(j.verdict for j in jobs)
    made = f" and {sum(len(j.moved) for j in jobs)} moves" if asked.moves else ""
    on_disk = f" up to {max(j.on_disk for j in jobs):,} rows on disk;" if asked.memory else ""
    return (
        f"{sum(r.strikes for r in rows)} faults{made} in {len(jobs)} jobs:"
        f" {', '.join(f'{n} {verdict}' for verdict, n in counts.items())};"
        f" {sum(j.answers for j in jobs):,} answers checked;{on_disk} seed {seed}"
    )


def _read(jobs: Sequence[Job]) -> str:
    """What clients were answered that read rows of all jobs, in a line."""
    found = [j.read for j in jobs]
    return (
        f"clients had {sum(f.answers for f in found):,} answers,"
        f" {sum(f.rows for f in found):,} of them rows, of"
        f" {sum(len(f.epochs) for f in found):,} epochs:"
        f" {sum(len(f.wrong) for f in found)} wrong;"
        f" {sum(f.failed for f in found)} requests without an answer;"
        f" {sum(f.died for f in found)} times a client died"
    )


def _work(
    name: str, rate: int, data: Path | None, epoch: float | None, every: float, seed: int
) -> Work:
    """The work that is asked for.

    Raises:
        BadParameter: there is none of this name.
    """
    if name not in WORKS:
        raise typer.BadParameter(f"--work {name}: {', '.join(WORKS)}")
    if name == "pushed" and data is None:
        return PushedWork(rate, every, seed)
    words_of = Words(rate, name == "arrival", name == "together")
    return words_of if data is None else LinearRoad(data, epoch)


def _raylets(count: int, families: Sequence[str]) -> Nodes:
    """Raylets that can be struck so.

    Raises:
        BadParameter: this machine does not allow it.
    """
    try:
        return Nodes(count, head_dies="head" in families, cuts="cut" in families)
    except NoNamespacesError as error:
        raise typer.BadParameter(f"--kinds cut: {error}") from None


def _families(kinds: str, allowed: Sequence[str]) -> list[str]:
    """The kinds of faults that are asked for. If none are named, all that the nodes allow, but for
    cuts, which not every machine allows.

    Raises:
        BadParameter: one is unknown, or the nodes do not allow it.
    """
    usual = [f for f in allowed if f != "cut"]
    families = [k.strip() for k in kinds.split(",")] if kinds else usual
    if unknown := [f for f in families if f not in FAMILIES]:
        raise typer.BadParameter(f"--kinds {unknown[0]}: of {', '.join(FAMILIES)}")
    if impossible := [f for f in families if f not in allowed]:
        raise typer.BadParameter(f"--kinds {impossible[0]} needs more --nodes or --copies")
    return families


def _run_all(
    work: Work, nodes: Nodes, kinds: Sequence[str], rng: random.Random, asked: Asked
) -> list[Job]:
    """One job with faults at random; or with `each`, jobs until all faults were made, as long as
    any of them can be."""
    console = Console(stderr=True)
    sinks = sorted({chain[-1] for chain in work.chains})

    def say(text: str) -> None:
        console.print(f"[dim]  {text}[/dim]", highlight=False)

    wanted = list(kinds) * (asked.each or 0)
    due = deque(rng.sample(wanted, len(wanted)))
    jobs: list[Job] = []
    while True:
        most = asked.seconds
        took = most if asked.each is None else min(most, length(len(due), asked.every))
        limit = 3.0 * took + 120
        refill = kinds if asked.each is None else ()
        monkey = Monkey(
            rng, nodes, work.chains, asked.every, asked.copies, due, refill, limit, say=say
        )
        moving = None
        if asked.moves:
            again = random.Random(rng.random())
            moving = storm.Storm(again, sinks, 60 / asked.moves, say, asked.most)
        todo = "faults at random" if asked.each is None else f"{len(due)} faults to make"
        console.print(f"[dim]job {len(jobs) + 1}: {took} s, {todo}[/dim]")
        readers = None
        if asked.readers and isinstance(work, Words):
            seed = rng.randrange(1 << 30)
            readers = Readers(work.lines(took), asked.readers, nodes.address, seed)
        jobs.append(run_job(work, monkey, moving, took, asked.memory, readers))
        job = jobs[-1]
        console.print(f"{job.verdict}: {job.answers:,} answers {job.detail}", markup=False)
        if asked.each is None or not due or not job.strikes:
            return jobs


def length(faults: int, every: float) -> int:
    """Seconds of a job that has room for so many faults."""
    return round(WARM_SECONDS + 10 + 1.5 * every * faults)
