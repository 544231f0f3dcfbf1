"""A control stream on real Ray: rules are pushed by hand while instances of the operator die and
move."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import raystream as rs
from raystream.cli.app import app
from tests.actors.helpers import parts
from tests.flows import Tally, Word, split
from tests.gates import Gate, Slow
from tests.io.test_push import TOKEN, free_port

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]


class Ruling(NamedTuple):
    number: int


class Ruled(NamedTuple):
    word: str
    n: int
    epoch_rules: int


class Rules(rs.State):
    digest: int = 0


@rs.operator(key="word")
class Judge:
    def control(self, rule: Ruling, rules: Rules) -> None:
        rules.digest = rules.digest * 10 + rule.number

    def process(self, word: Word, tally: Tally, rules: Rules) -> Iterator[Ruled]:
        tally.n += 1
        yield Ruled(word.word, tally.n, rules.digest)


class Steps(parts.Killer):
    """Pushes rule 1, kills an instance of the operator, pushes rule 2, scales it, pushes rule 3 and
    ends the rules; each step when the one before is through."""

    def __init__(self, gate: Gate, *victims: str) -> None:
        super().__init__(gate, *victims, samples=2)
        self.said: list[str] = []
        self.codes: list[int] = []
        self._pushed = 0

    def __call__(self, sample: Any) -> None:
        if self._pushed == 0 and sample.committed.epoch:
            self._rule(1)
        if self._pushed:
            super().__call__(sample)
        if self._pushed == 1 and not self.victims:
            self._rule(2)
            self._ask("scale", "judged", "judge=3")
            self._rule(3, "--end")

    def _rule(self, number: int, *more: str) -> None:
        self._pushed = number
        rule = json.dumps({"number": number})
        self._ask("push", "judged", "rules", "--json", rule, *more)

    def _ask(self, *command: str) -> None:
        result = CliRunner().invoke(app, [*command])
        self.codes.append(result.exit_code)
        self.said += (result.stdout + result.stderr).splitlines()


def test_all_instances_have_all_rules_from_the_same_epoch_on(tmp_path: Path) -> None:
    steps = Steps(Gate(tmp_path / "gate"), "judge/1")
    (tmp_path / "out").mkdir()
    lines = Slow(60, steps.gate)
    flow = rs.Flow("judged")
    epochs = rs.by_arrival(seconds=0.05)
    words = flow.source(lines, epochs=epochs, name="lines").through(split)
    pushed = rs.io.push(Ruling, port=free_port(), lanes=1, token=TOKEN)
    rules = flow.source(pushed, epochs=epochs, name="rules")
    judged = words.through(rs.controlled(Judge(), by=rules), name="judge")
    judged.to(parts.Files(tmp_path / "out"))
    report = flow.run(
        cluster="auto",
        on_progress=steps,
        instances={"judge": 2, "lines": 1},
        checkpoint_seconds=0.5,
        spares=3,
    )
    assert steps.codes == [0, 0, 0, 0], steps.said
    assert [name for r in report.recoveries for name in r.gone] == ["judge/1"]
    assert [m.failed for m in report.moved] == [""]
    by_epoch: dict[int, set[int]] = {}
    counted: dict[str, list[int]] = {}
    for epoch, _, (word, n, digest) in parts.records(tmp_path / "out"):
        by_epoch.setdefault(epoch, set()).add(digest)
        counted.setdefault(word, []).append(n)
    assert all(len(digests) == 1 for digests in by_epoch.values())
    seen = [digests.pop() for _, digests in sorted(by_epoch.items())]
    assert sorted(seen) == seen and {0, 1, 12} <= {*seen} <= {0, 1, 12, 123}
    assert sorted(word for word, ns in counted.items() for _ in ns) == sorted(lines.words())
    assert all(ns == [*range(1, len(ns) + 1)] for ns in counted.values())
