"""`raystream new`: what it makes runs, is tested, and is what a cluster takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from raystream.cli.app import app
from raystream.cli.project import make_project
from raystream.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "My-sensors"
    make_project(folder)
    return folder


def run(project: Path, *command: str, **env: str) -> str:
    base = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env=base | env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_tests_pass(project: Path) -> None:
    assert "4 passed" in run(project, "pytest", "-q", "-p", "no:cacheprovider")


def test_its_flow_runs_and_writes_its_answers(project: Path) -> None:
    shown = run(project, "raystream", "run", "my_sensors.flow:flow", "--local")
    assert "240" in shown, "four sensors, sixty windows"
    rows = [
        line
        for file in sorted((project / "out" / "Mean").glob("*.csv"))
        for line in file.read_text().splitlines()[1:]
    ]
    assert len(rows) == 240
    assert '10,"sensor-0",20.24,false' in rows


def test_its_answers_go_where_it_is_told(project: Path, tmp_path: Path) -> None:
    run(project, "raystream", "run", "my_sensors.flow:flow", "--local", OUT=f"{tmp_path}/means")
    assert list((tmp_path / "means" / "Mean").glob("*.csv"))


def test_its_readme_is_done_as_written(project: Path) -> None:
    """Its commands are those that the tests above run, and one that brings pytest."""
    text = (project / "README.md").read_text(encoding="utf-8")
    typed = [
        line for b in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in b.splitlines()
    ]
    assert typed == [
        "raystream plan my_sensors.flow:flow",
        "raystream check my_sensors.flow:flow",
        "raystream run my_sensors.flow:flow --local",
        "pip install pytest",
        "python -m pytest",
    ]
    for line in typed[:2]:
        program, *arguments = line.split()
        assert "my_sensors" in run(project, program, *arguments) or arguments[0] == "check"


def test_it_is_well_typed_and_tidy(project: Path) -> None:
    strict = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}
    (project / "pyrightconfig.json").write_text(json.dumps(strict))
    shown = run(project, "pyright", "--pythonpath", sys.executable, "my_sensors")
    assert shown.startswith("0 errors")
    run(
        project,
        "ruff",
        "check",
        "--isolated",
        "--select",
        "E,F,I,UP,B",
        "--line-length",
        "100",
        ".",
    )


def test_its_job_is_one_of_kuberay(project: Path) -> None:
    job, claim = yaml.safe_load_all((project / "rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["metadata"]["name"] == "my-sensors"
    groups: list[dict[str, Any]] = [
        job["spec"]["rayClusterSpec"]["headGroupSpec"],
        *job["spec"]["rayClusterSpec"]["workerGroupSpecs"],
    ]
    claimed = claim["metadata"]["name"]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        assert container["image"] == "my-sensors"
        (mount,) = container["volumeMounts"]
        (volume,) = group["template"]["spec"]["volumes"]
        assert mount["name"] == volume["name"]
        assert volume["persistentVolumeClaim"]["claimName"] == claimed


def test_the_entry_point_of_its_job_is_a_command_that_there_is(project: Path) -> None:
    job = next(yaml.safe_load_all((project / "rayjob.yaml").read_text()))
    command = job["spec"]["entrypoint"].split()
    (mount,) = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0][
        "volumeMounts"
    ]
    assert command[:2] == [
        "env",
        f"OUT={mount['mountPath']}/out",
    ]  # a pod's own folders do not stay
    assert command[2:5] == ["raystream", "run", "my_sensors.flow:live"]
    options = {word for word in command if word.startswith("--")}
    known = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).output
    assert all(option in known for option in options), known


@pytest.mark.parametrize("name", ["class", "random", "9lives", "a.b", "ä", ""])
def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        make_project(tmp_path / "here" / name if name else Path("/"))


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "flow.py").write_text("all my work")
    result = CliRunner().invoke(app, ["new", str(tmp_path / "mine")])
    assert result.exit_code != 0
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["flow.py"]
