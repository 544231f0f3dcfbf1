"""A job whose logs are read by the tests beside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raystream.actors.worker.shell import Shell
from raystream.testing import Collect
from tests.actors.helpers.shells import Shells, first_of, shells_of
from tests.flows import running, word_flow


@pytest.fixture(scope="module")
def done() -> Iterator[Shells]:
    """A job that has ended and still serves its logs, trimmed up to its first checkpoint."""
    with shells_of(word_flow(Collect(), running), checkpoint_every=50) as shells:
        shells.start()
        shells.until(lambda: all(s.machine.ended for s in shells.shells))
        for shell in shells.shells:
            shell.commit(50, 50)
        shells.until(lambda: first_of(shells.of("rows")[0]) > 50)
        yield shells


@pytest.fixture
def source(done: Shells) -> Shell:
    return done.of("rows")[0]
