from __future__ import annotations

from pathlib import Path

import pytest

from raystream.errors import ConfigError
from spark_ingest.spark import java


def make_java(home: Path, says: str, code: int = 0) -> Path:
    """A program that answers `-version` as Java does, on its error output."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return home


OLD = 'openjdk version "1.8.0_402"'
NEW = 'openjdk version "21.0.4" 2024-07-16'


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: nothing in JAVA_HOME, PATH or the usual places."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin" if not Path("/bin/java").exists() else str(tmp_path / "none"))
    monkeypatch.setattr(java, "_USUAL_PLACES", (f"{tmp_path}/jvm/*",))
    return tmp_path


def test_without_java_the_message_says_how_to_install_it(nowhere: Path) -> None:
    with pytest.raises(ConfigError, match="needs Java 17 or newer, and none was found") as told:
        java.java_home()
    assert "apt-get install openjdk-17-jre-headless" in told.value.hint
    assert "brew install" in told.value.hint


def test_what_was_found_and_is_too_old_is_named(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_java(nowhere / "jvm" / "java-8", OLD)
    broken = make_java(nowhere / "broken", NEW, code=1)
    monkeypatch.setenv("JAVA_HOME", str(broken))
    with pytest.raises(ConfigError) as told:
        java.java_home()
    assert f"{old} is Java 8" in str(told.value)
    assert f"{broken} cannot be run" in str(told.value)


def test_java_home_goes_before_path_and_path_before_the_usual_places(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = make_java(nowhere / "jvm" / "java-21", NEW)
    assert java.java_home() == usual
    # As on Debian: the program on PATH is a link into the home.
    on_path = make_java(nowhere / "opt" / "jdk", NEW)
    (nowhere / "links").mkdir()
    (nowhere / "links" / "java").symlink_to(on_path / "bin" / "java")
    monkeypatch.setenv("PATH", f"{nowhere / 'links'}:/bin")
    assert java.java_home() == on_path
    asked = make_java(nowhere / "asked", 'java version "17" 2021-09-14 LTS')
    monkeypatch.setenv("JAVA_HOME", str(asked))
    assert java.java_home() == asked


def test_a_useless_java_home_is_passed_over(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = make_java(nowhere / "jvm" / "java-21", NEW)
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "gone"))
    assert java.java_home() == usual
