"""The rules by which a sink takes ranges over, on a log in memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import raystream as rs
from raystream.io.databases import waiting
from raystream.io.databases.connection import Staged
from raystream.io.databases.markers import Marker, MarkerOwner, Run
from raystream.io.kafka import journal
from raystream.io.kafka.journal import CHUNK_BYTES, Outgoing, SinkJournal, chunks, packed, unpacked
from raystream.io.kafka.transactions import KafkaConnection
from raystream.schema.types import KeyRange, SinkContext
from tests.io.databases.words import Counted
from tests.io.kafka.log import LoggedSink, MemoryLog, MemoryWriter

ROWS = [Counted("abcdefg"[i % 7], i) for i in range(30)]
JOBS_MOST = 3000
"""So many are played until one of them finds a broken rule. The rarest is found by one in 60."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PAUSE", 0.0)


def check(visible: Any, examples: int, every_call: bool = True) -> None:
    log = MemoryLog()
    rs.testing.check_sink(
        lambda: LoggedSink(log, visible),
        ROWS,
        read=lambda: [eval(m.value or b"") for m in log.messages()],
        clear=log.clear,
        examples=examples,
        every_call=every_call,
    )


@pytest.mark.parametrize("visible", [None, "saved"])
def test_each_record_is_there_once_whatever_dies(visible: Any) -> None:
    check(visible, 100)


def without_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SinkJournal, "has_greater", lambda self, keys, owner: False)
    monkeypatch.setattr(SinkJournal, "others", lambda self, keys: set())


def by_all_who_share(monkeypatch: pytest.MonkeyPatch) -> None:
    def staged(self: SinkJournal, keys: KeyRange, after: int, upto: int) -> Any:
        return [p for p in sorted(self.rows) if p[0].overlaps(keys) and after < p[1] <= upto]

    monkeypatch.setattr(SinkJournal, "staged", staged)


def with_the_latest_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "resolved", lambda marks: sorted(m for e in marks for m in e))


def without_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryWriter, "_refuse", lambda self: None)


def with_one_id_of_others_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    every = KafkaConnection._ids

    def ids(self: KafkaConnection, keys: KeyRange) -> list[str]:
        return every(self, keys)[: None if keys == self.keys else 1]

    monkeypatch.setattr(KafkaConnection, "_ids", ids)


@pytest.mark.parametrize(
    ("broken", "visible"),
    [
        (without_claims, None),
        (by_all_who_share, "saved"),
        (with_the_latest_markers, None),
        (without_fences, None),
        (with_one_id_of_others_fenced, None),
    ],
)
def test_each_rule_is_needed(broken: Any, visible: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check(visible, JOBS_MOST, every_call=False)


def test_markers_of_greater_owners_count() -> None:
    old, new = MarkerOwner(1, 4), MarkerOwner(2, 0)
    found = journal.resolved([
        [Marker(KeyRange(0, 8), 5, 5, old), Marker(KeyRange(8, 16), 7, 7, old)],
        [Marker(KeyRange(4, 12), 9, 9, new)],
    ])  # fmt: skip
    assert found == [
        Marker(KeyRange(0, 4), 5, 5, old),
        Marker(KeyRange(4, 12), 9, 9, new),
        Marker(KeyRange(12, 16), 7, 7, old),
    ]


def test_a_journal_is_what_its_records_say() -> None:
    one, keys = SinkJournal("sink"), KeyRange(0, 8)
    owner = MarkerOwner(1, 2)
    run = Run(1, "run-1", 3, "program", 4)
    messages = [Outgoing(b"k", None, 17, (("h", b"v"),)), Outgoing(None, b"x" * CHUNK_BYTES)]
    entries = [
        one.run(run),
        one.claim(keys, owner),
        one.mark(keys, [Marker(keys, 5, 4, owner, True)]),
        *one.stage(Staged(keys, 5, messages)),
        *one.stage(Staged(keys, 5, messages[:1])),
        *one.unstage([(keys, 5, 0)]),
    ]
    two = SinkJournal("sink")
    for entry in [*entries, SinkJournal("other").run(run)]:
        two.take(entry)
    for each in (one, two, two.copy()):
        assert each.runs == {1: run} and each.claims == {keys: owner}
        assert each.markers() == [Marker(keys, 5, 4, owner, True)]
        assert each.staged(keys, 4, 5) == [(keys, 5, 1), (keys, 5, 2)]
        assert each.staged(keys, 5, 9) == [] == each.staged(KeyRange(8, 16), 0, 9)
        assert unpacked(each.rows[keys, 5, 2]) == messages[:1]
    two.take(two.claim(keys, MarkerOwner(1, 1)))
    assert two.claims == {keys: owner}, "a claim of a lesser owner does not undo a greater one"


def test_messages_are_packed_into_pieces() -> None:
    messages = [Outgoing(b"k", b"v" * 1000) for _ in range(600)]
    found = chunks(messages)
    assert [m for chunk in found for m in chunk] == messages
    assert len(found) == 3 and max(len(packed(c)) for c in found) < 2 * CHUNK_BYTES
    assert chunks([]) == []


def test_writers_are_named_by_the_sink_and_the_range() -> None:
    """So the instances of other runs find whom they have to fence."""
    log = MemoryLog()
    rs.testing.check_sink(
        lambda: LoggedSink(log),
        ROWS[:5],
        read=lambda: [eval(m.value or b"") for m in log.messages()],
        clear=log.clear,
        examples=1,
        every_call=False,
    )
    names = {tuple(id.split("/")) for id in log.writers}
    assert {name[:2] for name in names} == {("raystream", "check")}
    ranges = {name[2] for name in names} - {"runs"}
    assert len(ranges) < len(names), "a run has noted itself"
    assert all(0 <= int(lo) < int(hi) <= 8 for lo, hi in (r.split("-") for r in ranges))


def test_the_ids_of_a_range_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one id a transaction has to wait until the cluster has finished the one before it."""
    by: list[str] = []
    commit = MemoryWriter.commit

    def noted(self: MemoryWriter) -> None:
        by.append(self._id)
        commit(self)

    monkeypatch.setattr(MemoryWriter, "commit", noted)
    out = LoggedSink(MemoryLog())
    out.open(SinkContext("run", "out", KeyRange(0, 8), None, 0.0, None))
    by.clear()
    for epoch in range(1, 5):
        out.prepare(epoch)
    assert len(by) == 4 and len({*by}) == 2
    assert all(id != after for id, after in pairwise(by))
