"""What `raystream status`, `top` and `story` show of a job that runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from raystream.cli.live import committed_line, size
from raystream.cli.plan import UNLIMITED
from raystream.controller.reporting.status import Pace, Status, Worker, pace, paces, together
from raystream.controller.reporting.story import Told

PLAIN_WIDTH = 150
"""Columns where there is no terminal."""
BAR = 10
"""Cells of the bar that shows how an instance spends its time."""
WARM, HOT = 0.5, 0.7
"""Shares of a core from which the CPU of an instance is shown in yellow, and in red."""
NEWEST = 3
"""How many of the last decisions `status` shows."""
SLOWEST = 3
"""How many links between nodes `status` shows."""
SHARES = "█ busy ▒ blocked"
FIRST_TO_GO = (
    "state", "rows", "key groups", "out/s", "waiting", "node", SHARES, "pid", "instances",
)  # fmt: skip
"""The columns that are left out, in this order, where there is no room for all."""

_KINDS = {
    "recovery": "red",
    "scale out": "green",
    "scale in": "cyan",
    "move": "blue",
    "upgrade": "magenta",
}


def console_for(output: Console | None = None) -> Console:
    """A console that is wide enough for the tables."""
    console = output or Console(highlight=False)
    if not console.is_terminal and console.width < PLAIN_WIDTH:
        console.width = PLAIN_WIDTH
    return console


def status_view(now: Status, before: Status | None, nodes: Mapping[str, str]) -> RenderableType:
    """A job in full: operators, instances, and its last decisions."""
    parts: list[RenderableType] = [
        headline(now),
        operators_table(now, before),
        instances_table(now, before, nodes, now.workers),
    ]
    if now.links:
        parts.append(links_line(now.links, nodes))
    if now.story:
        parts += [Text("last decisions", style="bold"), story_view(now.story[-NEWEST:])]
    return Group(*parts)


def top_view(
    now: Status, before: Status | None, nodes: Mapping[str, str], height: int
) -> RenderableType:
    """The same in up to `height` lines: of the instances those that use most of their CPU."""
    room = max(1, height - len(now.operators) - 15)
    most = sorted(now.workers, key=lambda w: -_used(pace(w, now, before)))
    parts: list[RenderableType] = [
        headline(now),
        operators_table(now, before),
        instances_table(now, before, nodes, most[:room]),
    ]
    if len(most) > room:
        parts.append(Text(f"and {_count(len(most) - room, 'instance')} with less", style="dim"))
    if now.story:
        parts.append(story_view(now.story[-1:]))
    return Group(*parts)


def headline(status: Status) -> Text:
    """The run: for how long it has been running, and with what; below that its checkpoint."""
    line = Text(status.run, style="bold")
    since = f"for {_time(status.t)}" if status.t >= 0 else f"begins in {-status.t:.1f} s"
    on = {w.node for w in status.workers}
    line.append(
        f"   {since}   {_count(len(status.workers), 'instance')} on {_count(len(on), 'node')},"
        f" {_count(len(status.keepers), 'keeper')}",
        style="not bold",
    )
    if status.committed is not None:
        short = bool(
            status.committed.under_replicated
            or status.committed.short_of_zones
            or status.committed.unsaved
            or status.committed.unstored
        )
        line.append(
            f"\n{committed_line(status.committed)}", style="yellow" if short else "not bold"
        )
    return line


def links_line(links: Mapping[tuple[str, str], float], nodes: Mapping[str, str]) -> Text:
    """The slowest links between nodes, as checkpoints found them."""

    def shown(pair: tuple[str, str]) -> str:
        sender, receiver = (nodes.get(node, node[:6]) for node in pair)
        return f"{sender} to {receiver} {size(int(links[pair]))}/s"

    slowest = sorted(links, key=lambda pair: (links[pair], pair))[:SLOWEST]
    said = ", ".join(map(shown, slowest))
    return Text(
        f"{_count(len(links), 'link')} between nodes measured; slowest: {said}", style="dim"
    )


def operators_table(now: Status, before: Status | None) -> Fitting:
    """A row per operator: sums, and of shares the highest of its instances."""
    table = Fitting("operator", "instances")
    for name in now.operators:
        mine = now.of(name)
        all_of_it = together(pace(w, now, before) for w in mine)
        table.add_row(Text(name), f"{len(mine)}", *_cells(all_of_it))
    return table


def instances_table(
    now: Status, before: Status | None, nodes: Mapping[str, str], workers: Iterable[Worker]
) -> Fitting:
    """A row per instance."""
    table = Fitting("instance", "key groups", "node", "pid")
    for w in workers:
        at = (f"{w.keys}", nodes.get(w.node, w.node[:6]), f"{w.pid}")
        style = "red" if w.dead else ""
        table.add_row(Text(w.name, style=style), *at, *_cells(pace(w, now, before)))
    return table


def story_view(story: Iterable[Told]) -> RenderableType:
    """What happened, each with its reason and phases below it."""
    lines: list[RenderableType] = []
    for told in story:
        head = Text(f"{_time(told.t):>12}  ")
        head.append(f"{told.kind:<10}", style=_KINDS.get(told.kind, "yellow"))
        head.append(told.because or told.what)
        lines.append(head)
        below = [told.what] if told.because else []
        if told.phases:
            each = " + ".join(f"{name} {_seconds(s)}" for name, s in told.phases)
            total = sum(s for _, s in told.phases)
            state = f", {size(told.nbytes)} of state" if told.nbytes else ""
            below.append(each + (f" = {_seconds(total)}" if len(told.phases) > 1 else "") + state)
        style = "red" if told.failed else "dim"
        lines += [Padding(Text(line, style=style), (0, 0, 0, 24), expand=False) for line in below]
    return Group(*lines) if lines else Text("nothing was decided yet", style="dim")


def as_data(now: Status, before: Status | None, nodes: Mapping[str, str]) -> dict[str, Any]:
    """A job as data for programs: seconds, bytes, records a second, shares from 0 to 1.

    A key that was renamed is there by both of its names in this version.
    """
    committed = None if now.committed is None else asdict(now.committed)
    each = paces(now, before)
    return {
        "format": 1,
        "run": now.run,
        "seconds": now.t,
        "committed": committed,
        # Its old name, and its old name of `under_replicated`, for this version.
        "floor": committed and {**committed, "short": committed["under_replicated"]},
        "keepers": [nodes.get(n, n) for n in now.keepers],
        "operators": [
            {"name": name, **_data(together(each[w.name] for w in now.of(name)))}
            for name in now.operators
        ],
        "totals": {name: asdict(done) for name, done in now.totals.operators.items()},
        "instances": [
            {
                "name": w.name,
                "operator": w.operator,
                "key_groups": list(w.keys),
                "node": nodes.get(w.node, w.node),
                "pid": w.pid,
                "dead": w.dead,
                **_data(each[w.name]),
            }
            for w in now.workers
        ],
        "links": [
            {"from": nodes.get(a, a), "to": nodes.get(b, b), "bytes_a_second": speed}
            for (a, b), speed in sorted(now.links.items())
        ],
        "story": [asdict(t) for t in now.story],
    }


def _data(p: Pace | None) -> dict[str, Any]:
    # The old name of `seconds_behind`, for this version: in `totals` it means records.
    return {} if p is None else {**asdict(p), "late": p.seconds_behind}


class Fitting:
    """A table that leaves out columns where there is no room for all: a number of which a part is
    cut off would look like a smaller one."""

    def __init__(self, *columns: str) -> None:
        shares = ("in/s", "out/s", "CPU", SHARES, "waiting", "rows", "state", "behind")
        self._columns = (*columns, *shares)
        self._rows: list[tuple[str | Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row; it has a cell for each column."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left, table = self._columns, self._of(self._columns)
        unlimited = options.update(max_width=UNLIMITED)
        for name in FIRST_TO_GO:
            if Measurement.get(console, unlimited, table).maximum <= options.max_width:
                break
            left = tuple(c for c in left if c != name)
            table = self._of(left)
        yield table

    def _of(self, columns: Sequence[str]) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in columns:
            left = name in (self._columns[0], SHARES)
            table.add_column(name, justify="left" if left else "right", no_wrap=True)
        for row in self._rows:
            cells = zip(self._columns, row, strict=True)
            table.add_row(*(cell for name, cell in cells if name in columns))
        return table


def _cells(p: Pace | None) -> tuple[str | Text, ...]:
    if p is None:
        return ("-",) * 8
    seconds = p.seconds_behind
    behind = f"{p.behind:,} epochs" if seconds is None else f"{seconds:.1f} s"
    return (
        f"{p.rate_in:,.0f}",
        f"{p.rate_out:,.0f}",
        Text(f"{p.cpu:.0%}", style="red" if p.cpu > HOT else "yellow" if p.cpu > WARM else "green"),
        bar(p.busy, p.blocked),
        f"{p.waiting:,}",
        f"{p.state_rows:,}" + (f", {p.rows_on_disk:,} on disk" if p.rows_on_disk else ""),
        size(p.state_bytes) if p.state_bytes else "-",
        behind if p.behind or seconds else "-",
    )


def bar(busy: float, blocked: float) -> Text:
    """How an instance spends its time: busy, blocked, and idle for the rest."""
    full = min(BAR, round(BAR * busy))
    held = min(BAR - full, round(BAR * blocked))
    idle = BAR - full - held
    return Text.assemble(
        ("█" * full, "green"), ("▒" * held, "red"), ("·" * idle, "dim"), f" {busy:4.0%}"
    )


def _used(p: Pace | None) -> float:
    return 0.0 if p is None else p.cpu


def _seconds(s: float) -> str:
    return f"{1000 * s:.0f} ms" if s < 1 else f"{s:.1f} s"


def _time(t: float) -> str:
    minutes, seconds = divmod(t, 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds:.0f} s" if minutes else f"{seconds:.1f} s"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("s" if n != 1 else "")
