"""What a job did: totals per operator, and how its rates went."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from raystream.controller.protocol.history import MoveRecord, Recovery
from raystream.dataflow.progress import Progress
from raystream.errors import ConfigError, caller
from raystream.renamed import old_field

SAMPLE_SECONDS = 1.0
"""How often a sample is taken."""
SAMPLES_MAX = 4096
"""How many samples are kept of a job. An hour has fewer, so all of its samples are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorReport:
    """Totals of one operator, source or sink over its instances."""

    name: str
    """The name of the operator."""
    instances: int
    """How many instances it has."""
    position: int
    """The last epoch that all of its instances that still run have applied; the last epoch of all
    once they have ended."""
    records_in: int
    """How many records it has taken."""
    records_out: int
    """How many records it has emitted."""
    late: int
    """How many of the records that it has taken were late."""
    state_rows: int
    """How many rows its state has now."""
    cpu: float
    """Seconds of CPU that its processes have used."""
    by_port: dict[str, int]
    """How many records it has emitted on each of its counted outputs."""
    image_bytes: int = 0
    """The sizes of the newest checkpoints of its instances, in bytes, added up."""
    image_seconds: float = 0.0
    """The longest time that one of them took until all its copies were stored."""
    table_bytes: int = 0
    """How many bytes its structured rows take in memory."""
    rows_on_disk: int = 0
    """How many of its rows are on disk alone (`state_memory`)."""
    disk_bytes: int = 0
    """The bytes of the files that have these."""
    rows_brought: int = 0
    """How many rows came back from disk so far."""
    cut_off: int = 0
    """How many of its rows would have rung on after the end of all input (`end_rings`)."""
    cut_off_keys: tuple[str, ...] = ()
    """The keys of some of them, as they are shown."""
    ended: bool = False
    """Whether all of its instances have applied the last epoch."""
    ahead: int = 0
    """Of a source: how many records it has set aside, because their times were further ahead than
    `max_ahead=` of its epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The newest committed checkpoint, and what stands in the way of the next."""

    epoch: int
    """The epoch of the checkpoint."""
    age: float
    """Seconds since it was committed."""
    under_replicated: int = 0
    """How many ranges have fewer copies of their checkpoint than they should, until they are stored
    again. The boundary register counts as one."""
    saved: int | None = None
    """The newest checkpoint in the durable tier; None without a durable tier."""
    unsaved: str = ""
    """Why the newest checkpoint that should be saved is not; empty if it is."""
    unstored: str = ""
    """Why a checkpoint could not be stored by its keepers, or why a node has no keeper; empty if
    neither is so."""
    stopping: bool = False
    """Whether the job ends with the next checkpoint that is saved."""
    in_memory: int = 0
    """Bytes of checkpoints in the object stores of all nodes."""
    in_files: int = 0
    """Bytes of checkpoints in files on all nodes."""
    short_of_zones: int = 0
    """How many ranges have their copies in fewer zones than they could."""

    short = old_field("short", "under_replicated")


@dataclass(frozen=True, slots=True)
class Sample:
    """The totals of all operators at one moment."""

    t: float
    """Seconds since the job's start."""
    operators: dict[str, OperatorReport]
    """The totals, by operator."""
    processes: dict[str, int] = field(default_factory=dict)
    """The process ids of instances and keepers, by name; empty in a job of one process."""
    committed: Committed | None = None
    """The newest committed checkpoint; None in a job without checkpoints."""

    floor = old_field("floor", "committed")


class Samples:
    """The samples of a job. It may run for years, so old samples are thinned out."""

    def __init__(self) -> None:
        self._kept: list[Sample] = []

    def due(self, t: float) -> bool:
        """Whether a sample is to be taken, t seconds after the job's start."""
        last = self._kept[-1].t if self._kept else 0.0
        return t >= last // SAMPLE_SECONDS * SAMPLE_SECONDS + SAMPLE_SECONDS

    def add(self, sample: Sample) -> None:
        """Add the next sample."""
        self._kept.append(sample)
        if len(self._kept) > SAMPLES_MAX:
            half = SAMPLES_MAX // 2
            self._kept[:half] = self._kept[:half:2]

    def after(self, t: float) -> list[Sample]:
        """The samples that are later than t."""
        return self._kept[bisect_right(self._kept, t, key=lambda s: s.t) :]

    def ended(self, last: Sample) -> tuple[Sample, ...]:
        """All samples up to the last one of the job. Later ones are dropped: they were taken before
        the end of the job was known."""
        return (*(s for s in self._kept if s.t < last.t), last)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class JobReport:
    """What a finished job did."""

    job: str
    """The name of the job."""
    cluster: str
    """Where it ran."""
    started: float
    """The Unix time at which its first row was released."""
    elapsed: float
    """Seconds from the first row to the last."""
    operators: tuple[OperatorReport, ...]
    """The totals of its operators, in the order of the flow."""
    samples: tuple[Sample, ...] = ()
    """Totals at moments while it ran, in order."""
    recoveries: tuple[Recovery, ...] = ()
    """Deaths that it has recovered from."""
    moved: tuple[MoveRecord, ...] = ()
    """Moves that have ended."""
    saved: int = 0
    """The newest checkpoint in its durable tier; 0 for none."""
    unsaved: str = ""
    """Why the newest checkpoint that should be saved is not; empty if it is."""
    notes: tuple[str, ...] = ()
    """What else the user should know: from where the job went on, and warnings."""

    def __repr__(self) -> str:
        """In a line: samples and all that is told of each operator would fill a screen where a
        notebook shows what `flow.run()` has returned."""
        counted = (f"{o.name} {o.records_in:,} in {o.records_out:,} out" for o in self.operators)
        return f"<JobReport of {self.job}: {self.elapsed:.1f} s; {', '.join(counted)}>"

    def operator(self, name: str) -> OperatorReport:
        """The totals of one operator.

        Raises:
            ConfigError: there is none of that name.
        """
        found = {o.name: o for o in self.operators}
        if name not in found:
            raise ConfigError(
                f"report.operator({name!r:.80}): there is no such operator",
                where=caller()[0],
                hint=f"There are {', '.join(found)}.",
            )
        return found[name]


def totals(progress: Iterable[Progress]) -> tuple[OperatorReport, ...]:
    """Totals per operator, in the order in which operators first appear."""
    by_name: dict[str, list[Progress]] = {}
    for p in progress:
        by_name.setdefault(p.vertex, []).append(p)
    return tuple(_total(name, ps) for name, ps in by_name.items())


def _total(name: str, ps: list[Progress]) -> OperatorReport:
    ports: dict[str, int] = {}
    for p in ps:
        for port, n in p.by_port.items():
            ports[port] = ports.get(port, 0) + n
    going = [p.position for p in ps if not p.ended]
    return OperatorReport(
        name=name,
        instances=len(ps),
        position=min(going) if going else max(p.position for p in ps),
        records_in=sum(p.records_in for p in ps),
        records_out=sum(p.records_out for p in ps),
        late=sum(p.late for p in ps),
        cut_off=sum(p.cut_off for p in ps),
        cut_off_keys=tuple(key for p in ps for key in p.cut_off_keys),
        state_rows=sum(p.state_rows for p in ps),
        cpu=sum(p.cpu for p in ps),
        by_port=ports,
        image_bytes=sum(p.image_bytes for p in ps),
        image_seconds=max(p.image_seconds for p in ps),
        table_bytes=sum(p.table_bytes for p in ps),
        rows_on_disk=sum(p.on_disk.rows for p in ps),
        disk_bytes=sum(p.on_disk.nbytes for p in ps),
        rows_brought=sum(p.on_disk.brought for p in ps),
        ended=not going,
        ahead=sum(p.ahead for p in ps),
    )
