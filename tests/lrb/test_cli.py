"""The commands as a stranger meets them: what they print, and with which exit code they end."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from lrb import options
from lrb.cli import app
from lrb.oracle.answers import KINDS
from lrb.query import folder
from lrb.query.source import look_through
from raystream.errors import ConfigError
from raystream.submitted import SUBMITTED
from spark_ingest.layout import row_files, split
from tests.lrb.rows import balance, report, travel_time
from tests.lrb.running import TWO, prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PUBLISHED = "0,38,3,0,0,1,0,8,45545,-1,-1,-1,-1,-1,-1\n2,38,3,-1,-1,-1,-1,-1,-1,2,-1,-1,-1,-1,-1\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [report(0, 1, 3), report(30, 1, 4), balance(30, 1, 7), travel_time(31, 1, 8)]
    return prepare(tmp_path_factory.mktemp("cli"), rows)


def invoke(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and output of a command."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert "Traceback" not in result.output
    return result.exit_code, result.output


def refused(*arguments: str | Path) -> str:
    """What a command says that ends with exit code 2; it is one message."""
    code, output = invoke(*arguments)
    assert code == 2, output
    assert output.count("error") + output.count("Error") == 1, output
    return output


# ---- what works -------------------------------------------------------------------------------


def test_a_run_writes_its_answers_and_a_table(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers"
    counts = ",".join(f"{name}={number}" for name, number in TWO.items())
    code, output = invoke("run", "--input", data, "--out", out, "--local", "--instances", counts)
    assert code == 0, output
    assert "Answering 4 rows in this process, as fast as it goes" in output
    assert "counted, not answered" in output
    assert {path.name for path in out.iterdir()} == {*(k.file for k in KINDS), "run.json"}
    record = json.loads((out / "run.json").read_text())
    assert record["input"] == str(data)
    assert record["cluster"] == "local"
    assert record["rows_in"] == {"0": 2, "2": 1, "3": 0, "4": 1}
    assert record["rows_out"] == {"toll": 2, "alert": 0, "balance": 1, "expenditure": 0}
    assert {operator["name"]: operator["instances"] for operator in record["operators"]} == {
        **TWO, "answers": 1,
    }  # fmt: skip
    assert (out / "balances.csv").read_text() == "2,30,-1,7,30,0\n"


def test_earlier_answers_are_replaced(data: Path, tmp_path: Path) -> None:
    for speed in ("1000", "max"):
        code, output = invoke(
            "run", "--input", data, "--out", tmp_path, "--local", "--speed", speed
        )
        assert code == 0, output
        assert (tmp_path / "latency.parquet").exists() == (speed != "max")


def test_help_tells_what_the_commands_do() -> None:
    for command, words in {
        "run": ("--input", "--out", "--speed", "--instances", "--local", "--address", "Example"),
        "validate": ("--input", "--answers", "oracle", "Example"),
        "demo": ("--xways", "--seconds", "--speed", "--out", "Example"),
        "rate": ("--data", "--seconds", "--from", "--most", "--p99", "replayed", "Example"),
        "elastic": ("--minutes", "--hours", "--cores", "--most", "Example"),
    }.items():
        _, output = invoke(command, "--help")
        assert all(word in output for word in words), output


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys; import lrb.cli, lrb.options;"
        "assert not {'pyspark', 'ray', 'numba', 'matplotlib', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.spark
def test_a_published_file_is_prepared_and_checked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "answers"
    source.write_text(PUBLISHED)
    code, output = outside("run", "--input", source, "--out", out, "--local")
    assert code == 0, output
    assert (out / "tollalerts.csv").read_text() == "0,3,38,-1,-1,0\n"
    assert look_through(out / "data").meta.rows_total == 2
    (out / "tollalerts.csv").write_text("0,3,38,-1,-1,2\n")
    monkeypatch.setattr("lrb.oracle.validate._spark", lambda given, progress: nullcontext(spark))
    code, output = invoke("validate", "--input", source, "--answers", out)
    assert code == 1, output
    assert "1 wrong" in output


def outside(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and output of a command in a process, and with a Spark, of its own."""
    command = [sys.executable, "-m", "lrb", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


# ---- what is refused --------------------------------------------------------------------------


def test_options_that_mean_nothing_are_refused(data: Path, tmp_path: Path) -> None:
    run = ("run", "--input", data, "--out", tmp_path / "answers", "--local")
    for speed in ("fast", "0", "-1", "nan", "inf"):
        assert f"--speed {speed} is no speed" in refused(*run, "--speed", speed)
    assert "--cores 2 is no part of a core" in refused("elastic", "--cores", "2")
    assert "there is no operator 'vehicels'" in refused(*run, "--instances", "vehicels=2")
    assert "'forward'" in refused(*run, "--instances", "forward=2")
    for text in ("vehicles", "vehicles=0", "vehicles=two", "vehicles=-1", "=2", "vehicles=1.5"):
        assert "is not NAME=NUMBER" in refused(*run, "--instances", text)
    assert "given twice" in refused(*run, "--instances", "vehicles=2,vehicles=3")
    assert "key groups" in refused(*run, "--instances", "vehicles=257")
    assert "exclude each other" in refused(*run, "--address", "auto")
    assert "Missing option '--input'" in refused("run", "--out", tmp_path)
    assert "own" in refused(*run, "--history", tmp_path / "history.csv")
    assert not (tmp_path / "answers" / "run.json").exists()


def test_input_that_is_not_there_or_not_whole_is_refused(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers"
    missing = tmp_path / "none"
    assert f"{missing} does not exist" in refused("run", "--input", missing, "--out", out)
    (tmp_path / "folder").mkdir()
    told = refused("run", "--input", tmp_path / "folder", "--out", out)
    assert "is not finished, or not prepared data" in told
    assert "there is no answers folder" in refused("validate", "--input", data, "--answers", out)
    (tmp_path / "empty.csv").touch()
    assert "is empty" in refused("run", "--input", tmp_path / "empty.csv", "--out", out)


def test_a_file_that_vanishes_during_the_run_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare(tmp_path, [report(t, 17, 3) for t in range(0, 300, 30)])
    prepared = look_through(folder)
    gone = row_files(folder, split(17))[0]
    gone.unlink()
    monkeypatch.setattr("lrb.query.source.look_through", lambda _: prepared)
    out = tmp_path / "answers"
    told = refused("run", "--input", folder, "--out", out, "--local")
    assert f"{gone} is gone" in told
    assert list(out.iterdir()) == []


def test_output_that_is_not_ours_is_left_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    told = refused("run", "--input", data, "--out", tmp_path, "--local")
    assert "thesis.tex in it is no answer of an earlier run" in told
    assert "meta.json in it is no answer" in refused("run", "--input", data, "--out", data)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("beside", ["thesis.tex", "parts/000000000001/part.parquet"])
def test_a_folder_of_parts_that_is_not_ours_is_left_alone(
    data: Path, tmp_path: Path, beside: str
) -> None:
    for path in (tmp_path / "parts" / "engine.step", tmp_path / beside):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("years of work")
    before = sorted(tmp_path.rglob("*"))
    told = refused("run", "--input", data, "--out", tmp_path, "--local")
    assert "in it is no answer of an earlier run" in told
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_killed_run_left_behind_is_no_obstacle(tmp_path: Path) -> None:
    parts = folder.new_parts(tmp_path)
    (parts / "part.parquet").touch()
    folder.make(tmp_path)  # as of a published file, and of a rating
    assert folder.new_parts(tmp_path) != parts
    assert not parts.exists()


def test_output_that_cannot_be_written_to_is_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = refused("run", "--input", data, "--out", tmp_path / "file" / "answers", "--local")
    assert "cannot be written to" in told


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_output_without_permission_is_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers").chmod(stat.S_IRUSR | stat.S_IXUSR)
    told = refused("run", "--input", data, "--out", tmp_path / "answers", "--local")
    assert "cannot be written to: Permission denied" in told


@pytest.mark.parametrize("command", ["run", "validate", "demo", "elastic"])
def test_relative_paths_are_refused_inside_of_a_submitted_job(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SUBMITTED, "{}")
    names = {"run": ("--input", "--out"), "validate": ("--input", "--answers")}
    given = names.get(command, ("--out",))
    told = refused(command, *(word for name in given for word in (name, "data")))
    assert "is relative" in told
    assert '"$PWD/data"' in told


def test_whole_paths_are_fine_inside_of_a_submitted_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBMITTED, "{}")
    assert options.absolute(Path("/data"), "--input") == Path("/data")
    with pytest.raises(ConfigError, match="runs in a copy"):
        options.absolute(Path("data"), "--input")
