"""A job that finds its own size on a real autoscaler, whose machines are processes here."""

from __future__ import annotations

from pathlib import Path

import pytest

from raystream.controller.elastic.pool import OPERATOR_NODE
from tests.actors.helpers.elastic_story import NODES_MAX
from tests.actors.helpers.heads import autoscaled_head, heard, program, token

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.long
def test_a_job_grows_under_load_and_shrinks_after_it(tmp_path: Path) -> None:
    """It asks for nodes, splits what is a bottleneck, merges it again and gives nodes back."""
    offers = {"CPU": 1, OPERATOR_NODE: 1}
    with (
        token() as env,
        autoscaled_head(offers, env, workers_max=3, idle_seconds=3) as head,
        program(
            "-m", "tests.actors.helpers.elastic_story", head.address, str(tmp_path), env=env
        ) as story,
    ):
        done = heard(story, "done")
    assert done["right"], done
    assert done["operators"][0] == "count"
    assert max(done["sizes"]) > 0, done  # split
    assert min(done["sizes"]) < 0, str(done)  # merged
    assert any("above 15%" in b for b in done["because"]), done
    most = max(done["nodes"])
    assert most == NODES_MAX, str(done)  # the pool was filled up behind what was taken
    peak = done["nodes"].index(most)
    assert min(done["nodes"][peak:]) < most, str(done)  # given back
