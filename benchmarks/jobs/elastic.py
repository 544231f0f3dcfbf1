"""Moves at steady load: a range with much state goes to another process while the job goes on.

A keyed operator of two instances keeps a kilobyte for each key, and changes some of them all the
time. The first of the two is moved again and again, in replay mode or by hand-over; for comparison
the job is stopped with a saved checkpoint and resumed. Noted is when each epoch was first worked
on, for the keys that move and for those that stay, and when it came to the sink. An epoch of a sink
is whole or not there, so at the sink nobody can be earlier than the keys that move.

The first work on an epoch is what is noted, whoever did it: both an owner and who is to follow it
work on each, and consumers take the first.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from raystream.actors.client.rescaling import move
from raystream.actors.client.stopping import stop
from raystream.actors.client.watching import looks
from raystream.actors.cluster.connecting import cluster
from raystream.errors import JobError, Stopped

TICKS = 20
"""Event time counts epochs, of which there are so many in a real second."""
RATE = 100
"""Records of an epoch."""
NUMBERS = 125
"""Of 8 bytes, in the state of a key."""
KEYS_PER_MB = 1000
FILL_KEYS = 1000
"""So many keys are seen for the first time in each of the first epochs."""
CHECKPOINT_SECONDS = 2.0
WARM_SECONDS = 6.0
"""From the last new key to the first move, and as much again for every `SETTLED_MB`: growing state
is checkpointed whole again and again, and what is measured is steady load. The last 3 s of it count
as usual."""
SETTLED_MB = 250
SPARES_SECONDS = 36.0
"""Nothing is moved before: two spare processes are loaded by then."""
BETWEEN_SECONDS = 4.0
"""Between moves, and after the last one."""
AFTER_SECONDS = 1.0
"""What comes so long after a move still counts as during it."""
GROUPS = 256
JOB = "moving"

Way = Literal["replay", "handover", "restart"]
WAYS: tuple[Way, ...] = ("replay", "handover", "restart")


# ---------------------------------------------------------------- the work


class Key(NamedTuple):
    time: rs.Int64
    key: rs.Int64


class Counted(NamedTuple):
    key: rs.Int64
    n: rs.Int64


class Ballast(rs.State):
    n: int = 0
    weight: Annotated[list[float], rs.Array("f8", NUMBERS)] = rs.zeros(NUMBERS)


@dataclass(frozen=True)
class Keys:
    """Every key once, then steadily `rate` of them an epoch; the same however they are read."""

    keys: int
    ticks: int
    rate: int = RATE

    record = Key

    @property
    def filled(self) -> int:
        """The first epoch without a new key."""
        return -(-self.keys // FILL_KEYS)

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("all")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Key]]]:
        for t in range(position, self.ticks):
            keys = self.at(t)
            yield t + 1, rs.Batch(Key, {"time": np.full(len(keys), t), "key": keys})

    def at(self, t: int) -> np.ndarray:
        """The keys of a moment (int64)."""
        if t < self.filled:
            return np.arange(t * FILL_KEYS, min(self.keys, (t + 1) * FILL_KEYS))
        return np.random.Generator(np.random.Philox(key=[7, t])).integers(0, self.keys, self.rate)

    def sums(self) -> list[int]:
        """By moment, what the counts that are shown in it add up to."""
        counts = np.zeros(self.keys, np.int64)
        found = []
        for t in range(self.ticks):
            keys = self.at(t)
            np.add.at(counts, keys, 1)
            found.append(int(counts[keys].sum()))
        return found


@rs.operator(key="key")
@dataclass(frozen=True)
class Count:
    """Counts each key, and notes when it did: `moves` or `stays`, the epoch, the Unix time."""

    notes: str

    def process(self, keys: rs.Batch[Key], rows: rs.Rows[Ballast]) -> rs.Batch[Counted]:
        counts = rows["n"] + np.bincount(rows.index, minlength=len(rows))
        rows["n"] = counts
        weight = rows["weight"]
        weight[:, 0] = counts
        rows["weight"] = weight
        moves = rs.key_groups(keys["key"]) < GROUPS // 2
        with open(self.notes, "a") as file:
            for side, here in (("moves", moves.any()), ("stays", not moves.all())):
                if here:
                    file.write(f"{side} {keys['time'][0]} {time.time()}\n")
        return rs.Batch(Counted, {"key": keys["key"], "n": counts[rows.index]})


@dataclass
class Sums:
    """Notes when each epoch came, and what its counts add up to."""

    path: str

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Counted]) -> None:
        with open(self.path, "a") as file:
            file.write(f"{epoch - 1} {time.time()} {batch['n'].sum()}\n")

    def commit(self, epoch: int) -> None:
        """Nothing is kept back."""


def flow_of(keys: Keys, folder: Path) -> rs.Flow:
    """The flow, which leaves its notes in a folder."""
    flow = rs.Flow(JOB, key_groups=GROUPS)
    source = flow.source(keys, epochs=rs.by_time(seconds=1, speed=float(TICKS)), name="keys")
    count: Any = Count(str(folder / "made"))  # for type checkers, batches with state are functions
    source.through(count, name="count").to(Sums(str(folder / "came")), name="sums")
    return flow


# ---------------------------------------------------------------- the moves


@dataclass
class Mover:
    """Moves the first instance of the operator whenever it is due, while a job is followed.

    at, ended: Unix times of the requests and of their ends; level: seconds until the new instance
    was at work, megabytes: of state that it was given, by the job's own report; of a job that is
    stopped, of all its state as it is stored, since all of it is fetched again.
    """

    way: Way
    moves: int
    due: float
    at: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    level: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)

    def __call__(self, sample: Any) -> None:
        if len(self.at) == self.moves or sample.t < self.due or not sample.committed.epoch:
            return
        workers = next(looks(JOB, "auto", 0.0))[0].of("count")
        self.at.append(time.time())
        if self.way == "restart":
            self.megabytes = [sum(w.progress.state_bytes for w in workers if w.progress) / 1e6]
            # who follows the job hears of its end, so another thread asks
            threading.Thread(target=partial(stop, JOB, "auto", save=True), daemon=True).start()
            return
        (moved,) = move(JOB, "auto", workers[0].name, "", self.way)
        self.ended.append(time.time())
        if moved.failed:
            raise JobError(f"{workers[0].name} could not be moved: {moved.failed}")
        self.megabytes.append(moved.nbytes / 1e6)
        self.level.append(moved.place + moved.restore + moved.replay)
        self.due = sample.t + (self.ended[-1] - self.at[-1]) + BETWEEN_SECONDS


class Form(NamedTuple):
    """What is measured. megabytes: of state that moves; as much stays."""

    way: Way
    megabytes: float

    def __str__(self) -> str:
        return f"{self.megabytes:g} MB, {self.way}"


def run(form: Form, *, moves: int = 3) -> dict[str, Any]:
    """One job whose range is moved so many times, or that is stopped and resumed once.

    Raises:
        JobError: nothing was moved, a move failed, or the counts are not right.
    """
    moves = 1 if form.way == "restart" else moves
    several = round(2 * form.megabytes * KEYS_PER_MB)
    settled = -(-several // FILL_KEYS) / TICKS + WARM_SECONDS * (1 + form.megabytes / SETTLED_MB)
    begin = max(settled, SPARES_SECONDS)
    room = BETWEEN_SECONDS + 2 + form.megabytes / 50
    keys = Keys(several, int((begin + moves * room + BETWEEN_SECONDS) * TICKS))
    mover = Mover(form.way, moves, begin)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with cluster("auto"):  # one for both runs: a restart is not to wait for Ray itself
            started = _follow(flow_of(keys, folder), mover, folder)
        made = np.loadtxt(folder / "made", dtype=[("side", "U5"), ("t", "i8"), ("at", "f8")])
        came = np.loadtxt(folder / "came", dtype=[("t", "i8"), ("at", "f8"), ("sum", "i8")])
    if not mover.at:
        raise JobError(f"{form}: the job was over before anything was moved")
    check(keys, came)
    return {
        "work": "moves at steady load",
        "form": str(form),
        **form._asdict(),
        "moves": len(mover.at),
        **measures(started, mover, made, came),
    }


def _follow(flow: rs.Flow, mover: Mover, folder: Path) -> float:
    """Run the flow to its end; the Unix time at which its paced time began."""
    common: dict[str, Any] = {
        "cluster": "auto",
        "instances": {"count": 2},
        "checkpoint_seconds": CHECKPOINT_SECONDS,
        "spares": 2,
    }
    if mover.way != "restart":
        return float(flow.run(**common, on_progress=mover).started)
    began = time.time()
    try:
        flow.run(**common, durable=folder / "cuts", on_progress=mover)
    except Stopped:
        flow.run(**common, durable=folder / "cuts", resume=True)
    else:
        raise JobError(f"{JOB} has ended before it was stopped")
    return began


def check(keys: Keys, came: np.ndarray) -> None:
    """All counts are right, also those that came twice.

    Raises:
        JobError: they are not.
    """
    right = keys.sums()
    wrong = [t for t, _, found in came.tolist() if right[t] != found]
    missing = set(range(keys.ticks)) - set(came["t"].tolist())
    if wrong or missing:
        raise JobError(f"{len(wrong)} epochs have wrong counts, {len(missing)} are missing")


# ---------------------------------------------------------------- what it took


def first(t: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When each moment came first: moments [n] ascending, and Unix times [n]."""
    order = np.lexsort((at, t))
    moments, index = np.unique(t[order], return_index=True)
    return moments, at[order][index]


def longest_gap(at: np.ndarray, begin: float, end: float) -> float:
    """The longest time without anything new that ends between begin and end.

    at: Unix times, in any order. A gap that began earlier counts as a whole. 0 if nothing came.
    """
    times = np.sort(at)
    gaps = np.diff(times)
    inside = (times[1:] > begin) & (times[1:] <= end)
    return float(gaps[inside].max(initial=0.0))


def measures(started: float, mover: Mover, made: np.ndarray, came: np.ndarray) -> dict[str, Any]:
    """Times in milliseconds; of several moves, a list each, but for the percentile of latency,
    which is one over the epochs of all of them. Usual is what was before the first and between
    them.

    Args:
        started: the Unix time at which the first epoch began. made, came: what the operator and the
            sink have noted.
    """
    moving, staying = (
        first(mine["t"], mine["at"])[1]
        for mine in (made[made["side"] == side] for side in ("moves", "stays"))
    )
    moments, at = first(came["t"], came["at"])
    steady = mover.way != "restart"  # a resumed job has another clock
    calm = [(mover.at[0] - WARM_SECONDS / 2, mover.at[0])]
    back = 0.0
    if not steady:
        late = np.sort(at[at > mover.at[0]])
        back = float(late[np.diff(late, prepend=mover.at[0]).argmax()])
        spans = [(mover.at[0], back + AFTER_SECONDS)]  # an epoch may have been made before it ended
    else:
        spans = [(a, b + AFTER_SECONDS) for a, b in zip(mover.at, mover.ended, strict=True)]
        calm += [(end, begin) for (_, end), begin in zip(spans, mover.at[1:], strict=False)]
    latency = at - (started + moments / TICKS)  # an epoch of one tick is released as it begins

    def p99(within: Sequence[tuple[float, float]]) -> float:
        inside = np.logical_or.reduce([(at > begin) & (at <= end) for begin, end in within])
        return float(np.percentile(latency[inside], 99)) * 1e3

    return {
        "usual_gap_ms": max(longest_gap(at, *span) for span in calm) * 1e3,
        "moving_gap_ms": [longest_gap(moving, *s) * 1e3 for s in spans],
        "staying_gap_ms": [longest_gap(staying, *s) * 1e3 for s in spans],
        "sink_gap_ms": [longest_gap(at, *s) * 1e3 for s in spans],
        "usual_p99_ms": p99(calm) if steady else None,
        "moving_p99_ms": p99(spans) if steady else None,
        "level_ms": [s * 1e3 for s in (mover.level if steady else [back - mover.at[0]])],
        "megabytes_moved": mover.megabytes,
    }


# ---------------------------------------------------------------- the command


COLUMNS = {
    "moving_gap_ms": "longest gap, keys that move",
    "staying_gap_ms": "keys that stay",
    "sink_gap_ms": "at the sink",
    "usual_gap_ms": "usual",
    "moving_p99_ms": "p99 meanwhile",
    "usual_p99_ms": "p99 usual",
    "level_ms": "until level",
}
"""Of the table, all in milliseconds."""


def main(
    megabytes: Annotated[
        str, typer.Option(help="Sizes of the state that moves, as in 10,100,1000.")
    ] = "10,100",
    ways: Annotated[str, typer.Option(help="Of replay, handover, restart.")] = ",".join(WAYS),
    moves: Annotated[int, typer.Option(min=1, help="Moves in each run.")] = 3,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each form.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per run.")] = False,
) -> None:
    """Ranges that move at steady load, against stop and restart: gaps, latency, time to level."""
    asked = [w for w in WAYS if w in ways.split(",")]
    if unknown := set(ways.split(",")) - set(WAYS):
        raise typer.BadParameter(f"--ways {', '.join(unknown)}: of {', '.join(WAYS)}")
    console = Console(stderr=True)
    results: dict[Form, list[dict[str, Any]]] = {}
    for number in range(repeat):
        for form in (Form(w, float(size)) for size in megabytes.split(",") for w in asked):
            console.print(f"[dim]{form}: run {number + 1} of {repeat}[/dim]")
            results.setdefault(form, []).append(run(form, moves=moves))
            if as_json:
                print(json.dumps(results[form][-1]), flush=True)
    if not as_json:
        screen = Console()
        screen.width = max(screen.width, 140)
        screen.print(table(results))


def table(results: Mapping[Form, Sequence[Mapping[str, Any]]]) -> Table:
    """Medians over all moves of all runs of a form; in brackets the most."""
    shown = Table(title="Moves at steady load, ms: medians, and the most", title_justify="left")
    for heading in ("form", "moves", "MB moved", *COLUMNS.values()):
        shown.add_column(heading, justify="left" if heading == "form" else "right")
    for form, runs in results.items():
        moves = sum(r["moves"] for r in runs)
        size = statistics.median(mb for r in runs for mb in r["megabytes_moved"])
        cells = [_cell([r[figure] for r in runs]) for figure in COLUMNS]
        shown.add_row(str(form), str(moves), f"{size:,.1f}", *cells)
    return shown


def _cell(values: Sequence[Any]) -> str:
    """A median, and the most of several; a dash for what is not defined."""
    known = [each for each in values if each is not None]
    found = [v for each in known for v in (each if isinstance(each, list) else [each])]
    if not found:
        return "–"
    middle = f"{statistics.median(found):,.0f}"
    return f"{middle} ({max(found):,.0f})" if len(found) > 1 else middle
