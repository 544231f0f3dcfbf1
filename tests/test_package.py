"""What would be released works by itself: the wheel in an environment of its own, away from here.

Nothing is downloaded: the environment finds the packages that raystream needs among those of the
one that runs the tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("raystream", "spark_ingest", "lrb", "benchmarks")
OURS = re.compile("RAYSTREAM_|PYTHON")
"""Variables that would lead to this checkout."""

pytestmark = pytest.mark.slow


class Built(NamedTuple):
    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """An sdist of this checkout, and the wheel that is made of it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Built(wheel, sdist)


class Home(NamedTuple):
    """An environment with the wheel, and a folder where nothing is but what a user wrote."""

    bin: Path
    folder: Path

    def run(self, *command: str, seconds: float = 300) -> str:
        """What a command prints; it has to end well."""
        env = {k: v for k, v in os.environ.items() if not OURS.match(k) and k != "RAY_ADDRESS"}
        env |= {"PATH": f"{self.bin}{os.pathsep}{env['PATH']}", "RAY_USAGE_STATS_ENABLED": "0"}
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def home(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The wheel, installed where nothing else of this checkout is found."""
    venv = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python")]
    install = [*pip, "install", "-q", "--no-deps", "--no-index", str(built.wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (site,) = venv.glob("lib/python*/site-packages")
    # Behind what is installed. The .pth files there do not count, as that of an editable raystream.
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return Home(venv / "bin", tmp_path_factory.mktemp("home"))


def test_the_wheel_has_the_packages_with_their_data_and_nothing_else(built: Built) -> None:
    names = zipfile.ZipFile(built.wheel).namelist()
    assert {n.partition("/")[0] for n in names if ".dist-info/" not in n} == {*PACKAGES}
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode == 0:  # not in an unpacked sdist
        here = [name for name in tracked.stdout.split() if (ROOT / name).exists()]
        assert {*here} <= {*names}
    for data in ("lrb/templates/report.html.j2", "benchmarks/model/service_times.json"):
        assert data in names
    assert "raystream/py.typed" in names


def test_the_sdist_has_what_the_wheel_is_made_of(built: Built) -> None:
    with tarfile.open(built.sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    there = {name.partition("/")[0] for name in names}
    assert there >= {*PACKAGES, "examples", "pyproject.toml", "README.md", "LICENSE"}
    assert not there & {"tests", "docs", "tools", ".venv", ".ci"}
    assert "examples/word_count.py" in names


def test_what_is_installed_is_the_wheel(home: Home) -> None:
    code = "import raystream, lrb, benchmarks, spark_ingest; print(raystream.__file__)"
    assert Path(home.run("python", "-c", code).strip()).is_relative_to(home.bin.parent)
    version = re.search(r'__version__ = "(.+)"', (ROOT / "raystream/__init__.py").read_text())
    assert version is not None
    assert f"raystream {version[1]}\n" in home.run("raystream", "version")


@pytest.mark.parametrize(
    ("command", "knows"),
    [
        (("raystream", "--help"), "Runs dataflows"),
        (("python", "-m", "raystream", "--help"), "Runs dataflows"),
        (("python", "-m", "lrb", "--help"), "demo"),
        (("python", "-m", "spark_ingest", "--help"), "generate"),
        (("python", "-m", "benchmarks", "--help"), "schedules"),
    ],
)
def test_the_commands_are_there(home: Home, command: tuple[str, ...], knows: str) -> None:
    assert knows in home.run(*command)


def test_the_quick_start_of_the_readme_runs(home: Home) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    start = readme[readme.index("## Quick start") :]
    flow = re.search(r"```python\n(.*?)```", start, re.S)
    commands = re.search(r"```sh\n(.*?)```", start, re.S)
    assert flow is not None and commands is not None
    (home.folder / "words.py").write_text(flow[1], encoding="utf-8")
    plan, check, local = (line.partition("#")[0].split() for line in commands[1].splitlines()[:3])
    assert plan[:2] == ["raystream", "plan"] and check[:2] == ["raystream", "check"]
    assert local[:2] == ["raystream", "run"] and local[-1] == "--local"
    assert "count" in home.run(*plan)
    assert "read a record (Word)" in home.run(*check)
    shown = home.run(*local)
    assert "Word(time=0, text='to', n=1)" in shown
    assert re.search(r"count +1 +600 +600", shown), shown


def test_an_example_runs(home: Home) -> None:
    shutil.copytree(ROOT / "examples", home.folder / "examples", dirs_exist_ok=True)
    shown = home.run("raystream", "run", "examples.word_count:flow", "--local")
    assert "CountWords" in shown


@pytest.mark.ray
def test_the_quick_start_runs_on_ray(home: Home) -> None:
    """Its processes find the wheel, too."""
    test_the_quick_start_of_the_readme_runs(home)
    shown = home.run("raystream", "run", "words:flow", "--instances", "count=2")
    assert "on Ray" in shown and re.search(r"count +2 +600 +600", shown), shown


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.long
def test_linear_road_runs(home: Home) -> None:
    """Generated, answered on Ray, checked, and a report written of its template."""
    out = home.folder / "linear-road"
    command = ("python", "-m", "lrb", "demo", "--seconds", "60", "--speed", "max")
    home.run(*command, "--out", str(out), seconds=900)
    assert (out / "report").is_dir() and any((out / "report").glob("*.html"))
