"""What a published row may hold, by type; and what a car may report.

A row of a type uses some of the columns. Those must be in range; whatever the others hold (-1 in
the official files, anything in Walmart's) is replaced by -1.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_ingest import layout
from spark_ingest.layout import BALANCE, EXPENDITURE, REPORT, TRAVEL_TIME
from spark_ingest.tables import Columns

Mask = npt.NDArray[np.bool_]

TIME_MAX = 10 * 86_400
"""Ten days: a later time is a mistake, and would make `meta.json` huge."""
_INT16_MAX, _INT32_MAX = 2**15 - 1, 2**31 - 1
_REPORTS_PER_MINUTE_MAX = 2


@dataclass(frozen=True, slots=True)
class Bad:
    """A line that is no row, or a row that breaks a rule."""

    line: int
    reason: str
    text: str
    """The line, or the row as it was read; cut where it is long."""


@dataclass(frozen=True, slots=True)
class Range:
    """Rows of the types `types` use column `name`, with values from `least` to `most`."""

    name: str
    types: tuple[int, ...]
    least: int
    most: int


_ALL = layout.TYPES

RANGES = (
    Range("time", _ALL, 0, TIME_MAX),
    Range("vid", _ALL, 0, _INT32_MAX - 1),
    Range("spd", (REPORT,), 0, 100),
    Range("xway", (REPORT, EXPENDITURE), 0, _INT16_MAX - 1),
    Range("xway", (TRAVEL_TIME,), -1, _INT16_MAX - 1),
    Range("lane", (REPORT,), 0, 4),
    Range("dir", (REPORT,), 0, 1),
    Range("seg", (REPORT,), 0, 99),
    Range("pos", (REPORT,), 0, 527_999),
    Range("qid", (BALANCE, EXPENDITURE, TRAVEL_TIME), 0, _INT32_MAX),
    Range("day", (EXPENDITURE,), 1, 69),
    # The official files have zeros here; nobody answers these requests.
    Range("s_init", (TRAVEL_TIME,), -1, 99),
    Range("s_end", (TRAVEL_TIME,), -1, 99),
    Range("dow", (TRAVEL_TIME,), -1, 7),
    Range("tod", (TRAVEL_TIME,), -1, 1_440),
)

HISTORY_RANGES = (
    Range("vid", (), 0, _INT32_MAX - 1),
    Range("day", (), 1, 69),
    Range("xway", (), 0, _INT16_MAX - 1),
    Range("toll", (), 0, _INT32_MAX),
)


def check_rows(columns: Columns, line: npt.NDArray[np.int64]) -> tuple[Mask, list[Bad]]:
    """Which rows obey `RANGES`, and what is wrong with the others; `line` says where they are."""
    kind = columns["type"]
    unknown = ~np.isin(kind, layout.TYPES)
    found = [(unknown, "type {value} is not one of 0, 2, 3, 4", "type")]
    for rule in RANGES:
        used = np.isin(kind, rule.types)
        found.append((used & _outside(columns[rule.name], rule), _reason(rule), rule.name))
    return _judge(columns, line, found)


def check_history(columns: Columns, line: npt.NDArray[np.int64]) -> tuple[Mask, list[Bad]]:
    """Which rows of toll history obey `HISTORY_RANGES`, and what is wrong with the others."""
    found = [
        (_outside(columns[rule.name], rule), _reason(rule), rule.name) for rule in HISTORY_RANGES
    ]
    return _judge(columns, line, found)


def _outside(values: npt.NDArray[np.int64], rule: Range) -> Mask:
    return np.less(values, rule.least) | np.greater(values, rule.most)


def _reason(rule: Range) -> str:
    return f"{rule.name} {{value}} is outside {rule.least} to {rule.most}"


def _judge(
    columns: Columns, line: npt.NDArray[np.int64], found: list[tuple[Mask, str, str]]
) -> tuple[Mask, list[Bad]]:
    good = ~np.logical_or.reduce([mask for mask, _, _ in found])
    bad = []
    for row in np.flatnonzero(~good).tolist():
        reason, name = next((text, name) for mask, text, name in found if mask[row])
        value = int(columns[name][row])
        text = ",".join(str(values[row]) for values in columns.values())
        bad.append(Bad(int(line[row]), reason.format(value=value), text))
    return good, bad


def used_columns(columns: Columns) -> Columns:
    """`columns` with -1 wherever a row's type does not use the column."""
    kind = columns["type"]
    kept = {"type": kind}
    for name in layout.PUBLISHED[1:]:
        types = [number for rule in RANGES if rule.name == name for number in rule.types]
        kept[name] = np.where(np.isin(kind, types), columns[name], layout.UNUSED)
    return kept


def repeated_rows(rows: pa.Table, place: Callable[[int], str]) -> dict[int, str]:
    """Sorted rows that a car cannot have sent: {index: reason}.

    `rows` are all rows of their cars in whole minutes, in `layout.ORDER`, with a column `line`;
    `place` says where such a line is. What is found: a row that was there before, a second report
    in one second, and in one minute a third report from one segment and a fifth segment.
    """
    columns = {name: rows[name].to_numpy() for name in (*layout.PUBLISHED, "line")}
    bad = dict(_repeats(columns, place))
    bad.update(_crowded_minutes(columns, bad))
    return bad


def _repeats(columns: Columns, place: Callable[[int], str]) -> Iterator[tuple[int, str]]:
    same = np.ones(max(len(columns["time"]) - 1, 0), dtype=bool)
    for name in ("time", "type", "vid"):
        same &= columns[name][1:] == columns[name][:-1]
    # Few rows are next to one of the same car, type and second: these are looked at one by one.
    suspects = np.flatnonzero(same)
    rows: dict[tuple[int, ...], int] = {}
    reports: dict[tuple[int, int], int] = {}
    for index in np.union1d(suspects, suspects + 1).tolist():
        row = tuple(int(columns[name][index]) for name in layout.PUBLISHED)
        kind, time, vid = row[:3]
        line = int(columns["line"][index])
        if row in rows:
            yield index, f"the same row is at {place(rows[row])}"
        elif kind == REPORT and (time, vid) in reports:
            first = place(reports[time, vid])
            yield index, f"vehicle {vid} reports twice in second {time}, first at {first}"
        else:
            rows[row] = line
            if kind == REPORT:
                reports[time, vid] = line


def _crowded_minutes(columns: Columns, known: dict[int, str]) -> Iterator[tuple[int, str]]:
    report = columns["type"] == REPORT
    report[list(known)] = False
    reports = np.flatnonzero(report)
    vid, minute = columns["vid"][reports].astype(np.int64), columns["time"][reports] // 60
    order = np.argsort(vid << 32 | minute, kind="stable")  # stable: a car's reports by time
    vid, minute, reports = vid[order], minute[order], reports[order]
    step = _REPORTS_PER_MINUTE_MAX
    many = np.flatnonzero((vid[step:] == vid[:-step]) & (minute[step:] == minute[:-step]))
    seen: defaultdict[tuple[int, int], Counter[tuple[int, ...]]] = defaultdict(Counter)
    for index in sorted({int(first) + more for first in many for more in range(step + 1)}):
        row, car = int(reports[index]), (int(vid[index]), int(minute[index]))
        place = tuple(int(columns[name][row]) for name in ("xway", "dir", "seg"))
        seen[car][place] += 1
        if seen[car][place] > step:
            yield row, _too_many(car, f"more than twice from segment {place[2]}")
        elif len(seen[car]) > layout.SEGMENTS_PER_MINUTE_MAX:
            del seen[car][place]
            yield row, _too_many(car, f"from more than {layout.SEGMENTS_PER_MINUTE_MAX} segments")


def _too_many(car: tuple[int, int], what: str) -> str:
    vid, minute = car
    return f"vehicle {vid} reports {what} in minute {minute + 1}"
