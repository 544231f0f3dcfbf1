"""Other versions of some of the simulator's flows, for schedules in which a job is upgraded.

Each has the same streams as the first version, and each of the two can go on with the other's rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import raystream as rs
from raystream.simulation import flows
from raystream.simulation.flows import (
    Account,
    Balance,
    CountedWord,
    Missed,
    Nth,
    Order,
    Owed,
    Payment,
    Word,
    WordLine,
    balanced,
)
from raystream.simulation.processes import asking_flows, control_flows
from raystream.simulation.processes.asking_flows import Asset, NoQuote, Quote, Sum
from raystream.simulation.processes.control_flows import (
    Bill,
    Rebates,
    Sale,
    Turnover,
    controlled,
)
from raystream.testing.collect import Collect


class TenthsTally(rs.State):
    """Another class than `rows.Tally`: the words are counted in another unit."""

    tenths: int = 0
    seen: list[int] = rs.field(factory=list)
    first: int | None = None

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> TenthsTally:
        return cls(tenths=10 * old["n"], seen=old["seen"], first=None)


@rs.operator()
def split(line: WordLine) -> Iterator[Word]:
    for word in line.text.split()[::-1]:
        yield Word(line.time, word)


@rs.operator(key="word")
def count(word: Word, tally: TenthsTally) -> Iterator[Nth]:
    tally.tenths += 10
    tally.first = word.time if tally.first is None else tally.first
    tally.seen = [*tally.seen[-2:], word.time]
    yield Nth(word.word, tally.tenths * 100 + sum(tally.seen) + tally.first)
    if tally.tenths >= 40:
        rs.forget(tally)


@rs.operator()
def short(nth: Nth) -> Iterator[Nth]:
    yield Nth(nth.word, nth.n % 7)


class OtherCount:
    """Also says how many words there were in tenths, so that rows of the other version count."""

    def process(self, word: Word, tally: TenthsTally) -> None:
        tally.tenths += 10
        tally.seen.append(word.time)

    def close(self, key: str, window: rs.Window, tally: TenthsTally) -> Iterator[CountedWord]:
        yield CountedWord(key, window.start, window.end, tally.tenths + len(tally.seen))


@rs.operator(key="word", window=rs.tumbling(seconds=0.6))
class OtherSlots(OtherCount):
    """Windows of a flow that counts milliseconds."""


@rs.operator(key="word", window=rs.tumbling(seconds=6))
class OtherWindows(OtherCount):
    """Windows of a flow that counts seconds."""


class Sums(rs.State):
    """Another class than `rows.Digest`, with a field more."""

    digest: int = 7
    n: int = 0
    latest: int = 0

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> Sums:
        return cls(digest=old["digest"] + 1, n=old["n"], latest=old["n"])


@rs.operator(key="word")
def digest(words: rs.Batch[Word], rows: rs.Rows[Sums]) -> rs.Batch[Nth]:
    found, digests, latest = [], rows["digest"], rows["latest"]
    for time, row in zip(words["time"].tolist(), rows.index.tolist(), strict=True):
        digests[row] = (digests[row] * 37 + time + latest[row]) % 1_000_003
        latest[row] = time
        found.append(int(digests[row]))
    rows["n"] += rows.counts
    return rs.Batch(Nth, {"word": words["word"], "n": found})


@rs.operator(key="user")
def balance(orders: rs.Batch[Order], rows: rs.Rows[Balance]) -> rs.Batch[Owed]:
    """With the same rows."""
    return balanced(orders, rows, 37)


@rs.operator(key="user", order_by="time", end_rings=3)
class OtherRemind:
    """Rings at other times. Alarms that were set before stay."""

    def process(self, order: Order, account: Account) -> Iterator[Owed]:
        account.owed -= order.amount
        account.orders += 1
        account.due = order.time + 3
        yield Owed(order.time, order.user, account.owed)

    def timer(self, key: int, time: int, account: Account) -> Iterator[Missed]:
        yield Missed(key, time, account.owed + account.orders)
        if account.orders % 2:
            account.due = time + 4


@rs.operator(key="user", order_by="time")
class OtherSettle:
    def process(self, event: Order | Payment, account: Account) -> Iterator[Owed]:
        account.owed += 2 * event.amount if isinstance(event, Order) else -event.amount
        account.due = event.time + 4
        yield Owed(event.time, event.user, account.owed)

    def timer(self, key: int, time: int, account: Account) -> Iterator[Missed]:
        yield Missed(key, time, -account.owed)


@rs.operator(key="name")
class OtherDiscount(control_flows.Discount):
    """Other code for keys; the row of the control stream goes on."""

    def process(self, sale: Sale, turnover: Turnover, rebates: Rebates) -> Iterator[Bill]:
        turnover.amount += sale.amount * (200 - rebates.of.get(sale.name, 0))
        yield Bill(sale.name, turnover.amount, rebates.digest + 1)


OTHER_PRICE = 2_000_000
"""What the other version is told costs at least so much, and what the first is told less."""


class OtherPrices(rs.State):
    """Another class than `asking_flows.Prices`."""

    digest: int = 7
    quotes: int = 0

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> OtherPrices:
        return cls(digest=old["digest"])


@rs.operator(key="name", recorded=True, batch=2)
def quote(assets: list[Asset]) -> list[Quote | NoQuote]:
    """Asks for two at once, where the first version asks for one."""
    price = OTHER_PRICE + int(rs.random() * 1_000_003)
    if price % 13 == 0:
        raise ValueError(f"no price for {rs.request_id()}")
    return [
        Quote(a.time, a.name, price + i) if price % 3 else NoQuote(int(rs.now()), a.name)
        for i, a in enumerate(assets)
    ]


@rs.operator(recorded=True)
def rate(asset: Asset) -> Quote:
    """Asks for one, where the first version asks for three and drops some."""
    return Quote(asset.time, asset.name, OTHER_PRICE + int(rs.random() * 1_000_003))


@rs.operator(key="name")
def summed(quote: Quote, prices: OtherPrices) -> Iterator[Sum]:
    prices.quotes += 1
    prices.digest = (prices.digest * 33 + quote.price) % (2**61 - 1)
    yield Sum(quote.name, prices.digest)


Make = Callable[[Collect], rs.Flow]


def _with(flow: Make, **others: Any) -> Make:
    """A flow that is made of other operators, by the names that its module has for them."""

    def make(sink: Collect) -> rs.Flow:
        names = vars(sys.modules[flow.__module__])
        before = {name: names[name] for name in others}
        try:
            names.update(others)
            return flow(sink)
        finally:
            names.update(before)

    return make


OTHER_VERSIONS: dict[str, Make] = {
    "words": _with(flows.words, split=split, count=count, short=short),
    "arriving": _with(flows.arriving, split=split, count=count, short=short),
    "windows": _with(flows.windows, Count=OtherWindows),
    "derived": _with(flows.derived, split=split, Count=OtherWindows),
    "idling": _with(flows.idling, CountSlots=OtherSlots),
    "batches": _with(flows.batches, digest=digest),
    "seldom": _with(flows.seldom, balance=balance),
    "timers": _with(flows.timers, Remind=OtherRemind),
    "waiting": _with(flows.waiting, Remind=OtherRemind),
    "ahead": _with(flows.ahead, Remind=OtherRemind),
    "gaps": _with(flows.gaps, Remind=OtherRemind),
    "join": _with(flows.join, Settle=OtherSettle),
    "controlled": _with(controlled, Discount=OtherDiscount),
    "arriving_join": _with(flows.arriving_join, Settle=OtherSettle),
    "asking": _with(asking_flows.asking, quote=quote, summed=summed),
    "asking_arriving": _with(asking_flows.asking_arriving, rate=rate, summed=summed),
}
"""By the name of a flow its other version."""
