"""python -m benchmarks.peers install flink|bytewax|pathway|spark|all: systems to compare with.

Each gets an environment of its own in `.peers`, from the package registry that pip is set to; Flink
needs a JDK besides, Spark a Java. Nothing else is touched; delete the folder to be rid of them. The
versions were tried with Python 3.11 and Java 17.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.peers.catalog import SYSTEMS, System

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


@app.command()
def install(
    names: Annotated[list[str], typer.Argument(help="Of flink, bytewax, pathway, spark; or all.")],
) -> None:
    """Install systems in the versions that were tried."""
    if unknown := [n for n in names if n not in (*SYSTEMS, "all")]:
        raise typer.BadParameter(f"{unknown[0]!r}: of {', '.join(SYSTEMS)}, all")
    failed = []
    for name in SYSTEMS if "all" in names else names:
        try:
            _install(SYSTEMS[name])
        except (subprocess.CalledProcessError, OSError) as error:
            failed.append(name)
            print(f"{name} could not be installed: {error}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


@app.command("list")
def show() -> None:
    """Which systems there are, and which are installed."""
    for system in SYSTEMS.values():
        state = "installed" if system.installed else "not installed"
        Console().print(f"{system.name:<8} {state:<14} {', '.join(system.packages)}")


def _install(system: System) -> None:
    """The packages, and Java compiled against them."""
    print(f"installing {', '.join(system.packages)} in {system.folder}", flush=True)
    system.ready.unlink(missing_ok=True)
    if not system.site.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", system.folder], check=True)
    pip = [str(system.python), "-m", "pip", "install", "-q", "--prefer-binary"]
    subprocess.run([*pip, *system.packages], check=True)
    if system.sources:
        if shutil.which("javac") is None:
            raise FileNotFoundError("there is no javac: install a JDK 17 or newer")
        shutil.rmtree(system.classes, ignore_errors=True)
        javac = ["javac", "-d", str(system.classes), "-cp", system.jars]
        subprocess.run([*javac, *map(str, system.sources)], check=True)
    system.ready.write_text(json.dumps(system.wanted))


if __name__ == "__main__":
    app()
