"""mypy --strict and pyright strict: silent on what is right, and not on what is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from raystream.api.nodes import OperatorNode

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FILES = [
    HERE / f"{name}.py" for name in ("operators", "batches", "connectors", "forms", "rows", "wrong")
]
Place = tuple[str, int]

_MARK = re.compile(r"#\s*no(?::\s*(?P<checker>\w+))?$")


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy() -> dict[Place, str]:
    """Errors by place. Only those of these files: the engine itself is checked elsewhere, with the
    same settings, so that what is found about it there is not found once more. They are those of
    `--strict` but for `warn_return_any`, which each of these files has."""
    out = run(
        "mypy",
        "--explicit-package-bases",
        "--no-error-summary",
        "--no-color-output",
        *FILES,
    )
    found = re.findall(r"^(\S+?):(\d+): error: (.*)$", out, re.MULTILINE)
    return {
        (Path(file).name, int(line)): text for file, line, text in found if (ROOT / file) in FILES
    }


def pyright() -> dict[Place, str]:
    out = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, *FILES))
    return {
        (Path(d["file"]).name, d["range"]["start"]["line"] + 1): d["message"]
        for d in out["generalDiagnostics"]
        if d["severity"] != "information"
    }


def marked(checker: str) -> set[Place]:
    return {
        (file.name, n)
        for file in FILES
        for n, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (mark := _MARK.search(line)) and mark["checker"] in (None, checker)
    }


def rejected(checker: str) -> dict[Place, str]:
    if checker not in _FOUND:
        _FOUND[checker] = mypy() if checker == "mypy" else pyright()
    return _FOUND[checker]


_FOUND: dict[str, dict[Place, str]] = {}


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_what_is_marked_is_rejected_and_nothing_else(checker: str) -> None:
    errors = {p: text for p, text in rejected(checker).items() if p[0] != "rows.py"}
    expected = marked(checker)
    surplus = {f"{p[0]}:{p[1]}": text for p, text in errors.items() if p not in expected}
    assert not surplus
    missed = sorted(expected - set(errors))
    assert not missed, f"{checker} accepts these lines: {missed}"
    assert len(expected) > 40


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_rows_can_be_made_as_declared(checker: str) -> None:
    assert not [p for p in rejected(checker) if p[0] == "rows.py"]


def test_the_forms_run() -> None:
    """They are not only well typed: every operator of the files is accepted in a flow."""
    from tests.typing import batches, forms, operators

    batches.batches()
    nodes = [n for n in forms.build().nodes if isinstance(n, OperatorNode)]
    wired = {n.spec.name for n in nodes if not n.spec.waits}
    things = {**vars(operators), **vars(batches)}
    declared = {name for name, thing in things.items() if hasattr(thing, "__raystream__")}
    assert wired == declared
    assert len(declared) == 25
