"""docs/replay.md: its commands, one after the other, print what the page says."""

from __future__ import annotations

import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raystream.cli.app import app
from tests.docs.test_docs import blocks

PAGE = "docs/replay.md"
HOME = "/home/ann"
"""The folder of the page."""


def test_the_page_is_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    found = blocks(PAGE)
    old, new = ("\n".join(b.lines) + "\n" for b in found if b.language == "python")
    (tmp_path / "shop.py").write_text(old, encoding="utf-8")
    (tmp_path / "new").mkdir()
    changed, times = re.subn(r"(?s)@rs\.operator.*?\n\n\n", lambda _: f"{new}\n\n", old)
    assert times == 1
    (tmp_path / "new" / "shop.py").write_text(changed, encoding="utf-8")
    tried = 0
    for command, after in pairwise(found):
        if command.language != "sh":
            continue
        tried += 1
        (line,) = command.lines
        program, *arguments = shlex.split(line.replace(HOME, str(tmp_path)))
        said = [text.removeprefix("(Pdb) ") for text in after.lines if text.startswith("(Pdb) ")]
        result = CliRunner().invoke(app, arguments, input="".join(f"{text}\n" for text in said))
        assert program == "raystream" and after.language == "text"
        told = re.sub(r"\(Pdb\) .*(\n|$)", "(Pdb) ", "\n".join(after.lines))
        assert told.rstrip() in result.output.replace(str(tmp_path), HOME), result.output
    sys.modules.pop("shop", None)
    assert tried == 5
