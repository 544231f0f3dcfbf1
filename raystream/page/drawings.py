"""The parts of a view as HTML and SVG, drawn without a script.

Every text is escaped: names, reasons and errors come from users' code.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from raystream.controller.reporting.status import Pace
from raystream.controller.reporting.story import Told
from raystream.controller.reporting.views import Cell, InstanceView, JobPicture, Mood, OperatorView

BOX_W, BOX_H, GAP_X, GAP_Y = 176, 84, 64, 22
"""Pixels of a box of the graph, and between boxes."""
HEADS = (
    "instance", "key groups", "node", "pid", "in/s", "out/s", "CPU", "busy", "blocked",
    "behind", "memory",
)  # fmt: skip
"""The heads of the table of instances."""
MOODS: dict[Mood, str] = {
    "busy": "busy",
    "hot": "busy all the time",
    "blocked": "blocked by its readers",
    "idle": "idle",
    "dead": "dead",
}
"""How an operator spends its time, for people."""
UNITS = ("B", "kB", "MB", "GB", "TB")


def facts(job: JobPicture) -> str:
    """What is to be seen first: for how long it runs, its checkpoint, what is wrong."""
    working = sum(o.instances for o in job.operators)
    parts = [("running", span(job.t)) if job.t >= 0 else ("begins in", span(-job.t))]
    parts.append(("instances", f"{working:,}"))
    if job.age is not None:
        parts.append((f"checkpoint {job.epoch:,}", f"{span(job.age)} ago"))
    if job.took is not None:
        parts.append(("to store a checkpoint, p50 / p99", " / ".join(map(seconds, job.took))))
    size = sum(o.checkpoint for o in job.operators)
    if size:
        parts.append(("checkpoint size", nbytes(size)))
    if job.saved is not None:
        parts.append(("newest saved", f"checkpoint {job.saved:,}"))
    tiles = "".join(
        f'<div class="rs-fact"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in parts
    )
    notes = "".join(f'<p class="rs-warn">{escape(w)}</p>' for w in job.warnings)
    if job.ended:
        notes = f'<pre class="rs-end">{escape(job.ended)}</pre>' + notes
    return f'<div class="rs-facts">{tiles}</div>{notes}'


def graph(job: JobPicture) -> str:
    """The operators as boxes with rates and a bar of busy, blocked and idle time."""
    columns = 1 + max((o.at[0] for o in job.operators), default=0)
    rows = 1 + max((o.at[1] for o in job.operators), default=0)
    width = columns * BOX_W + (columns - 1) * GAP_X + 4
    height = rows * BOX_H + (rows - 1) * GAP_Y + 14
    at = {o.name: _corner(o) for o in job.operators}
    lines = "".join(_edge(at[a], at[b]) for a, b in job.edges)
    boxes = "".join(_box(o) for o in job.operators)
    return (
        f'<svg class="rs-graph" viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="operators" style="min-width:{width * 0.9:.0f}px;max-width:{width}px">'
        f"{lines}{boxes}</svg>"
    )


def _corner(o: OperatorView) -> tuple[int, int]:
    return 2 + o.at[0] * (BOX_W + GAP_X), 2 + o.at[1] * (BOX_H + GAP_Y)


def _edge(a: tuple[int, int], b: tuple[int, int]) -> str:
    x, y, x2, y2 = a[0] + BOX_W, a[1] + BOX_H // 2, b[0], b[1] + BOX_H // 2
    bend, below = (x2 - x) // 2, 0
    if y == y2 and x2 - x > GAP_X:  # not behind the boxes between them
        bend, below = GAP_X // 2, BOX_H // 2 + 30
    path = f"M{x},{y} C{x + bend},{y + below} {x2 - bend},{y2 + below} {x2},{y2}"
    return f'<path class="rs-edge" d="{path}"></path>'


def _box(o: OperatorView) -> str:
    x, y = _corner(o)
    rate = "no word yet"
    bar = ""
    if (p := o.pace) is not None:
        shown = p.rate_out if o.kind == "source" else p.rate_in
        rate = f"{number(shown)}/s {'out' if o.kind == 'source' else 'in'}"
        if o.kind == "operator":
            rate += f", {number(p.rate_out)}/s out"
        whole = BOX_W - 20
        busy, held = min(1.0, p.busy), min(1.0 - min(1.0, p.busy), p.blocked)
        bar = (
            f'<rect class="rs-idle" x="{x + 10}" y="{y + 64}" width="{whole}" height="9" rx="2"/>'
            f'<rect class="rs-f-busy" x="{x + 10}" y="{y + 64}" width="{whole * busy:.0f}"'
            f' height="9" rx="2"/><rect class="rs-f-blocked" x="{x + 10 + whole * busy:.0f}"'
            f' y="{y + 64}" width="{whole * held:.0f}" height="9"/>'
        )
    title = f"{o.name}: {MOODS[o.mood]}"
    title += f", {p.busy:.0%} busy, {p.blocked:.0%} blocked" if p else ""
    return (
        f'<g><title>{escape(title)}</title><rect class="rs-box rs-s-{o.mood}" x="{x}" y="{y}"'
        f' width="{BOX_W}" height="{BOX_H}" rx="8"/>'
        f'<text class="rs-name" x="{x + 10}" y="{y + 22}">{escape(_short(o.name, 17))}</text>'
        f'<text class="rs-dim" x="{x + BOX_W - 10}" y="{y + 22}" text-anchor="end">×{o.instances}'
        "</text>"
        f'<text class="rs-dim" x="{x + 10}" y="{y + 38}">{escape(o.kind)}</text>'
        f'<text class="rs-num" x="{x + 10}" y="{y + 55}">{escape(rate)}</text>{bar}</g>'
    )


def operator(o: OperatorView) -> str:
    """An operator in full: its numbers, its key groups by load, its ranges by busy time."""
    p = o.pace
    numbers = [("instances", f"{o.instances:,}")]
    if p is not None:
        numbers += [
            ("in", f"{number(p.rate_in)}/s"),
            ("out", f"{number(p.rate_out)}/s"),
            ("busy", f"{p.busy:.0%}"),
            ("blocked", f"{p.blocked:.0%}"),
            ("CPU", f"{p.cpu:.0%}"),
            ("waiting", number(p.waiting)),
            ("behind", _behind(p, " epochs")),
        ]
        if p.state_rows:
            numbers += [("rows", number(p.state_rows)), ("stored", nbytes(p.state_bytes))]
    if o.table:
        numbers.append(("table", nbytes(o.table)))
    numbers.append(("memory", nbytes(o.memory)))
    if o.skew > 1.005 and o.instances > 1:
        numbers.append(("skew", f"{o.skew:.2f}"))
    if o.watermark:
        numbers.append(("watermark", o.watermark))
    bad = [("late", o.late), ("far ahead", o.ahead), ("failed", o.failed)]
    cells = "".join(
        f"<span>{escape(name)} <b>{escape(value)}</b></span>" for name, value in numbers
    )
    cells += "".join(f'<span class="rs-bad">{w} <b>{n:,}</b></span>' for w, n in bad if n)
    bars = _bar("records by key group", o.load, "heat") + _bar("instances", o.served, "mood")
    return (
        f'<section class="rs-op"><h3><i class="rs-dot rs-f-{o.mood}"></i>{escape(o.name)}'
        f" <small>{escape(o.kind)}, {MOODS[o.mood]}</small></h3>"
        f'<div class="rs-nums">{cells}</div>{bars}</section>'
    )


def _behind(p: Pace, unit: str = "") -> str:
    return f"{p.behind:,}{unit}" if p.seconds_behind is None else seconds(p.seconds_behind)


def _bar(name: str, cells: Iterable[Cell], by: str) -> str:
    cells = tuple(cells)
    if not cells:
        return ""
    groups = cells[-1].hi
    rects = []
    for c in cells:
        x, w = 1000 * c.lo / groups, 1000 * (c.hi - c.lo) / groups
        if by == "heat":
            look = f'class="rs-f-heat" fill-opacity="{min(1.0, 0.08 + 0.4 * c.share):.2f}"'
        else:
            look = f'class="rs-f-{c.mood}" fill-opacity="{0.5 + 0.5 * min(1.0, c.share):.2f}"'
        says = f"key groups {c.lo} to {c.hi - 1}: {c.says}"
        rects.append(
            f'<rect {look} x="{x:.1f}" y="0" width="{max(0.5, w - 1.2):.1f}" height="14">'
            f"<title>{escape(says)}</title></rect>"
        )
    drawn = "".join(rects)
    return (
        f'<div class="rs-barline"><label>{escape(name)}</label><svg class="rs-bar" role="img"'
        f' aria-label="{escape(name)}" viewBox="0 0 1000 14" preserveAspectRatio="none">{drawn}'
        "</svg></div>"
    )


def instances(job: JobPicture) -> str:
    """The instances that use most of their CPU."""
    rows = "".join(_row(i) for i in job.listed)
    more = f'<p class="rs-dimtext">and {job.more:,} with less</p>' if job.more else ""
    heads = "".join(f"<th>{h}</th>" for h in HEADS)
    return (
        f'<div class="rs-scroll"><table class="rs-table"><thead><tr>{heads}</tr></thead><tbody>'
        f"{rows}</tbody></table></div>{more}"
    )


def _row(i: InstanceView) -> str:
    cells = [i.name, i.keys, i.node, f"{i.pid}"]
    if (p := i.pace) is not None:
        cells += [number(p.rate_in), number(p.rate_out), f"{p.cpu:.0%}"]
        cells += [f"{p.busy:.0%}", f"{p.blocked:.0%}", _behind(p)]
    else:
        cells += ["-"] * 6
    cells.append(nbytes(i.memory))
    dot = f'<i class="rs-dot rs-f-{i.mood}"></i>'
    first, *others = cells
    return (
        f"<tr><td>{dot}{escape(first)}</td>" + "".join(f"<td>{escape(c)}</td>" for c in others)
    ) + "</tr>"


def nodes(job: JobPicture) -> str:
    """The nodes."""
    rows = "".join(
        f"<tr><td>{escape(n.name)}</td><td>{n.instances:,}</td><td>{n.cores:.2f}</td>"
        f"<td>{'-' if n.memory is None else f'{n.memory:.0%}'}</td>"
        f"<td>{'yes' if n.keeper else 'no'}</td></tr>"
        for n in job.nodes
    )
    return (
        '<div class="rs-scroll"><table class="rs-table"><thead><tr><th>node</th><th>instances</th>'
        f"<th>cores</th><th>memory</th><th>keeper</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def story(job: JobPicture) -> str:
    """What happened: a time line, and below it each decision with its reason and phases."""
    if not job.story:
        return '<p class="rs-dimtext">Nothing was decided yet.</p>'
    begin, end = min(0.0, job.story[-1].t), max(job.t, job.story[0].t, 1.0)
    marks = "".join(
        f'<rect class="rs-k-{_kind(t)}" x="{1000 * (t.t - begin) / (end - begin):.0f}" y="2"'
        f' width="{max(5, 1000 * sum(s for _, s in t.phases) / (end - begin)):.0f}" height="12"'
        f' rx="2"><title>{escape(span(t.t))}: {escape(t.because or t.what)}</title></rect>'
        for t in reversed(job.story)
    )
    line = (
        '<svg class="rs-bar rs-line" viewBox="0 0 1010 16" preserveAspectRatio="none" role="img"'
        f' aria-label="time line"><path class="rs-edge" d="M0,8 H1010"/>{marks}</svg>'
    )
    return f'{line}<ol class="rs-story">{"".join(_told(t) for t in job.story)}</ol>'


def _told(t: Told) -> str:
    head = escape(t.because or t.what)
    below = f"<div>{escape(t.what)}</div>" if t.because else ""
    if t.phases:
        took = " + ".join(f"{name} {seconds(s)}" for name, s in t.phases)
        state = f", {nbytes(t.nbytes)} of state" if t.nbytes else ""
        below += f"<div>{escape(took + state)}</div>"
    return (
        f'<li><time>{escape(span(t.t))}</time><span class="rs-tag rs-t-{_kind(t)}">'
        f"{escape(t.kind)}</span><div>{head}{below}</div></li>"
    )


def _kind(t: Told) -> str:
    return "failed" if t.failed else t.kind.replace(" ", "-")


def legend() -> str:
    """What the colours mean."""
    return '<div class="rs-legend">' + "".join(
        f'<span><i class="rs-dot rs-f-{mood}"></i>{said}</span>' for mood, said in MOODS.items()
    ) + "</div>"  # fmt: skip


# --------------------------------------------------------------------------- numbers, for people


def number(x: float) -> str:
    """A number, in at most five letters or so."""
    for unit in ("", " k", " M", " G"):
        if abs(x) < 1000 or unit == " G":
            return f"{x:.0f}{unit}" if abs(x) >= 100 or unit == "" else f"{x:.1f}{unit}"
        x /= 1000
    raise AssertionError("the last unit has no end")


def nbytes(x: float) -> str:
    """Bytes."""
    for unit in UNITS:
        if x < 1000 or unit == UNITS[-1]:
            return f"{x:.0f} {unit}" if x >= 10 or unit == "B" else f"{x:.1f} {unit}"
        x /= 1000
    raise AssertionError("the last unit has no end")


def seconds(s: float) -> str:
    """A short time."""
    return f"{1000 * s:.0f} ms" if s < 1 else f"{s:.1f} s"


def span(t: float) -> str:
    """A time that may be long."""
    minutes, rest = divmod(max(0.0, t), 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest:.0f} s" if minutes else f"{rest:.1f} s"


def unit_of(most: float) -> tuple[str, float]:
    """The unit in which a time of so many seconds is easily read, and its seconds."""
    return next(((u, s) for u, s in (("h", 3600.0), ("min", 60.0)) if most >= 3 * s), ("s", 1.0))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
