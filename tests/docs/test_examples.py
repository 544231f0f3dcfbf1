"""Every example is short, and prints what its docstring says."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
LINES_MAX = 80
NEEDED = {"embed_texts": "wordllama"}
"""Packages that an example needs and no part of raystream does."""
ON_RAY = {"ask_serve": "tests/actors/world/test_ray_serve.py"}
"""Examples that need Ray to print what they say."""


def _name(path: Path) -> str:
    return path.stem


def printed(path: Path) -> list[str]:
    """The lines below `It prints:` in the docstring."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    _, _, below = doc.partition("\nIt prints:\n\n")
    return [line.strip() for line in below.partition("\n\n")[0].splitlines()]


@pytest.mark.parametrize("path", EXAMPLES, ids=_name)
def test_an_example_is_short(path: Path) -> None:
    assert path.read_text(encoding="utf-8").count("\n") <= LINES_MAX


def prints_what_it_says(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == printed(path)


HERE = [p for p in EXAMPLES if printed(p) and p.stem not in ON_RAY]


@pytest.mark.parametrize("path", HERE, ids=_name)
def test_an_example_prints_what_it_says(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if (needed := NEEDED.get(path.stem)) is not None:
        pytest.importorskip(needed)
    prints_what_it_says(path, capsys)


def test_the_example_of_tests_passes() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "examples/testing_an_operator.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "10 passed" in done.stdout


def test_every_example_is_tried() -> None:
    elsewhere = {
        "changes_to_files": "tests/io/capture/test_reading.py",
        "changes_to_iceberg": "tests/io/capture/test_lake_example.py",
        "folder_to_kafka": "tests/io/kafka/test_folder_example.py",
        "kafka_join": "tests/io/kafka/test_kafka_sink.py",
        "kafka_to_postgres": "tests/io/databases/test_join_example.py",
        "testing_an_operator": "tests/docs/test_examples.py",
    }
    assert {p.stem for p in EXAMPLES if not printed(p)} == {*elsewhere}
    for name, path in (elsewhere | ON_RAY).items():
        assert name in (ROOT / path).read_text(encoding="utf-8")
