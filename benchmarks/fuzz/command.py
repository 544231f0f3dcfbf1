"""python -m benchmarks fuzz: hostile bytes at every port of a job, and in what it stores."""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.fuzz.ports import PORTS, WITH_TLS, port
from benchmarks.fuzz.stored import KINDS, kind
from benchmarks.fuzz.target import Wrong, memory, strike

TARGETS: dict[str, Any] = {
    **{name: partial(port, name, tls=False) for name in PORTS},
    **{f"{name}, TLS": partial(port, name, tls=True) for name in WITH_TLS},
    **{name: partial(kind, name) for name in KINDS},
}
"""What opens each target, by its name."""


def main(
    nbytes: Annotated[
        int, typer.Option("--bytes", min=1, help="Bytes that are sent to each.")
    ] = 1_000_000,
    at: Annotated[str, typer.Option(help=f"Which: {'; '.join(TARGETS)}; all unless given.")] = "",
    seed: Annotated[int, typer.Option(help="Draws other bytes.")] = 1,
) -> None:
    """Hostile bytes at every port of a job, and in what it stores.

    No target may end, hang, take more than 1 GiB of memory, or answer anything but "no" to a client
    without a token. If one does, the command ends with exit code 1 and prints the seed.
    """
    for name in ("asyncio", "aiohttp.server", "uvicorn.error"):  # they log each bad request
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if at and at not in TARGETS:
        raise typer.BadParameter(f"{at!r}: one of {'; '.join(TARGETS)}")
    table = Table(title="Hostile bytes")
    for column in ("at", "bytes", "sent", "seconds", "MiB more", "answers"):
        table.add_column(column, justify="left" if column in ("at", "answers") else "right")
    for name in [at] if at else TARGETS:
        opened: AbstractContextManager[Any] = TARGETS[name]()
        began, before = time.monotonic(), memory()
        try:
            with opened as target:
                struck = strike(target, seed, nbytes)
        except Wrong as wrong:
            typer.echo(f"{name}: {wrong}", err=True)
            raise typer.Exit(1) from None
        answers = ", ".join(f"{n:,} {what}" for what, n in struck.answers.most_common(8))
        seconds, more = time.monotonic() - began, (memory() - before) >> 20
        cells = [name, f"{struck.nbytes:,}", f"{struck.strikes:,}", f"{seconds:.0f}", f"{more}"]
        table.add_row(*cells, answers)
    Console(width=150).print(table)
