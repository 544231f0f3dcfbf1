"""A run that never was: run.json and latencies with the shapes of real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lrb.oracle.answers import LATENCY_SCHEMA

OPERATORS = {
    # name: instances, records in and out for each tuple of input, cores in use per 10,000 tuples/s
    "rows": (1, 0.0, 1.0, 0.10),
    "vehicles": (2, 0.98, 1.0, 0.22),
    "places": (1, 0.002, 0.004, 0.01),
    "segments": (2, 1.0, 0.22, 0.16),
    "accounts": (2, 0.21, 0.005, 0.07),
    "expenditure": (1, 0.001, 0.001, 0.02),
    "answers": (1, 0.23, 0.0, 0.09),
}


def sample_run(*, speed: float | None, seconds: int = 90, seed: int = 3) -> dict[str, Any]:
    """A run of `seconds` real seconds in which the traffic grows."""
    rng = np.random.default_rng(seed)
    t = np.arange(0.5, seconds, 0.5)
    rate = 1000 + 70_000 * (t / seconds) ** 0.8 * rng.normal(1, 0.03, t.size)
    series = [
        {
            "t": float(at),
            "operators": {
                name: {"in": r * into, "out": r * out, "cpu": r / 10_000 * cpu}
                for name, (_, into, out, cpu) in OPERATORS.items()
            },
        }
        for at, r in zip(t, rate, strict=True)
    ]
    total = int(rate.sum() / 2)
    return {
        "format": 1,
        "input": "data/",
        "speed": speed,
        "cluster": "ray",
        "started": 1_760_000_000.0,
        "elapsed": float(seconds),
        "rows_in": {"0": total, "2": total // 190, "3": total // 990, "4": total // 256},
        "rows_out": {
            "toll": total // 5, "alert": total // 60, "balance": total // 190,
            "expenditure": total // 990,
        },
        "positive_tolls": total // 12,
        "rate": total / seconds,
        "latency": None if speed is None else {"p50": 0.062, "p95": 0.21, "p99": 0.48, "max": 1.9},
        "deadline_missed": None if speed is None else 0,
        "checksum": "0123456789abcdef",
        "operators": [
            {
                "name": name, "instances": instances, "records_in": int(total * into),
                "records_out": int(total * out), "cpu_seconds": total * cpu / 10_000,
                "state_rows": int(into * 60_000), "state_bytes": int(into * 3_000_000), "late": 0,
            }
            for name, (instances, into, out, cpu) in OPERATORS.items()
        ],
        "series": series,
    }  # fmt: skip


def sample_latency(*, speed: float, seconds: int = 90, first: int = 0, seed: int = 3) -> pa.Table:
    """Latencies of a paced run: most far below a second, and a few seconds of trouble."""
    rng = np.random.default_rng(seed)
    time = np.sort(first + rng.integers(0, int(seconds * speed), 50_000))
    busy = np.abs((time - first) / speed - 0.6 * seconds) < 2
    latency = rng.lognormal(-2.8, 0.6, time.size) * np.where(busy, 6, 1)
    kind = rng.choice([0, 1, 2, 3], time.size, p=[0.9, 0.07, 0.02, 0.01])
    return pa.table({"kind": kind, "time": time, "latency": latency}).cast(LATENCY_SCHEMA)
