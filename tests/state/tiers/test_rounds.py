"""A table of which rows leave bit by bit, against a dict."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import raystream as rs
from raystream.schema.fields import field_of
from raystream.schema.state import state_schema
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.row_shape import RowShape
from raystream.state.tables.backend import WHOLE
from raystream.state.tables.structured_table import StructuredTable
from raystream.state.tiers import object_tier, rounds, structured_tier, tiered_table
from raystream.state.tiers.object_tier import HotRows, ObjectTier
from raystream.state.tiers.structured_tier import StructuredTier


class Tally(rs.State):
    n: int = 0


GROUPS, KEYS = 8, 60
KINDS = {"numbers": int, "text": str}


def shape_of(kind: type) -> RowShape:
    return RowShape((field_of("Tally", "key", kind, state=False),), state_schema(Tally))


class Columns:
    """A tier of structured rows, by keys that are numbers or text."""

    def __init__(self, kind: type, folder: Path, memory: int) -> None:
        shape = shape_of(kind)

        def make() -> StructuredTable:
            return StructuredTable(shape.state, keys=1, groups=GROUPS, shape=shape)

        self.kind = kind
        self.tier = StructuredTier(make, folder, "tally", memory)

    def _columns(self, keys: list[Any]) -> list[Any]:
        return [pa.array(keys) if self.kind is str else np.array(keys, np.int64)]

    def touch(self, keys: list[Any], epoch: int) -> None:
        self.tier.bring_keys(self._columns(keys))
        hot = self.tier.hot
        slots, _ = hot.slots_of(self._columns(keys), epoch)
        hot.write(slots, {"n": hot.read(slots, "n") + 1}, epoch)

    def remove(self, keys: list[Any], epoch: int) -> None:
        self.tier.bring_keys(self._columns(keys))
        slots = self.tier.hot.find(self.tier.hot.key_numbers(self._columns(keys)))
        assert (slots >= 0).all()
        self.tier.hot.remove(slots, epoch)


class Objects:
    """A tier of Python rows."""

    kind = int

    def __init__(self, folder: Path, memory: int) -> None:
        self.tier = ObjectTier(HotRows(shape_of(int), GROUPS), folder, "tally", memory)

    def touch(self, keys: list[Any], epoch: int) -> None:
        self.tier.bring_keys(keys)
        for key in keys:
            row: Any = self.tier.hot.touch(key, epoch)[0]
            row.n += 1

    def remove(self, keys: list[Any], epoch: int) -> None:
        self.tier.bring_keys(keys)
        for key in keys:
            self.tier.hot.remove(key, epoch)


class Model:
    """A tier and a dict of the same rows."""

    def __init__(self, of: Columns | Objects, rng: random.Random) -> None:
        self.of, self.rng, self.tier = of, rng, of.tier
        self.rows: dict[Any, tuple[int, int]] = {}
        """By key the count, and the epoch that touched the row last."""
        self.gone: dict[Any, int] = {}
        self.numbered = 0
        """How often text was numbered again."""

    def some(self) -> list[Any]:
        some = self.rng.sample(range(KEYS), self.rng.randrange(1, 9))
        return [self.of.kind(k) for k in some]

    def step(self, epoch: int) -> None:
        """Touch rows, remove rows, and let some leave."""
        tier, keys = self.tier, self.some()
        tier.epoch = epoch
        self.of.touch(keys, epoch)
        for key in keys:
            self.rows[key] = self.rows.get(key, (0, 0))[0] + 1, epoch
        if removed := [k for k in self.some() if k in self.rows]:
            self.of.remove(removed, epoch)
            for key in removed:
                del self.rows[key]
                self.gone[key] = epoch
        tier.note_removals()
        before = tier.hot
        tier.shrink()
        self.numbered += tier.hot is not before

    def check(self, base: int, upto: int) -> None:
        """A checkpoint has the rows that were touched after `base`, and what has gone since."""
        _, rows, gone = next(self.tier.capture(CheckpointRequest(base), upto).parts(WHOLE))
        found = dict(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))
        assert found == {k: n for k, (n, epoch) in self.rows.items() if epoch > base or not base}
        removed = {k for k, epoch in self.gone.items() if epoch > base and k not in self.rows}
        assert sorted(gone.column(0).to_pylist()) == sorted(removed if base else ())
        assert len(self.tier) == len(self.rows) == self.tier.count_by_group().sum()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["numbers", "text", "objects"])
def test_it_holds_what_a_dict_holds(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(rounds, "STRETCH_BYTES", 1)
    monkeypatch.setattr(structured_tier, "LOOKED_AT", 4)
    monkeypatch.setattr(object_tier, "LOOKED_AT", 4)
    monkeypatch.setattr(structured_tier, "TEXTS_MOST", 1)
    monkeypatch.setattr(rounds, "BEGIN_SHARE", 0.0)
    monkeypatch.setattr(rounds, "LEAVE_LEAST", 0.0)
    monkeypatch.setattr(rounds.Rounds, "_pace", lambda *_: rng.randrange(1, 12))
    memory = rng.choice([600, 3000, 1 << 20])
    of = Objects(tmp_path, memory) if kind == "objects" else Columns(KINDS[kind], tmp_path, memory)
    model = Model(of, rng)
    base = 0
    for epoch in range(1, 150):
        model.step(epoch)
        if rng.random() < 0.3:
            model.check(0, epoch)
            model.check(base, epoch)
            if rng.random() < 0.5:
                base = epoch
                model.tier.settle(base)
    assert model.tier.brought > 0
    assert bool(model.numbered) == (kind == "text")


def test_an_epoch_does_a_part_of_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows leave as come, with few of them at a time, and memory is never full."""
    monkeypatch.setattr(rounds, "STRETCH_BYTES", 1 << 12)
    monkeypatch.setattr(StructuredTier, "step_rows", 100)
    tier, rows = Columns(int, tmp_path, 2_000_000).tier, 200
    most, left, before = 0, list[int](), 0
    for epoch in range(1, 500):
        tier.epoch = epoch
        keys = [np.arange(epoch * rows, (epoch + 1) * rows)]
        tier.bring_keys(keys)
        tier.hot.write(tier.hot.slots_of(keys, epoch)[0], {}, epoch)
        tier.note_removals()
        most = max(most, len(tier.hot))
        tier.shrink()
        left.append(tier.cold_count - before)
        before = tier.cold_count
    row_bytes = tier.hot.nbytes / tier.hot.store.used
    assert most * row_bytes <= 2_000_000 * tiered_table.HOT_SHARE
    assert sum(left) > 200 * rows
    assert max(left) < 10 * rows  # a round has about 10,000
