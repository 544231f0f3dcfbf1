"""`check_operator` lets sound operators pass and finds those that are not, with a story."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import raystream as rs
from lrb.query.operators import Vehicles
from lrb.query.records import Report
from raystream.errors import OperatorError, StateError
from raystream.testing import check_operator
from tests.dataflow.shapes import chain, chain_seen, double, no_state, pass_on, tell, turn, watch
from tests.flows import (
    CompiledLedger,
    CountWords,
    Ledger,
    Order,
    Payment,
    SessionCount,
    SlidingCount,
    Word,
    events,
    lines,
    running,
    running_batch,
    split,
)
from tests.lrb.random_traffic import random_traffic

LINES = list(lines(1, splits=1)[0])
WORDS = [Word(line.time, w) for line in LINES for w in line.text.split()]
ORDERS = list(events(1, Order, splits=1)[0])
BOTH = sorted([*ORDERS, *events(2, Payment, splits=1)[0]], key=lambda e: e.time)
SEEN = [r for o in ORDERS for r in tell(o)]


def shuffled(records: list[Any]) -> list[Any]:
    return random.Random(3).sample(records, len(records))


@pytest.mark.parametrize(
    ("op", "records"),
    [
        (split, LINES),
        (running, WORDS),
        (running_batch, WORDS),
        (CountWords(), WORDS),
        (CountWords(at_least=2), shuffled(WORDS)),
        (SlidingCount(), shuffled(WORDS)),
        (SessionCount(), shuffled(WORDS)),
        (Ledger(), BOTH),
        (CompiledLedger(), BOTH),
        (CompiledLedger(), shuffled(BOTH)),
        (tell, ORDERS),
        (watch, ORDERS),
        (chain, SEEN),
        (turn, [r for r in SEEN if type(r).__name__ == "Seen"]),
        (no_state, [r for r in SEEN if type(r).__name__ == "Seen"]),
        (double, [r for r in SEEN if type(r).__name__ == "Seen"]),
        (pass_on, [r for r in SEEN if type(r).__name__ == "Seen"]),
        (chain_seen, [r for r in SEEN if type(r).__name__ == "Seen"]),
    ],
    ids=lambda v: getattr(v, "__name__", type(v).__name__) if not isinstance(v, list) else "",
)
def test_sound_operators_pass(op: Any, records: list[Any]) -> None:
    check_operator(op, records, examples=12)


def test_linear_road_passes() -> None:
    rows, _ = random_traffic(seed=1, roads=1, cars=12)
    reports = [Report(*row[1:9]) for row in rows if row[0] == 0]
    reports.sort(key=lambda report: report.time)
    check_operator(Vehicles(), reports, examples=4)


# ---------------------------------------------------------------- operators that are not sound


class Sale(NamedTuple):
    time: int
    shop: int
    euros: float


class Total(NamedTuple):
    shop: int
    euros: float


class Sum(rs.State):
    euros: float = 0.0


SALES = [Sale(i, i % 3, 0.1 * (i % 7) + 1e9 * (i % 2)) for i in range(40)]


@rs.operator(key="shop")
@dataclass(frozen=True)
class InSelf:
    """Keeps what it knows in itself."""

    seen: dict[int, int] = field(default_factory=dict)

    def process(self, sale: Sale, total: Sum) -> Iterator[Total]:
        self.seen[sale.shop] = self.seen.get(sale.shop, 0) + 1
        yield Total(sale.shop, float(self.seen[sale.shop]))


COUNTER = itertools.count()


@rs.operator(key="shop")
def in_module(sale: Sale, total: Sum) -> Iterator[Total]:
    yield Total(sale.shop, float(next(COUNTER)))


@rs.operator(key="shop")
def by_chance(sale: Sale, total: Sum) -> Iterator[Total]:
    total.euros += random.random()
    yield Total(sale.shop, total.euros)


@rs.operator()
def by_chance_stateless(sale: Sale) -> Iterator[Total]:
    if random.random() < 0.5:
        yield Total(sale.shop, sale.euros)


@rs.operator()
def running_sum_of_batch(sales: rs.Batch[Sale]) -> rs.Batch[Total]:
    """Sums over the whole batch: what else is in it changes the result."""
    return rs.Batch(Total, {"shop": sales["shop"], "euros": np.cumsum(sales["euros"])})


@rs.operator(key="shop")
def float_sum_of_batch(sales: rs.Batch[Sale], rows: rs.Rows[Sum]) -> rs.Batch[Total]:
    """A sum per key and batch, added to the state: floats are rounded where the batch is cut."""
    add = np.bincount(rows.index, sales["euros"], minlength=len(rows))
    rows["euros"] += add
    last = len(sales) - 1 - np.unique(rows.index[::-1], return_index=True)[1]
    kept = np.sort(last)
    return rs.Batch(
        Total,
        {"shop": sales["shop"][kept], "euros": rows["euros"][rows.index[kept]]},
        origin=kept,
    )


@rs.operator(key="shop")
def float_sum_each(sales: rs.Batch[Sale], rows: rs.Rows[Sum]) -> rs.Batch[Total]:
    """A running sum that says something for each record: only its rounding depends on the batch."""
    euros = np.empty(len(sales))
    for i in range(len(rows)):
        mine = rows.index == i
        euros[mine] = rows["euros"][i] + np.cumsum(sales["euros"][mine])
        rows["euros"][i] = rows["euros"][i] + sales["euros"][mine].sum()
    return rs.Batch(Total, {"shop": sales["shop"], "euros": euros})


@pytest.mark.parametrize(
    ("op", "complaint"),
    [
        (InSelf(), "InSelf is not deterministic"),
        (in_module, "in_module is not deterministic"),
        (by_chance, "by_chance is not deterministic"),
        (by_chance_stateless, "by_chance_stateless is not deterministic"),
        (running_sum_of_batch, "running_sum_of_batch (is not deterministic|depends on where)"),
        (float_sum_of_batch, "float_sum_of_batch depends on where epochs are cut"),
        (float_sum_each, "float_sum_each depends on where epochs are cut"),
    ],
    ids=lambda v: v.partition(" ")[0] if isinstance(v, str) else "",
)
def test_unsound_operators_are_found(op: Any, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_operator(op, SALES)


def test_the_story_can_be_repeated() -> None:
    with pytest.raises(AssertionError) as found:
        check_operator(float_sum_each, SALES)
    story = str(found.value)
    seed = int(story.partition("seed=")[2].partition(")")[0])
    with pytest.raises(AssertionError) as again:
        check_operator(float_sum_each, SALES, seed=seed)
    assert str(again.value) == story
    lines = story.split("\n")
    assert lines[0] == f"float_sum_each depends on where epochs are cut (seed={seed})"
    assert lines[1].startswith("  first:  epochs of ")
    assert lines[2].startswith("  second: epochs of ")
    assert lines[3].startswith("    first alone: Total(shop=")
    assert lines[4].startswith("    second alone: Total(shop=")
    assert "recut=False" in lines[5]


def test_the_first_difference_is_told() -> None:
    with pytest.raises(AssertionError) as found:
        check_operator(InSelf(), SALES, seed=5)
    assert "  in epoch " in str(found.value)
    assert "is not Total(shop=" in str(found.value)


def test_what_means_its_batches_may_say_so() -> None:
    check_operator(float_sum_of_batch, SALES, recut=False)
    check_operator(float_sum_each, SALES, recut=False)


def test_order_between_types_is_not_promised_over_other_epochs() -> None:
    check_operator(chain, SEEN)
    with pytest.raises(AssertionError, match="chain depends on where epochs are cut"):
        check_operator(chain, SEEN, recut=True)


class Odd(rs.State):
    n: rs.Int8 = 0
    items: list[int] = rs.field(factory=list)


@rs.operator(key="shop")
def grows(sale: Sale, odd: Odd) -> Iterator[Total]:
    odd.n += 13
    yield Total(sale.shop, 1.0)


def test_state_that_cannot_be_stored_is_found() -> None:
    with pytest.raises(
        StateError, match=r"Odd\.n of key \d holds 1\d\d, which does not fit"
    ) as error:
        check_operator(grows, SALES, examples=50)
    assert "grows fails where another way to run it does not (seed=" in error.value.__notes__[0]


@rs.operator(key="shop")
def raises(sale: Sale, total: Sum) -> Iterator[Total]:
    yield Total(sale.shop, 1 / (sale.time - 7))


def test_an_operator_that_raises_raises() -> None:
    with pytest.raises(OperatorError, match="raises raised ZeroDivisionError") as error:
        check_operator(raises, SALES)
    assert not getattr(error.value, "__notes__", [])


def test_pytest_is_not_needed() -> None:
    code = (
        "import sys\n"
        "from raystream.testing import check_operator, OperatorHarness\n"
        "from tests.flows import running, Word\n"
        "check_operator(running, [Word(1, 'a'), Word(2, 'b')], examples=1)\n"
        "assert not {'pytest', 'hypothesis', 'ray'} & set(sys.modules)\n"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


@rs.operator(key="word")
class Lengths:
    """Looks words up in a table, of which it has the part of its key groups, as in the guide."""

    def load(self, keys: rs.KeyRange) -> dict[str, int]:
        words = sorted({w.word for w in WORDS})
        mine = rs.key_groups(words)
        return {w: len(w) for w, g in zip(words, mine, strict=True) if keys.lo <= g < keys.hi}

    def process(self, words: rs.Batch[Word], lengths: dict[str, int]) -> rs.Batch[Word]:
        found = words["word"].to_pylist()
        return rs.Batch(Word, {"time": [lengths[w] for w in found], "word": found})


def test_reference_data_is_of_as_many_key_groups_as_are_counted() -> None:
    check_operator(Lengths(), WORDS, examples=5)


def test_one_key_group_is_enough() -> None:
    check_operator(running, WORDS, examples=5, key_groups=1)
