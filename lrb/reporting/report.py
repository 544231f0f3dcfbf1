"""What a run was, for people: a table for the terminal, and a page with plots.

The page is one file: pictures are inside of it, nothing is fetched, no script runs, and it follows
the reader's choice of light or dark. The same pictures lie beside it as PNG files.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from lrb.oracle.answers import read_latency, read_run
from lrb.oracle.validate import Verdict
from lrb.reporting import elastic_plot, plots
from lrb.reporting.elastic import decisions_of
from lrb.reporting.plots import DARK, LIGHT, seconds_text
from raystream.errors import ConfigError, InputError

PAGE = "report.html"
NEEDED = (
    "input", "speed", "cluster", "started", "elapsed", "rows_in", "rows_out", "positive_tolls",
    "rate", "latency", "deadline_missed", "checksum", "operators", "series",
)  # fmt: skip
CAPTIONS = {
    "elastic": (
        "What came in, how many instances there were of each operator, and how long answers took. "
        "A line through all three is a decision to split or to merge an operator, in its colour; "
        "the number leads to its reason below. The band beside it ends when the new instances are "
        "at work."
    ),
    "input": "What came in.",
    "input-and-latency": (
        "What came in, and how long answers took. A latency is counted in real seconds from the "
        "moment at which a tuple was due, so a source that falls behind does not hide it."
    ),
    "rates": "Records that went into and out of each operator. Every strip has its own scale.",
    "cpu": "Cores in use by each operator, all its instances together.",
}
ACCOUNTS = "accounts"
"""The operator that keeps a row for each car for ever."""
AT_MAX = "at full speed tuples are not due at any moment: latency is not defined"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table of a run."""

    label: str
    value: str
    note: str = ""
    alarming: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """Some lines under a heading."""

    heading: str
    lines: tuple[Line, ...]


# ---- the table --------------------------------------------------------------------------------


def sections(run: Mapping[str, Any], verdict: Verdict | None) -> tuple[Section, ...]:
    """The table of a run. Without a verdict it says that nothing was checked."""
    return (
        Section("Tuples in", _tuples_in(run, verdict)),
        Section("Answers out", _answers_out(run)),
        Section("Pace", _pace(run)),
        *_state(run),
        Section("Check", _check(run, verdict)),
    )


def summary_table(run: Mapping[str, Any], verdict: Verdict | None) -> Table:
    """The table of a run for the terminal."""
    table = Table(title="Linear Road", title_justify="left", show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right", overflow="fold")
    table.add_column("note", style="dim", overflow="fold")
    for section in sections(run, verdict):
        table.add_section()
        table.add_row(f"[bold]{section.heading}[/]")
        for line in section.lines:
            value = f"[bold red]{line.value}[/]" if line.alarming else line.value
            table.add_row(f"  {line.label}", value, line.note)
    return table


def _tuples_in(run: Mapping[str, Any], verdict: Verdict | None) -> tuple[Line, ...]:
    rows = run["rows_in"]
    journeys = () if verdict is None else (_re_entries(verdict),)
    return (
        Line("position reports", _count(rows.get("0", 0)), "type 0"),
        Line("balance requests", _count(rows.get("2", 0)), "type 2"),
        Line("expenditure requests", _count(rows.get("3", 0)), "type 3"),
        Line("travel time requests", _count(rows.get("4", 0)), "type 4: counted, not answered"),
        Line("all", _count(sum(rows.values()))),
        *journeys,
    )


def _re_entries(verdict: Verdict) -> Line:
    return Line("re-entries", _count(verdict.re_entries), "cars that made more than one journey")


def _answers_out(run: Mapping[str, Any]) -> tuple[Line, ...]:
    rows = run["rows_out"]
    positive = f"{_count(run['positive_tolls'])} with a toll above 0"
    return (
        Line("toll notifications", _count(rows.get("toll", 0)), positive),
        Line("accident alerts", _count(rows.get("alert", 0))),
        Line("balances", _count(rows.get("balance", 0))),
        Line("expenditures", _count(rows.get("expenditure", 0))),
        Line("all", _count(sum(rows.values()))),
    )


def _pace(run: Mapping[str, Any]) -> tuple[Line, ...]:
    speed = run["speed"]
    pace = "as fast as it goes" if speed is None else f"{speed:g} times real time"
    instances = " ".join(f"{o['name']}={o['instances']}" for o in run["operators"])
    return (
        Line("rate", f"{_count(round(run['rate']))} tuples/s", pace),
        Line("duration", f"{run['elapsed']:,.1f} s", _cluster(run)),
        *_latencies(run),
        Line("instances", str(sum(o["instances"] for o in run["operators"])), instances),
        *_moves(run),
        *_recoveries(run),
    )


def _state(run: Mapping[str, Any]) -> tuple[Section, ...]:
    """What operators kept, and how much of it for each car that was ever seen: as many have an
    account. Nothing of a run that did not note it."""
    kept = [o for o in run["operators"] if o.get("state_bytes")]
    seen = max(1, sum(o["state_rows"] for o in kept if o["name"] == ACCOUNTS))
    lines = [
        Line(
            o["name"],
            f"{_count(o['state_rows'])} rows",
            f"{o['state_bytes'] / 1e6:,.1f} MB of memory at most,"
            f" {o['state_bytes'] / seen:,.1f} bytes for each car ever seen",
        )
        for o in kept
    ]
    return (Section("State at the end", tuple(lines)),) if lines else ()


def _moves(run: Mapping[str, Any]) -> tuple[Line, ...]:
    decisions = decisions_of(run)
    note = ", ".join(str(d) for d in decisions)
    return (Line("scaled", f"{len(decisions)} times", note),) if decisions else ()


def _recoveries(run: Mapping[str, Any]) -> tuple[Line, ...]:
    gone = [name for recovery in run.get("recoveries", ()) for name in recovery["gone"]]
    return (Line("replaced", str(len(gone)), " ".join(gone)),) if gone else ()


def _latencies(run: Mapping[str, Any]) -> tuple[Line, ...]:
    latency = run["latency"]
    if latency is None:
        return (Line("latency", "–", _no_latency(run)),)
    notes = {"p50": "half of the answers were faster", "max": "the slowest answer"}
    return tuple(
        Line(f"latency {name}", seconds_text(latency[name]), notes.get(name, ""))
        for name in ("p50", "p95", "p99", "max")
    )


def _no_latency(run: Mapping[str, Any]) -> str:
    """Why a run has no latency."""
    return AT_MAX if run["speed"] is None else "there was nothing to answer"


def _check(run: Mapping[str, Any], verdict: Verdict | None) -> tuple[Line, ...]:
    if verdict is None:
        return (
            Line("answers checked", "none", "python -m lrb validate compares them with the oracle"),
            *((_missed(run["deadline_missed"]),) if run["latency"] is not None else ()),
            Line("checksum", run["checksum"]),
        )
    unmeasured = sum(kind.unmeasured for kind in verdict.kinds)
    return (
        Line("answers checked", _count(verdict.checked), "each against the oracle in Spark SQL"),
        _fault("wrong", verdict.wrong, "answered, and not expected"),
        _fault("missing", verdict.missing, "expected, and not answered"),
        _fault("duplicate", verdict.duplicates, "answered more often than expected"),
        _missed(verdict.late),
        *((_fault("unmeasured", unmeasured, "answers without a latency"),) if unmeasured else ()),
        _checksum(verdict),
    )


def _checksum(verdict: Verdict) -> Line:
    same = verdict.checksum == verdict.expected_checksum
    note = "of all answers in any order; as expected"
    if not same:
        note = f"expected {verdict.expected_checksum}"
    return Line("checksum", verdict.checksum, note, alarming=not same)


def _fault(label: str, number: int, note: str) -> Line:
    return Line(label, _count(number), note, alarming=number > 0)


def _missed(late: int | None) -> Line:
    if late is None:
        return Line("late", "–", "not defined at full speed")
    return _fault("late", late, "after 5 s, expenditures after 10 s")


def _cluster(run: Mapping[str, Any]) -> str:
    return {"local": "in one process", "ray": "on Ray"}.get(run["cluster"], str(run["cluster"]))


def _count(number: int) -> str:
    return f"{number:,}"


# ---- the page ---------------------------------------------------------------------------------


def write_report(answers: Path, verdict: Verdict | None, out: Path) -> Path:
    """Write report.html and the PNG files of its plots into `out`; returns the page's path.

    Reads run.json and latency.parquet of an answers folder. Raises InputError if these are
    missing or malformed, ConfigError if `out` cannot be written or a package is not installed.
    """
    run = read_run(answers)
    lacking = [name for name in NEEDED if name not in run]
    if lacking:
        raise InputError(f"{answers / 'run.json'} lacks {', '.join(lacking)}")
    latency = read_latency(answers)
    light, dark = (
        {**elastic_plot.draw(run, latency, theme), **plots.draw(run, latency, theme)}
        for theme in (LIGHT, DARK)
    )
    page = _render(run, verdict, light, dark)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, png in light.items():
            (out / f"{name}.png").write_bytes(png)
        (out / PAGE).write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write the report to {out}: {error.strerror}") from error
    return out / PAGE


def _render(
    run: Mapping[str, Any],
    verdict: Verdict | None,
    light: Mapping[str, bytes],
    dark: Mapping[str, bytes],
) -> str:
    try:
        import jinja2
    except ImportError as error:
        raise ConfigError(
            "the page of a report needs jinja2, which is not installed",
            hint="pip install 'raystream[report]'",
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lrb", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["thousands"] = _count
    environment.filters["seconds"] = seconds_text
    return environment.get_template("report.html.j2").render(
        run=run,
        started=_moment(run["started"]),
        cluster=_cluster(run),
        headline=_headline(run, verdict),
        good=None if verdict is None else verdict.ok,
        sections=sections(run, verdict),
        differences=[] if verdict is None else [d for k in verdict.kinds for d in k.examples],
        pictures=[
            {
                "name": name,
                "light": _inline(light[name]),
                "dark": _inline(dark[name]),
                "caption": CAPTIONS[name],
            }
            for name in light
        ],
        decisions=decisions_of(run),
        no_latency="" if run["latency"] is not None else _no_latency(run),
        no_cpu=not any(operator["cpu_seconds"] for operator in run["operators"]),
    )


def _headline(run: Mapping[str, Any], verdict: Verdict | None) -> str:
    """The run in one sentence."""
    if verdict is None:
        return f"{_count(sum(run['rows_out'].values()))} answers, not checked."
    answers = _count(verdict.checked)
    if not verdict.right:
        return (
            f"The answers are not right: {_count(verdict.wrong)} wrong, {_count(verdict.missing)} "
            f"missing, {_count(verdict.duplicates)} duplicate."
        )
    if not verdict.in_time:
        return f"All {answers} answers are right, and not all of them are known to be in time."
    timely = "" if verdict.late is None else ", and in time"
    return f"All {answers} answers are right{timely}."


def _moment(unix: float) -> str:
    return datetime.datetime.fromtimestamp(unix, datetime.UTC).strftime("%d %B %Y, %H:%M UTC")


def _inline(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
