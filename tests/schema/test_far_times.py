"""Times in Parquet that are too far off for nanoseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raystream as rs
from raystream.errors import InputError
from raystream.testing import Collect

FAR = [datetime(year, 12, 31, tzinfo=UTC) for year in (1600, 2024, 9999)]
NANOS = 1_704_110_400_000_000_123


class Naive(NamedTuple):
    at: Annotated[datetime, rs.timestamp(zone="UTC")]


class Counted(NamedTuple):
    at: int


def read(path: Path, record: Any, unit: Any) -> list[Any]:
    flow, sink = rs.Flow("far", time_unit=unit), Collect()
    flow.source(rs.io.parquet(path, record), epochs=rs.by_arrival("at")).to(sink)
    flow.run()
    return [r.at for r in sink.records()]


def test_times_of_int96_may_be_far_off(tmp_path: Path) -> None:
    """In nanoseconds, as PyArrow reads them unless told otherwise, the year 9999 would be 1816."""
    path = tmp_path / "x.parquet"
    # It has no zones, so these are read as what the record says of times without one.
    plain = pa.array(FAR, pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"at": plain}), path, use_deprecated_int96_timestamps=True)
    assert read(path, Naive, "us") == FAR
    assert read(path, Counted, "s") == [int(at.timestamp()) for at in FAR]
    with pytest.raises(InputError, match="too far from 1970 to be counted in ns"):
        read(path, Counted, "ns")
    near = pa.array([NANOS], pa.timestamp("ns"))
    pq.write_table(pa.table({"at": near}), path, use_deprecated_int96_timestamps=True)
    assert read(path, Counted, "ns") == [NANOS]
