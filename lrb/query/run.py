"""One run: the flow over prepared data, its answers, and what there is to say of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import raystream as rs
from lrb.oracle import answers as answer_files
from lrb.oracle.answers import LATENCY_FILE, LATENCY_SCHEMA, RUN_FILE, Kind
from lrb.query.flow import EPOCHS_OF_A_CHECKPOINT, SINK, SOURCE, build, interpret
from lrb.query.folder import new_parts, remove_answers, remove_parts
from lrb.query.sink import LATENCY, AnswerParts, collect, handed_over, latency_p99
from lrb.query.source import Prepared
from raystream.errors import ConfigError, JobError

OnProgress = Callable[[Any, float | None], None]
"""Is given samples of the job (seconds since its start, totals by operator), and of paced runs the
99th percentile of the newest latencies."""
Tables = Mapping[Kind, pa.Table]

SAMPLES_APART_S = 0.5


def run(
    data: Prepared,
    out: Path,
    *,
    speed: float | None = None,
    cluster: str | None = None,
    instances: Mapping[str, int] | None = None,
    epoch: float | None = None,
    copies: int = 1,
    policy: rs.Policy | None = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    interpreted: bool = False,
    pool: rs.PoolOptions | None = None,
    state_memory: int | str | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Run the flow over prepared data and write its answers; what the run was, as in run.json.

    Args:
        out: an absolute path; with several nodes, a folder that all of them share.
        speed: simulated seconds per second; None for as fast as it goes.
        cluster: None for this process, "auto" or an address for Ray.
        instances: how many instances an operator has (1 unless given).
        epoch: simulated seconds of an epoch, chosen from speed and data unless given.
        copies: on a cluster, how many nodes hold a checkpoint.
        policy, bounds: on a cluster, what changes the number of instances, and within which bounds.
        interpreted: operators run as plain Python instead of compiled.
        pool: on a cluster with Ray's autoscaler, how many nodes it keeps ready; then operators get
            more instances by themselves when they use too much of their CPU.
        state_memory: memory for the rows of an instance; others are on disk.

    Raises ConfigError and InputError for what was asked or given, JobError if the job failed.
    """
    if on_progress is not None and speed is not None:
        pa.array([0])  # imports pandas now and not beside the job, which Ray lets go behind us
    parts = new_parts(out)
    flow = build(data, AnswerParts(parts), speed=speed, epoch=epoch)
    if interpreted:
        interpret(flow)

    def tell(sample: Any) -> None:
        if on_progress is not None:
            p99 = None if speed is None else latency_p99(parts, groups=flow.key_groups)
            on_progress(sample, p99)

    try:
        report = flow.run(
            cluster=cluster,
            instances=instances,
            checkpoint_every=EPOCHS_OF_A_CHECKPOINT if speed is None else None,
            copies=copies,
            policy=policy or "auto",
            bounds=bounds,
            pool=pool,
            state_memory=state_memory,
            on_progress=tell,
        )
        asked = handed_over(report.operator(SINK).by_port)
        answers = collect(parts, groups=flow.key_groups, expected=asked)
        _check_read(data, report)
        record = record_of(str(data.folder), data.meta.rows, report, answers, speed)
        record["policy"] = None if policy is None else str(policy)
        write(out, answers, record)
    finally:
        remove_parts(parts)
    return record


def _check_read(data: Prepared, report: Any) -> None:
    read = report.operator(SOURCE).records_in
    if read != data.meta.rows_total:
        raise JobError(f"the job has read {read:,} of {data.meta.rows_total:,} rows")


def write(out: Path, answers: Tables, record: dict[str, Any]) -> None:
    """Write the answers folder; run.json comes last and says that it is whole."""
    try:
        remove_answers(out)
        answer_files.write(out, answers)
        if record["latency"] is not None:
            pq.write_table(pa.concat_tables(_latencies(answers)), out / LATENCY_FILE)
        (out / RUN_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the answers cannot be written to {out}: {error.strerror}") from error


def _latencies(answers: Tables) -> Iterator[pa.Table]:
    for kind, table in answers.items():
        codes = pa.array(np.full(table.num_rows, kind.code, np.int8))
        yield pa.table([codes, table["time"], table[LATENCY]], schema=LATENCY_SCHEMA)


# ---- what the run was -------------------------------------------------------------------------


def record_of(
    given: str, rows_in: Mapping[str, int], report: Any, answers: Tables, speed: float | None
) -> dict[str, Any]:
    """What there is to say of a run.

    Args:
        given: where its rows came from. rows_in: how many, by type. speed: None without a pace.
    """
    rows = sum(rows_in.values())
    return {
        "format": 1,
        "input": given,
        "speed": speed,
        "cluster": report.cluster,
        "started": report.started,
        "elapsed": report.elapsed,
        "rows_in": dict(rows_in),
        "rows_out": answer_files.counts(answers),
        "positive_tolls": answer_files.positive_tolls(answers),
        "rate": rows / report.elapsed if report.elapsed > 0 else 0.0,
        **_timeliness(answers, paced=speed is not None),
        "checksum": answer_files.checksum(answers),
        "operators": [
            {
                "name": operator.name,
                "instances": operator.instances,
                "records_in": operator.records_in,
                "records_out": operator.records_out,
                "cpu_seconds": operator.cpu,
                "state_rows": operator.state_rows,
                "state_bytes": operator.table_bytes,
                "late": operator.late,
            }
            for operator in report.operators
        ],
        "recoveries": [
            {"t": r.t, "gone": list(r.gone), "committed": r.committed, "seconds": r.seconds}
            for r in report.recoveries
        ],
        "moved": [_move(m) for m in report.moved],
        "series": series(report.samples),
    }


def _move(m: Any) -> dict[str, Any]:
    """A move of ranges: when it was decided and why, seconds of its phases, and how many instances
    the operator has had since."""
    return {
        "t": m.t,
        "operator": m.operator,
        "gone": list(m.gone),
        "new": list(m.new),
        "instances": len(m.ranges),
        "place": m.place,
        "restore": m.restore,
        "replay": m.replay,
        "because": m.because,
        "failed": m.failed,
    }


def _timeliness(answers: Tables, *, paced: bool) -> dict[str, Any]:
    """Latency in real seconds, and how many answers came after their deadline."""
    if not paced:
        return {"latency": None, "deadline_missed": None}
    measured = {kind: table[LATENCY].to_numpy() for kind, table in answers.items()}
    missed = sum(kind.missed(latency) for kind, latency in measured.items())
    every = np.concatenate(list(measured.values()))
    if not len(every):
        return {"latency": None, "deadline_missed": 0}
    percentiles = np.percentile(every, [50, 95, 99, 100]).tolist()
    return {
        "latency": dict(zip(("p50", "p95", "p99", "max"), percentiles, strict=True)),
        "deadline_missed": missed,
    }


def series(samples: Iterable[Any]) -> list[dict[str, Any]]:
    """How fast each operator was from sample to sample: records a second, and cores in use; and how
    many instances it had at its end. A sum that is less than before, because instances went and
    took their count with them, says nothing of the time between: 0.

    Samples with hardly any time between them count as one: a rate over it would mean nothing.
    """
    apart: list[Any] = []
    for sample in samples:
        while apart and sample.t - apart[-1].t < SAMPLES_APART_S:
            apart.pop()
        apart.append(sample)
    return [_rates(before, after) for before, after in pairwise((None, *apart))]


def _rates(before: Any | None, after: Any) -> dict[str, Any]:
    seconds = max(after.t - (before.t if before else 0.0), 1e-9)
    counts = {"in": "records_in", "out": "records_out", "cpu": "cpu"}
    rates = {}
    for name, now in after.operators.items():
        then = before.operators[name] if before else None
        rates[name] = {
            short: max(0.0, getattr(now, count) - (getattr(then, count) if then else 0)) / seconds
            for short, count in counts.items()
        }
        rates[name]["instances"] = now.instances
    return {"t": after.t, "operators": rates}
