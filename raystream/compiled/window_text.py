"""The text of a driver that goes through the windows of a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raystream.compiled.driver import DriverShape, Text

CALENDAR = (
    "reading_at", "moment_of", "newest_at", "oldest_at", "closing_of", "following", "end_of",
)  # fmt: skip
"""What a driver calls where windows follow the clocks of a zone or months."""


def newest_window(shape: DriverShape) -> list[str]:
    """Lines that find `newest`, the newest window that has begun at `time`, and its `key`."""
    if shape.calendar:
        return [
            "reading = reading_at(time, calendar)",
            "newest = newest_at(reading, calendar)",
            "key = user_key + (moment_of(newest, calendar),)",
        ]
    every, offset = shape.every, 0 if shape.windows is None else shape.windows.offset
    shifted = f"(time - {offset}) // {every} * {every} + {offset}"
    return [
        f"newest = {shifted if offset else f'time // {every} * {every}'}",
        "key = user_key + (newest,)",
    ]


def end_of_window(shape: DriverShape) -> str:
    """When the window ends that begins at `start`."""
    return "end" if shape.calendar else f"start + {shape.size}"


def each_window(
    text: Text, shape: DriverShape, row: Callable[[], None], *, start: int, late: int, home: str
) -> None:
    """The loop over the open windows of a record; the record is late if it has windows and all are
    closed.

    Args:
        row: writes what is done with a window.
        start: the entry of `run` for the window that the call goes on with.
        late: the entry of `run` for the number of late records.
        home: where the search for the row of the newest window begins.
    """
    if shape.calendar:
        _calendar_windows(text, row, start, home)
    else:
        _even_windows(text, shape, row, start, home)
    with text.block("if not taken:"):
        text(f"late[run[{late}]] = record", f"run[{late}] += 1")


def _even_windows(
    text: Text, shape: DriverShape, row: Callable[[], None], start: int, home: str
) -> None:
    size, every = shape.size, shape.every
    text(
        f"start = newest - ({size} - 1 - (time - newest)) // {every} * {every}",
        "taken = start > newest" if every > size else "taken = False",
    )
    with text.block("if resumed:"):
        text(f"start, taken, resumed = run[{start}], True, False")
    with text.block("while start <= newest:"):
        with text.block(f"if start + {size} > watermark:"):
            text(
                "taken = True",
                f"run[{start}] = start",
                "key = user_key + (start,)",
                f"home = {home} if start == newest else home_of(key, index)",
            )
            row()
        text(f"start += {every}")


def _calendar_windows(text: Text, row: Callable[[], None], start: int, home: str) -> None:
    """Each window is found by the reading of the clock at which it begins."""
    text("begins = oldest_at(reading, newest, calendar)", "taken = begins > newest")
    with text.block("if resumed:"):
        text(f"begins, taken, resumed = run[{start}], True, False")
    with text.block("while begins <= newest:"):
        text(
            "start, then = moment_of(begins, calendar), following(begins, calendar)",
            "end = moment_of(closing_of(begins, calendar), calendar)",
        )
        with text.block("if end > watermark and start != moment_of(then, calendar):"):
            text(
                "taken = True",
                f"run[{start}] = begins",
                "key = user_key + (start,)",
                f"home = {home} if begins == newest else home_of(key, index)",
            )
            row()
        text("begins = then")
