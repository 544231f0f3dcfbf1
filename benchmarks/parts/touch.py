"""How long memory takes that is touched for the first time, and soon after it was given back.

A virtual machine may give free memory back to its host, and then waits long when it needs it again.
"""

from __future__ import annotations

import mmap
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

STEP = 1 << 12
"""Bytes of the smallest page."""


def touched(size: int) -> float:
    """Seconds that it takes to touch `size` bytes of new memory, in pages of 2 MB if it can be."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    huge = hasattr(mmap, "MADV_HUGEPAGE")
    if huge:
        memory.madvise(mmap.MADV_HUGEPAGE)
    began = time.perf_counter()
    for at in range(0, size, 512 * STEP if huge else STEP):
        memory[at] = 1
    took = time.perf_counter() - began
    memory.close()
    return took


def main(
    megabytes: Annotated[int, typer.Option(min=2, help="Touched each time.")] = 4096,
    pauses: Annotated[str, typer.Option(help="Seconds between one time and the next.")] = "0,5,40",
) -> None:
    """How long new memory takes, at first and again some seconds after it was given back."""
    size = megabytes << 20
    table = Table("given back", "s a gigabyte", title=f"{megabytes:,} MiB of new memory")
    table.add_row("by others, or never", f"{touched(size) * (1 << 30) / size:.3f}")
    for pause in map(float, pauses.split(",")):
        time.sleep(pause)
        table.add_row(f"{pause:g} s before", f"{touched(size) * (1 << 30) / size:.3f}")
    Console().print(table)
