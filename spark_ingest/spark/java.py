"""Finds a Java that Spark can use: 17 or newer, by JAVA_HOME, PATH and the usual places."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from raystream.errors import ConfigError

VERSION_MIN = 17
_ANSWER_SECONDS_MAX = 20

_USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/lib64/jvm/*",
    "/usr/java/*",
    "/opt/java*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
    "~/Library/Java/JavaVirtualMachines/*/Contents/Home",
)

_INSTALL = f"""Install one, for example:
    Debian, Ubuntu    sudo apt-get install openjdk-{VERSION_MIN}-jre-headless
    Fedora, RHEL      sudo dnf install java-{VERSION_MIN}-openjdk-headless
    macOS             brew install openjdk@{VERSION_MIN}
  or unpack https://adoptium.net and set JAVA_HOME to its folder."""


def java_home() -> Path:
    """The home of the first Java in JAVA_HOME, PATH, usual places that is new enough.

    Raises `ConfigError`, which says what was found instead and how to install one.
    """
    rejected: dict[Path, str] = {}
    for home in _candidates():
        if home in rejected:
            continue
        version = _version(home)
        if version is not None and version >= VERSION_MIN:
            return home
        rejected[home] = "cannot be run" if version is None else f"is Java {version}"
    found = "".join(f"\n  {home} {why}" for home, why in rejected.items())
    raise ConfigError(
        f"Spark needs Java {VERSION_MIN} or newer, and none was found"
        f" (looked at JAVA_HOME, PATH, /usr/lib/jvm and the like).{found}",
        hint=_INSTALL,
    )


def _candidates() -> Iterator[Path]:
    """Homes of what may be Javas, the most wanted first."""
    asked = os.environ.get("JAVA_HOME")
    if asked:
        yield Path(asked)
    on_path = shutil.which("java")
    if on_path:
        # /usr/bin/java leads through links to <home>/bin/java.
        yield Path(on_path).resolve().parent.parent
    for place in _USUAL_PLACES:
        pattern = Path(place).expanduser()
        for home in sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))):
            if (home / "bin" / "java").exists():
                yield home


def _version(home: Path) -> int | None:
    """The feature version (17, 21) that a Java says of itself; None if it does not run."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS_MAX,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    stated = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(stated.group(1)) if stated else None
