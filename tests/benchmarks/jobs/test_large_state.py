"""A process with state is killed, at a tiny size: it comes back, and every count is right."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.jobs import large_state
from benchmarks.jobs.large_state import table


@pytest.mark.ray
@pytest.mark.long
def test_a_process_with_state_comes_back(runtime: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_state, "SPARES_SECONDS", 8.0)
    result = CliRunner().invoke(app, ["state", "--megabytes", "2", "--kills", "1", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["kills"] == len(found["back_ms"]) == len(found["replace_ms"]) == 1
    assert found["megabytes"] == pytest.approx(2, rel=0.05)
    assert found["usual_p99_ms"] > 0
    assert table([found]).row_count == 1
