"""Commands that the documents name in passing exist, and take these arguments.

Blocks of the README and the guide are run by test_docs.py; what stands inside a sentence is held
against the program here, as test_ec2.py does it. Lab notes and decisions are of their day.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from tests.docs.test_ec2 import by_click

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(p for p in ROOT.glob("*.md") if p.name != "CHANGELOG.md"),  # which has old names, too
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("docs/reference/*.md"),
    *ROOT.glob("docs/internals/*.md"),
    *ROOT.glob("docs/tutorials/*.md"),
]
APPS = {
    "raystream": "raystream.cli.app",
    "lrb": "lrb.cli",
    "spark_ingest": "spark_ingest.cli",
    "benchmarks": "benchmarks.__main__",
    "benchmarks.peers": "benchmarks.peers.__main__",
}
ONE = {"benchmarks.chaos": "benchmarks.chaos.soak"}
"""Programs that are one command."""


def named(page: Path) -> list[str]:
    """The commands of a page, inside sentences and in blocks, without comments."""
    text = page.read_text(encoding="utf-8")
    blocks = [
        line for b in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in b.splitlines()
    ]
    inside = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    found = [re.sub(r"\s+", " ", re.sub(r"\s+#.*", "", c)) for c in [*blocks, *inside]]
    return sorted({c for c in found if re.match(r"(?:\w+=\S+ )*(?:python -m \w|raystream \w)", c)})


def check(command: str) -> None:
    words = [w for w in shlex.split(command) if not re.match(r"[A-Z_]+=", w)]
    program, arguments = (words[2], words[3:]) if words[0] == "python" else (words[0], words[1:])
    if program in ONE:
        app = typer.Typer()
        app.command()(importlib.import_module(ONE[program]).main)
    elif program in APPS:
        app = importlib.import_module(APPS[program]).app
    else:
        assert importlib.util.find_spec(program), command
        return
    if not arguments or "..." in arguments or "COMMAND" in arguments:
        return  # the program as such, or something is left out
    try:
        by_click(get_command(app), arguments)
    except Exception as error:  # typer has its own copy of click, so its class cannot be named
        if type(error).__name__ != "MissingParameter":  # it is spoken of, and not to be typed so
            raise


CASES = [(page, command) for page in PAGES for command in named(page)]


@pytest.mark.parametrize(
    ("page", "command"), CASES, ids=[f"{p.relative_to(ROOT)}: {c}" for p, c in CASES]
)
def test_a_command_exists(page: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    check(command)


def test_what_is_no_command_is_refused() -> None:
    for wrong in ("python -m benchmarks restor", "raystream run x:y --copy 2"):
        with pytest.raises(Exception, match=r"no|No"):
            check(wrong)
