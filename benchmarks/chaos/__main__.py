"""`python -m benchmarks.chaos`."""

import typer

from benchmarks.chaos.soak import main

typer.run(main)
