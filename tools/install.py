"""Sets up `.venv`: `python tools/install.py run|dev`. What is there already is left alone.

uv does it in a third of pip's time, so pip fetches uv first; where that does not work pip does the
rest as well. Versions come from `constraints.txt`, packages from where pip is configured to look.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from system import ROOT, ConfigError, can_install, install, need_java, say

EXTRAS = {"run": "spark,report,bench", "dev": "spark,report,dev"}
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CONSTRAINTS = ROOT / "constraints.txt"

# PySpark has no wheel, so one is made of its 450 MB source. Not to compress it, only to unpack it
# again at once, takes 8 s instead of 24 s.
_UNCOMPRESSED = "--build-option=--compression=stored"

_UV_OF_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
_COMMAS = ("UV_FIND_LINKS",)  # uv wants a comma between several; the others take spaces


def main(what: str) -> int:
    try:
        need_java()
        make_venv()
        install_packages(EXTRAS[what])
    except ConfigError as error:
        print(f"\n{error}", file=sys.stderr)
        return 2
    return 0


def make_venv() -> None:
    """An environment with a pip of its own, made anew if what is there does not run."""
    if _runs([PYTHON, "-m", "pip", "--version"]):
        return
    say(f"making {VENV.name} with Python {sys.version.split()[0]}")
    command: list[str | Path] = [sys.executable, "-m", "venv", "--clear", VENV]
    if _runs(command):
        return
    # Debian and Ubuntu keep `ensurepip` in a package of its own.
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    if not (can_install() and install([package, "python3-venv"]) and _runs(command)):
        raise ConfigError(
            f"{sys.executable} cannot make a virtual environment",
            hint=f"On Debian and Ubuntu: sudo apt-get install {package}",
        )


def install_packages(extras: str) -> None:
    """The project, editable, with its dependencies.

    Raises:
        ConfigError: neither uv nor pip could.
    """
    say(f"installing packages ({extras}); the first time that is most of 1 GB to download")
    project = f"{ROOT}[{extras}]"
    uv: list[str | Path] = [
        "uv",
        "pip",
        "install",
        "--python",
        PYTHON,
        "-c",
        CONSTRAINTS,
        "--config-settings-package",
        f"pyspark:{_UNCOMPRESSED}",
        "-e",
        project,
    ]
    pip: list[str | Path] = [
        "pip",
        "install",
        "--prefer-binary",
        "--no-compile",
        "-c",
        CONSTRAINTS,
        "--config-settings",
        _UNCOMPRESSED,
        "-e",
        project,
    ]
    quiet = [] if sys.stderr.isatty() else ["-q"]
    if _runs([PYTHON, "-m", "pip", "install", "-q", "-c", CONSTRAINTS, "uv"], shown=True):
        if _runs([PYTHON, "-m", *uv, *quiet], shown=True, env={**os.environ, **uv_settings()}):
            return
        say("uv could not; trying the same with pip")
    if not _runs([PYTHON, "-m", *pip, *quiet], shown=True):
        raise ConfigError(
            "the packages could not be installed: the reason is above",
            hint=(
                "Without a network, point pip at a mirror (pip config set global.index-url ...) and"
                " run this again: what is there already is kept."
            ),
        )


def uv_settings() -> dict[str, str]:
    """pip's settings on this machine as uv's, which does not read them by itself."""
    listed = subprocess.run(
        [PYTHON, "-m", "pip", "config", "list"], check=False, capture_output=True, text=True
    ).stdout
    return uv_of_pip(listed, os.environ)


def uv_of_pip(listed: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What `pip config list` printed, as environment variables of uv; those already set win."""
    found: dict[str, str] = {}
    # `global.` < `install.` < `:env:.`: what counts more comes later.
    rank = {"global": 0, "install": 1, ":env:": 2}
    lines = [line.partition("=") for line in listed.splitlines() if "=" in line]
    split = [(*name.rpartition(".")[::2], value) for name, _, value in lines]
    for section, name, value in sorted(split, key=lambda s: rank.get(s[0], -1)):
        variable = _UV_OF_PIP.get(name)
        if variable is not None and section in rank:
            several = str(ast.literal_eval(value)).split()
            found[variable] = ("," if variable in _COMMAS else " ").join(several)
    if "UV_INDEX" in found:  # pip takes the best of all indexes, uv would stop at the first
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {name: value for name, value in found.items() if name not in environ}


def _runs(
    command: Sequence[str | Path], *, shown: bool = False, env: Mapping[str, str] | None = None
) -> bool:
    """Whether a command ends well. Its output is discarded unless `shown`."""
    silent = None if shown else subprocess.DEVNULL
    try:
        return (
            subprocess.run(
                command, stdout=silent, stderr=silent, env=env, check=False, cwd=ROOT
            ).returncode
            == 0
        )
    except OSError:
        return False


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in EXTRAS:
        raise SystemExit(f"usage: install.py {'|'.join(EXTRAS)}")
    raise SystemExit(main(sys.argv[1]))
