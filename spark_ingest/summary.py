"""What a command wrote, as the caller of the Python functions gets it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spark_ingest.layout import Meta


@dataclass(frozen=True, slots=True)
class Summary:
    """What was written, and how long it took."""

    data: Path
    """The prepared folder."""
    meta: Meta
    quarantined: int
    """Rows that were put aside; always 0 for generated data."""
    elapsed: float
    """Seconds, Spark's start included if it was started for this."""

    @property
    def rate_peak(self) -> float:
        """Rows per second in the busiest minute."""
        seconds = self.meta.per_second
        return max(
            sum(seconds[begin : begin + 60]) / len(seconds[begin : begin + 60])
            for begin in range(0, max(len(seconds) - 59, 1), 60)
        )
