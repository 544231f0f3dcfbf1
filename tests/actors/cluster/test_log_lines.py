"""Lines of logs name the job, the operator and the instance."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from raystream.actors.cluster.environment import fixed
from raystream.actors.cluster.log_lines import FORM

PROGRAM = """
import logging
from raystream.actors.cluster.log_lines import LineWriter, name_lines
logging.getLogger("before").warning("nobody is named yet")
name_lines(lambda: LineWriter("words", "count", "count/1"))
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("my.module").exception("no %s", "luck")
"""


def lines_of(program: str, **env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={"PYTHONPATH": ":".join(sys.path), **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stderr.splitlines()


def test_text() -> None:
    _, line, *traceback = lines_of(PROGRAM)
    assert line.endswith("ERROR [words count/1] my.module: no luck")
    assert traceback[-1] == "ZeroDivisionError: division by zero"


def test_json() -> None:
    _, line = lines_of(PROGRAM, **{FORM: "json"})
    found = json.loads(line)
    assert found.pop("time").endswith("Z") and "ZeroDivisionError" in found.pop("error")
    assert found == {
        "level": "ERROR",
        "logger": "my.module",
        "job": "words",
        "operator": "count",
        "instance": "count/1",
        "message": "no luck",
    }


def test_a_format_of_the_users_own_stays_and_may_name_the_instance() -> None:
    setup = """
    import logging
    logging.basicConfig(format="%(raystream_instance)s|%(message)s")
    from raystream.actors.cluster.log_lines import LineWriter, name_lines
    name_lines(lambda: LineWriter("words", "count", "count/1"))
    logging.warning("mine")
    """
    assert lines_of(setup) == ["count/1|mine"]


def test_instances_have_the_form_of_the_submitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FORM, raising=False)
    assert FORM not in fixed()
    monkeypatch.setenv(FORM, "json")
    assert fixed()[FORM] == "json"
