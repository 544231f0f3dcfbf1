"""The commands as a stranger meets them."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from spark_ingest import layout
from spark_ingest.cli import app
from spark_ingest.screen import shown, summary_table
from spark_ingest.spark import java
from spark_ingest.summary import Summary
from tests.gates import LIMIT_SECONDS

ROOT = Path(__file__).parents[2]
REPORT = "0,38,3,0,0,1,0,8,45545,-1,-1,-1,-1,-1,-1\n"


def refused(*arguments: str | Path) -> str:
    """What a command says that ends with exit code 2."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.output


def test_help_tells_what_the_commands_do() -> None:
    for command, words in {
        "generate": ("--xways", "--seconds", "--seed", "--out", "Example"),
        "prepare": ("--input", "--history", "--on-bad-row", "quarantine", "Example"),
    }.items():
        output = CliRunner().invoke(app, [command, "--help"]).output
        assert all(word in output for word in words), output


def test_help_needs_no_spark() -> None:
    code = (
        "import sys; from spark_ingest.cli import app; import spark_ingest.layout;"
        "assert not {'pyspark', 'py4j', 'ray'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_bad_input_ends_with_code_2_and_one_message(tmp_path: Path) -> None:
    good, out = tmp_path / "in.csv", tmp_path / "data"
    good.write_text(REPORT)
    (tmp_path / "empty.csv").touch()
    (tmp_path / "file").touch()
    missing = tmp_path / "none.csv"
    assert f"error: {missing} does not exist." in refused(
        "prepare", "--input", missing, "--out", out
    )
    assert "is empty." in refused("prepare", "--input", tmp_path / "empty.csv", "--out", out)
    assert "Missing option '--input'" in refused("prepare", "--out", out)
    told = refused("prepare", "--input", good, "--out", tmp_path / "file" / "data")
    assert "cannot be written to: Not a directory." in told
    assert "greater than or equal to 1" in refused("generate", "--xways", "0", "--out", out)


def test_without_java_both_commands_end_with_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_candidates", lambda: iter(()))
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    (tmp_path / "in.csv").write_text(REPORT)
    for command in (["generate"], ["prepare", "--input", tmp_path / "in.csv"]):
        told = refused(*command, "--out", tmp_path / "data")
        assert "Spark needs Java 17 or newer" in told
        assert "apt-get install" in told


def test_progress_is_plain_lines_away_from_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=80)
    with shown(console) as progress:
        for done in range(3):
            progress("simulating traffic", done, 2)
        progress("writing toll history", 0, 0)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split(" s  ")[1] for line in lines] == [
        "simulating traffic",
        "writing toll history",
    ]


def test_progress_is_bars_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with shown(console) as progress:
        progress("simulating traffic", 0, 0)
        progress("simulating traffic", 2, 7)
        progress("writing toll history", 0, 0)
        progress("writing toll history", 1, 1)
        progress("checking cars[final].dat", 0, 0)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "7/7" in text
    assert "1/1" in text
    assert "checking cars[final].dat" in text


def test_the_closing_table_says_what_was_written() -> None:
    meta = layout.Meta(
        kind="prepared", xways=2, seconds=120, first=0, last=119, seed=None,
        rows={"0": 12_000, "2": 60, "3": 12, "4": 48}, vehicles=4_153, history_rows=9_999,
        per_second=[1] * 60 + [201] * 60,
    )  # fmt: skip
    console = Console(file=io.StringIO(), width=100)
    data = Path("cars[/2024]/data[final]")  # no markup
    console.print(summary_table(Summary(data, meta, quarantined=3, elapsed=1.25)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for number in ("12,000", "60", "12,120", "4,153", "9,999", "201.0", "0 to 119", "3 │"):
        assert number in text
    assert f"Prepared data in {data}" in text


LIFE = """
import os, psutil, sys, tempfile
from spark_ingest.spark.session import spark_session
before = {name: os.environ.get(name) for name in ("JAVA_HOME", "PYSPARK_PYTHON")}
with spark_session("life", cores=1) as spark:
    assert spark.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3
    assert psutil.Process().children(recursive=True)
assert not psutil.Process().children(recursive=True), "processes are left"
assert not os.listdir(tempfile.gettempdir()), os.listdir(tempfile.gettempdir())
assert before == {name: os.environ.get(name) for name in before}
"""


@pytest.mark.spark
def test_spark_leaves_no_process_no_folder_and_no_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "with space"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    result = subprocess.run(
        [sys.executable, "-c", LIFE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


INTERRUPTED = """
import os, psutil, signal, threading, time
from spark_ingest.spark.session import spark_session
me = psutil.Process()
def starts():
    try:
        return any("pyspark-shell" in child.cmdline() for child in me.children())
    except psutil.Error:  # one has just ended
        return False
def interrupt():
    while not starts():
        time.sleep(0.01)
    os.kill(me.pid, signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    with spark_session("interrupted", cores=1):
        raise SystemExit("the block was entered")
except KeyboardInterrupt:
    left = me.children(recursive=True)
    for process in left:
        process.kill()
    assert not left, "processes are left"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print("ended")
"""


@pytest.mark.spark
def test_an_interrupt_while_spark_starts_leaves_no_process() -> None:
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "ended\n", "")
