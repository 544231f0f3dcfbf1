"""What the machine has to provide: Java, and on Debian what makes virtual environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # nothing is installed yet when this runs

from raystream.errors import ConfigError  # noqa: E402
from spark_ingest.spark.java import java_home  # noqa: E402

__all__ = ["ROOT", "ConfigError", "can_install", "install", "need_java", "say"]

_JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
_APT_SECONDS_MAX = 600


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


def need_java() -> Path:
    """The home of a Java that Spark can use; installed with apt-get where it is missing.

    Raises:
        ConfigError: there is none, and it cannot be installed here.
    """
    try:
        return java_home()
    except ConfigError as error:
        if not can_install():
            raise
        say(f"{error.message.partition(chr(10))[0]} Installing one with apt-get")
        if not install(_JAVA_PACKAGES):
            raise
    return java_home()


def can_install() -> bool:
    """Whether packages of the system can be installed without asking anybody."""
    return shutil.which("apt-get") is not None and _as_root() is not None


def install(any_of: Sequence[str]) -> bool:
    """Install the first of these packages that the system knows; False if none could be."""
    if not _apt("update", "-q"):
        return False
    return any(_apt("install", "-q", "-y", "--no-install-recommends", name) for name in any_of)


def _apt(*arguments: str) -> bool:
    as_root = _as_root()
    assert as_root is not None
    command = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *arguments]
    try:
        done = subprocess.run(
            command,
            timeout=_APT_SECONDS_MAX,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        say(f"`{' '.join(command)}` was given up after {_APT_SECONDS_MAX} s")
        return False
    if done.returncode:
        say(f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.returncode == 0


def _as_root() -> list[str] | None:
    """What to put before a command so that it runs as root; None if that would need a password."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    asks = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode
    return None if asks else ["sudo", "-n"]
