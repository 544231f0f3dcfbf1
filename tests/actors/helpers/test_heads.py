"""A head that does not answer tells what it said last."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.actors.helpers import heads


def test_what_a_head_said_last_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = tmp_path / "session_latest" / "logs"
    logs.mkdir(parents=True)
    (tmp_path / "head.log").write_text("".join(f"line {i}\n" for i in range(100)))
    (logs / "raylet.err").write_text("it ran out of memory\n")
    (logs / "gcs_server.err").write_text("")
    heads._tell_logs(tmp_path)
    shown = capsys.readouterr().out
    assert "line 99" in shown and "line 60\n" in shown and "line 59" not in shown
    assert "the end of raylet.err\nit ran out of memory" in shown
    assert "gcs_server" not in shown
    heads._tell_logs(tmp_path / "nowhere")


def test_a_head_that_ends_at_once_tells_why(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(AssertionError, match="the head does not answer"),
        heads.started_head("--no-such-option"),
    ):
        pass
    assert "---- the end of head.log" in capsys.readouterr().out
