"""The pool on a real autoscaler, whose machines are processes here."""

from __future__ import annotations

import pytest

from raystream.controller.elastic.pool import OPERATOR_NODE
from tests.actors.helpers.heads import autoscaled_head, heard, program, token
from tests.actors.helpers.metadata import fake_metadata
from tests.gates import LIMIT_SECONDS

AT = 4102444800.0
NOTICE = '{"action": "terminate", "time": "2100-01-01T00:00:00Z"}'

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_nodes_come_as_asked_go_when_given_back_and_are_replaced_when_they_end() -> None:
    offers = {"CPU": 1, OPERATOR_NODE: 1}
    with (
        token() as env,
        autoscaled_head(offers, env, workers_max=3, idle_seconds=3) as head,
        program("-m", "tests.actors.helpers.pool_story", "long", head.address, env=env) as story,
        fake_metadata() as metadata,
    ):
        heard(story, "filled")
        heard(story, "refilled")
        heard(story, "shrunk")
        (taken,) = heard(story, "watched")["nodes"]
        metadata.entries["instance-id"] = taken  # as which a node of this autoscaler is started
        metadata.entries["spot/instance-action"] = NOTICE
        watch = ("--address", head.address, "--metadata", metadata.url)
        with program("-m", "raystream.actors.cluster.spot", *watch, env=env) as watcher:
            assert watcher.wait(LIMIT_SECONDS) == 0
            assert watcher.stdout is not None
            assert f"Ray drains node {taken}" in watcher.stdout.read()
        drained = heard(story, "drained")
        assert (drained["node"], drained["deadline"], drained["missing"]) == (taken, AT, 0)
        assert story.wait(LIMIT_SECONDS) == 0
