"""The head of a cluster is killed under a job, and begins again."""

from __future__ import annotations

import json

import pytest

from tests.actors.helpers.heads import program
from tests.gates import LIMIT_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_while_the_head_is_away_data_flows_checkpoints_are_committed_and_nobody_dies() -> None:
    with program("-m", "tests.actors.helpers.head_story") as story:
        said, _ = story.communicate(timeout=2 * LIMIT_SECONDS)
    assert story.returncode == 0, said
    told = json.loads(said.splitlines()[-1])
    assert told["answers"] > 0 and told["wrong"] == 0
    assert told["recoveries"] == 0 and told["lost"] == 0
    assert told["committed"] >= 3, "commits went on while it was away"
