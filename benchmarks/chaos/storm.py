"""Moves at random for running jobs: more instances, fewer, or another process; in both modes.

Requests go to the controller as those of `raystream scale` and `raystream move` do. Nobody waits
for a move before the next is asked for, so several are under way, and some are refused.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from rich.table import Table

from benchmarks.chaos.faults import WARM_SECONDS
from raystream.actors.control.actor_names import CONTROLLER, actor, running
from raystream.controller.protocol.move_requests import MoveMode

KINDS = tuple(
    f"{what}, {mode}" for mode in ("replay", "handover") for what in ("out", "in", "move")
)
"""out, in: an instance more or fewer of an operator or source, whose ranges are all cut anew. move:
an instance of anything, also of a sink, goes to another process, on any node."""
OTHER = "(not asked for)"
MOST = 4
"""Instances that anything is given at most, unless it is said otherwise."""
ANSWER_SECONDS = 30.0
"""How long a controller may take to say whether it takes a request up; it may be dead."""
ASKING = 8
"""Requests that may wait for an answer at the same time."""

Taken = Literal["taken up", "refused", "unanswered"]


class Ask(NamedTuple):
    """A request. instances: how many `operator` is to have; or instance: who is to be replaced."""

    kind: str
    operator: str
    instances: int = 0
    instance: str = ""

    @property
    def mode(self) -> MoveMode:
        return cast(MoveMode, self.kind.partition(", ")[2])


class Done(NamedTuple):
    """A move that has ended, as the job's report tells it. because: the kind that was asked for;
    seconds: from the request to its end."""

    because: str
    failed: str
    seconds: float


def choose(
    kind: str,
    counts: Mapping[str, int],
    names: Iterable[str],
    sinks: Iterable[str],
    rng: random.Random,
    most: int = MOST,
) -> Ask | None:
    """A request of a kind; None while none is possible.

    Args:
        counts: by operator, source or sink how many instances it has. names: of instances that
            live. sinks: of which the number of instances stays. most: instances of anything.
    """
    what = kind.partition(", ")[0]
    if what == "move":
        there = [n for n in sorted(names) if n.partition("/")[0] in counts]
        chosen = rng.choice(there) if there else ""
        return Ask(kind, chosen.partition("/")[0], instance=chosen) if chosen else None
    more = 1 if what == "out" else -1
    fixed = set(sinks)
    free = [
        v for v, n in sorted(counts.items()) if v not in fixed and (n < most if more > 0 else n > 1)
    ]
    vertex = rng.choice(free) if free else ""
    return Ask(kind, vertex, counts[vertex] + more) if vertex else None


@dataclass
class Storm:
    """Asks a job for moves while it is told of the job's progress.

    sinks: names of sinks; every: seconds between requests, on average; most: instances that
    anything is given. asked: what was asked for, and what the controller said to it.
    """

    rng: random.Random
    sinks: Sequence[str]
    every: float
    say: Callable[[str], None] = print
    most: int = MOST
    asked: list[tuple[Ask, Taken]] = field(default_factory=list)
    _due: list[str] = field(default_factory=list)
    _next: float = 0.0
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(ASKING))
    _asking: list[Future[None]] = field(default_factory=list)

    def __call__(self, sample: Any) -> None:
        """Ask for a move, if it is time."""
        if sample.t < WARM_SECONDS or time.monotonic() < self._next:
            return
        if not self._due:
            self._due = self.rng.sample(KINDS, len(KINDS))
        counts = {name: o.instances for name, o in sample.operators.items()}
        others = self.rng.sample(KINDS, len(KINDS))  # what is due may be impossible
        for kind in (*self._due, *others):
            ask = choose(kind, counts, sample.processes, self.sinks, self.rng, self.most)
            if ask is not None:
                if kind in self._due:
                    self._due.remove(kind)
                self._next = time.monotonic() + self.rng.uniform(0.5, 1.5) * self.every
                self._asking.append(self._threads.submit(self._ask, ask, self.rng.random()))
                return

    def _ask(self, ask: Ask, chance: float) -> None:
        taken, why = answer_to(ask, chance)
        self.asked.append((ask, taken))
        wanted = ask.instance or f"{ask.operator}={ask.instances}"
        self.say(f"{ask.kind}: {wanted}: {taken}{why and f' ({why})'}")

    def close(self) -> None:
        """Wait for the answers to what was asked for, and ask no more."""
        self._threads.shutdown()
        for asking in self._asking:
            asking.result()


def answer_to(ask: Ask, chance: float) -> tuple[Taken, str]:
    """Put a request to the only job of the cluster to which this process is connected; what its
    controller says, and why.

    Args:
        chance: from 0 to 1, which of the living nodes a moved instance is to go to.
    """
    import ray
    from ray.exceptions import RayError

    try:
        (run,) = running()
        controller = actor(run, CONTROLLER)
        if ask.instance:
            listed: Any = ray.nodes
            nodes = ["", *sorted(n["NodeID"] for n in listed() if n["Alive"])]
            node = nodes[min(int(chance * len(nodes)), len(nodes) - 1)]
            call = controller.move.remote(ask.instance, node, ask.kind, ask.mode)
        else:
            call = controller.scale.remote({ask.operator: ask.instances}, ask.kind, ask.mode)
        refusal = cast(str, ray.get(call, timeout=ANSWER_SECONDS))
    except (RayError, ValueError, AttributeError) as error:  # no job, no controller, or a dead one
        return "unanswered", f"{type(error).__name__}"
    return ("refused", refusal) if refusal else ("taken up", "")


# ---------------------------------------------------------------- what came of it


class Row(NamedTuple):
    """What came of one kind. seconds: of the moves that were made."""

    kind: str
    asked: int
    said: Counter[Taken]
    made: int
    given_up: int
    seconds: list[float]


def tally(asked: Iterable[tuple[Ask, Taken]], done: Iterable[Done]) -> list[Row]:
    """A row for each kind, and one for moves that nobody asked for, if there are any."""
    rows = {k: Row(k, 0, Counter(), 0, 0, []) for k in (*KINDS, OTHER)}
    for ask, taken in asked:
        row = rows[ask.kind]
        row.said[taken] += 1
        rows[ask.kind] = row._replace(asked=row.asked + 1)
    for move in done:
        kind = move.because if move.because in KINDS else OTHER
        row = rows[kind]
        rows[kind] = row._replace(
            made=row.made + (not move.failed), given_up=row.given_up + bool(move.failed)
        )
        if not move.failed:
            row.seconds.append(move.seconds)
    return [r for r in rows.values() if r.kind != OTHER or r.made + r.given_up]


def table(rows: Iterable[Row]) -> Table:
    """For the terminal. What was unanswered may have been done all the same."""
    shown = Table(title="Moves")
    shown.add_column("kind")
    columns = ("asked", "taken up", "refused", "unanswered", "made", "given up", "median s",
               "most s")  # fmt: skip
    for column in columns:
        shown.add_column(column, justify="right")
    answers: tuple[Taken, ...] = ("taken up", "refused", "unanswered")
    for r in rows:
        took = [statistics.median(r.seconds), max(r.seconds)] if r.seconds else []
        shown.add_row(
            r.kind, str(r.asked), *(str(r.said[a]) for a in answers), str(r.made),
            str(r.given_up), *(f"{s:.1f}" for s in took),
        )  # fmt: skip
    return shown
