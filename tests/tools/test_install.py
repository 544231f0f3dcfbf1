"""The set-up asks the same places for packages whether uv or pip fetches them."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("install")


def test_pips_settings_reach_uv(install: ModuleType) -> None:
    listed = (
        "global.index-url='https://mirror.example/simple'\n"
        "global.find-links='/a /b'\n"
        "global.disable-pip-version-check='1'\n"
        "install.trusted-host='mirror.example'\n"
    )
    assert install.uv_of_pip(listed, {}) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_FIND_LINKS": "/a,/b",
        "UV_INSECURE_HOST": "mirror.example",
    }


def test_the_environment_counts_more_than_files(install: ModuleType) -> None:
    listed = ":env:.index-url='https://near.example'\nglobal.index-url='https://far.example'\n"
    assert install.uv_of_pip(listed, {}) == {"UV_DEFAULT_INDEX": "https://near.example"}


def test_settings_made_for_uv_win(install: ModuleType) -> None:
    listed = "global.index-url='https://far.example'\n"
    assert install.uv_of_pip(listed, {"UV_DEFAULT_INDEX": "https://near.example"}) == {}


def test_several_indexes_are_compared_as_pip_does(install: ModuleType) -> None:
    listed = "global.extra-index-url='https://one.example\\nhttps://two.example'\n"
    assert install.uv_of_pip(listed, {}) == {
        "UV_INDEX": "https://one.example https://two.example",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_java_is_installed_where_it_is_missing(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An `apt-get` that knows only one of the packages, and puts a Java on the path."""
    system = importlib.import_module("system")
    java = tmp_path / "jre" / "bin" / "java"
    java.parent.mkdir(parents=True)
    apt = tmp_path / "apt-get"
    apt.write_text(
        '#!/bin/sh\necho "$@" >>' + f"{tmp_path}/calls\n"
        'case "$*" in *update*) exit 0;; *openjdk-21*) ;; *) exit 100;; esac\n'
        f"printf '#!/bin/sh\\necho openjdk version \\\"21.0.1\\\"\\n' >{java}; chmod +x {java}\n"
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{java.parent}:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("spark_ingest.spark.java._USUAL_PLACES", ())
    monkeypatch.setattr(
        "shutil.which",
        lambda name: (
            str(java)
            if name == "java" and java.exists()
            else str(apt)
            if name == "apt-get"
            else None
        ),
    )
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert system.need_java() == java.parent.parent
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[-1] for call in calls] == [
        "-q",
        "openjdk-17-jre-headless",
        "openjdk-21-jre-headless",
    ]


def test_without_a_way_to_install_it_says_what_to_do(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = importlib.import_module("system")
    monkeypatch.setattr("spark_ingest.spark.java._candidates", lambda: iter(()))
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(system.ConfigError, match=r"Java 17 or newer(.|\n)*apt-get install"):
        system.need_java()
