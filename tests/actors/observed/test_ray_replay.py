"""A job that ran on real Ray while its processes were killed, replayed in one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import raystream as rs
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from raystream.local.probe import Probe
from raystream.local.replay import Replay, replay_plan
from tests.actors.helpers import parts
from tests.gates import Gate

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]


@pytest.mark.long
def test_what_ran_under_kills_is_replayed_to_the_bit(tmp_path: Path) -> None:
    out, gate = tmp_path / "out", Gate(tmp_path / "gate")
    out.mkdir()
    kill = parts.Killer(gate, "sessions/0", "ledger/0", "lines/0")
    parts.many(out, speed=10.0, gate=gate).run(
        cluster="auto",
        on_progress=kill,
        checkpoint_every=10,
        instances={"sessions": 2, "lines": 2},
        spares=1,
        durable=tmp_path / "cuts",
        keep=100,
    )
    assert not kill.victims
    saves = Saves(open_store(tmp_path / "cuts"), "many")
    saved = saves.kept()[-1]
    expected = [r for r in parts.records(out) if r[0] > saved.checkpoint]
    assert len({kind for _, kind, _ in expected}) > 2
    for looked in (False, True):
        plan, notes = replay_plan(parts.many(tmp_path, speed=10.0, gate=gate), saves, saved)
        assert not notes
        probe = Probe()
        if looked:
            probe.put_into(plan)
        with Replay(plan, saves, before=probe.before) as replay:
            replay.advance(rs.NEVER)
            made = [
                (output.epoch, type(record).__name__, json.loads(json.dumps(record)))
                for output in replay.taken()
                for record in output.records
            ]
        assert made == expected
