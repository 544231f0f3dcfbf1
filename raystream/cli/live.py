"""What `raystream run` shows: a table that updates itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from raystream.controller.protocol.history import Recovery
from raystream.controller.reporting.report import Committed, JobReport, OperatorReport, Sample
from raystream.controller.reporting.story import moved_line
from raystream.errors import Stopped

_UNITS = ("B", "kB", "MB", "GB", "TB")
LINE_SECONDS = 5.0
"""Seconds between two lines where there is no terminal."""
PLAIN_WIDTH = 120
"""Columns of tables where there is no terminal."""


class Screen:
    """Shows the samples of a running job, then its totals."""

    def __init__(self, job: str, console: Console | None = None) -> None:
        self.job = job
        self.console = console or Console(highlight=False)
        if not self.console.is_terminal and self.console.width < PLAIN_WIDTH:
            self.console.width = PLAIN_WIDTH
        self._live: Live | None = None
        self._before: Sample | None = None
        self._due = 0.0

    def __enter__(self) -> Screen:
        if self.console.is_interactive:
            self._live = Live(Text(f"{self.job}: starting"), console=self.console, transient=True)
            self._live.start()
        else:
            self._line(f"{self.job}: starting")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if isinstance(error, Stopped) and self._before is not None:
            self._stopped(self._before)

    def _stopped(self, last: Sample) -> None:
        """Show what a job had done when it was last heard of: a stopped one has no report."""
        operators = tuple(last.operators.values())
        self.console.print(
            totals_table(
                JobReport(
                    job=self.job, cluster="ray", started=0.0, elapsed=last.t, operators=operators
                ),
                "stopped",
            )
        )

    def update(self, sample: Sample) -> None:
        """Show how far the job is."""
        before, self._before = self._before, sample
        if self._live is not None:
            self._live.update(rates_table(self.job, sample, before))
        elif sample.t >= self._due:
            self._due = sample.t + LINE_SECONDS
            self._line(rates_line(sample, before))

    def note(self, text: str) -> None:
        """Print a note about the job."""
        self._line(f"{self.job}: {text}")

    def totals(self, report: JobReport) -> None:
        """Show what a finished job did: totals, recoveries, moves."""
        self.console.print(totals_table(report))
        told = [(r.t, recovery_line(r)) for r in report.recoveries]
        told += [(m.t, moved_line(m)) for m in report.moved]
        for _, line in sorted(told):
            self._line(line)
        if report.unsaved:
            self._line(report.unsaved)

    def _line(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)


def _rate(sample: Sample, before: Sample | None, name: str, what: str) -> float | None:
    """The rate at which an operator's count `what` has grown since the sample before, a second.

    None without one before: the totals of a job that goes on from a saved checkpoint begin with
    what was done up to there. Totals fall where an instance goes on from a checkpoint.
    """
    if before is None or sample.t <= before.t or name not in before.operators:
        return None
    done = getattr(sample.operators[name], what) - getattr(before.operators[name], what)
    return max(0.0, done / (sample.t - before.t))


def rates_table(job: str, sample: Sample, before: Sample | None) -> Table:
    """The table of a running job: rates since the sample before, and totals so far."""
    title = f"{job}  {sample.t:.0f} s"
    if sample.committed:
        title += f"  {committed_line(sample.committed)}"
    table = _table(title, ["instances", "in/s", "out/s", "cores", "state rows", "late", "epoch"])
    for o in sample.operators.values():
        table.add_row(
            Text(o.name),
            f"{o.instances}",
            _shown(_rate(sample, before, o.name, "records_in")),
            _shown(_rate(sample, before, o.name, "records_out")),
            _cores(_rate(sample, before, o.name, "cpu")),
            f"{o.state_rows:,}",
            f"{o.late:,}",
            f"{o.position:,}",
        )
    return table


def rates_line(sample: Sample, before: Sample | None) -> str:
    """The same in one line."""
    operators = sample.operators.values()
    last = max((o.position for o in operators), default=0)
    epoch = min((o.position for o in operators if not o.ended), default=last)
    rates = [
        f"{o.name} {rate:,.0f}/s"
        for o in sample.operators.values()
        if (rate := _rate(sample, before, o.name, "records_in")) is not None
    ]
    late = sum(o.late for o in sample.operators.values())
    return "  ".join(
        [
            f"{sample.t:6.1f} s  epoch {epoch:,}",
            *rates,
            *([f"late {late:,}"] if late else []),
            *([committed_line(sample.committed)] if sample.committed else []),
        ]
    )


def size(amount: float) -> str:
    """Bytes, for people."""
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("the last unit has no end")


def committed_line(committed: Committed) -> str:
    """How old the committed checkpoint is, and what it lacks."""
    short = (
        f", {committed.under_replicated} ranges without all copies"
        if committed.under_replicated
        else ""
    )
    if committed.short_of_zones:
        short += f", {committed.short_of_zones} ranges in fewer zones than there could be"
    saved = "" if committed.saved is None else f", checkpoint {committed.saved:,} saved"
    why = "".join(f" ({reason})" for reason in (committed.unsaved, committed.unstored) if reason)
    ends = ", to end with the next that is saved" if committed.stopping else ""
    files = ""
    if committed.in_files:
        files = f", {size(committed.in_memory)} in memory and {size(committed.in_files)} in files"
    return (
        f"checkpoint {committed.epoch:,} committed {committed.age:.1f} s ago"
        f"{short}{files}{saved}{why}{ends}"
    )


def totals_table(report: JobReport, how: str = "ended") -> Table:
    """What a finished job did, and in a word how it has finished."""
    where = "in this process" if report.cluster == "local" else "on Ray"
    table = _table(
        f"{report.job}: {how} after {report.elapsed:.1f} s {where}",
        ["instances", "in", "out", "CPU s", "state rows", "late", "epochs"],
    )
    for o in report.operators:
        table.add_row(
            Text(o.name),
            f"{o.instances}",
            f"{o.records_in:,}",
            f"{o.records_out:,}",
            _cores(o.cpu),
            f"{o.state_rows:,}",
            _warned(o),
            f"{o.position:,}",
        )
    return table


def recovery_line(recovery: Recovery) -> str:
    """Which instances died, and which went on from which checkpoint."""
    return (
        f"{recovery.t:6.1f} s  {recovery.because}; {', '.join(recovery.new)} went on from epoch"
        f" {recovery.committed:,} after {recovery.seconds:.1f} s"
    )


def _shown(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"


def _cores(used: float | None) -> str:
    """CPU, in cores or seconds. A run in one process does not know it by operator."""
    return f"{used:.2f}" if used else "-"


def _warned(o: OperatorReport) -> Text:
    return Text(f"{o.late:,}", style="yellow" if o.late else "")


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("operator", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table
