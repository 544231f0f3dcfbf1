"""Where bad rows come from: numbers of lines over all input files, and back to file and line."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from raystream.errors import InputError
from spark_ingest.published.rules import Bad

QUARANTINE_ROWS_MAX = 100_000
"""More bad rows than this are not dirt: it is another kind of file."""


@dataclass(frozen=True, slots=True)
class Origins:
    """Input files in order, each with the number of its first line counted over all files."""

    paths: tuple[Path, ...]
    firsts: tuple[int, ...]

    @classmethod
    def of(cls, counted: Sequence[tuple[Path, int]]) -> Origins:
        """From pieces of files in order: (file, lines of the piece)."""
        paths: list[Path] = []
        firsts: list[int] = []
        total = 0
        for path, lines in counted:
            if not paths or paths[-1] != path:
                paths.append(path)
                firsts.append(total)
            total += lines
        return cls(tuple(paths), tuple(firsts))

    def locate(self, line: int) -> tuple[Path, int]:
        """The file, and the number in it (from 1), of a line counted over all files (from 0)."""
        index = bisect_right(self.firsts, line) - 1
        return self.paths[index], line - self.firsts[index] + 1

    def place(self, line: int) -> str:
        """The same as `file:line`."""
        path, number = self.locate(line)
        return f"{path}:{number}"


@dataclass(frozen=True, slots=True)
class Found:
    """Bad rows and where they are; `line` of each counts over all files."""

    origins: Origins
    bad: list[Bad]

    def first(self) -> Bad:
        """The one that comes first in the input."""
        return min(self.bad, key=lambda row: row.line)

    def first_reason(self) -> str:
        """Where it is and what is wrong with it."""
        first = self.first()
        return f"{self.origins.place(first.line)}: {first.reason}"


def refuse(found: Found) -> None:
    """Raises `InputError` for the first bad row, if there is one."""
    if found.bad:
        raise InputError(
            f"{found.first_reason()}\n  the row: {found.first().text}",
            hint="Correct it, or put such rows aside with --on-bad-row quarantine.",
        )


def quarantine(path: Path, findings: Sequence[Found]) -> int:
    """Write bad rows with file, line, reason and text, in order; returns how many there are.

    Without any there will be no file. Raises `InputError` beyond `QUARANTINE_ROWS_MAX`.
    """
    findings = [found for found in findings if found.bad]
    total = sum(len(found.bad) for found in findings)
    if total > QUARANTINE_ROWS_MAX:
        raise InputError(
            f"More than {QUARANTINE_ROWS_MAX:,} rows are bad."
            f" The first one: {findings[0].first_reason()}",
            hint="Is this the right kind of file?",
        )
    if not total:
        return 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "line", "reason", "row"])
        for found in findings:
            for row in sorted(found.bad, key=lambda row: row.line):
                writer.writerow([*found.origins.locate(row.line), row.reason, row.text])
    return total
