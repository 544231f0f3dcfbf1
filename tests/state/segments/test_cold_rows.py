"""Segments against a dictionary: whatever was written, folded and asked for, in any order."""

import random
from itertools import pairwise

import numpy as np
import pytest

from raystream.errors import StateError
from raystream.schema.types import NEVER, KeyRange
from raystream.state.kernels import hash_columns
from raystream.state.keys import group_of_hash
from raystream.state.segments import cold_rows, paged_file
from raystream.state.segments.cold_rows import (
    ColdRows,
    RecordBlock,
    newest_of,
    range_of,
    whole_hash,
    with_last_word,
)
from raystream.state.segments.record import HEAP_FIELDS, record_dtype, removed_at
from raystream.state.segments.segment import HASHES

FIXED = record_dtype(2, [("value", "i8")])
HEAP = record_dtype(2, HEAP_FIELDS)


def records_of(rows, dtype):
    """Rows {(key, start): (epoch, due, value or None)} as records in order of hashes."""
    keys = np.array(list(rows), np.int64).reshape(-1, 2)
    hashes = hash_columns([keys[:, 0].copy()])
    order = np.argsort(hashes, kind="stable")
    records, heap = np.zeros(len(rows), dtype), b""
    records["_hash"], records["_key"] = hashes, keys
    for i in order.tolist():
        epoch, due, value = rows[tuple(keys[i].tolist())]
        records[i]["_epoch"] = removed_at(epoch) if value is None else epoch
        records[i]["_due"] = due
        if value is None:
            continue
        if dtype is FIXED:
            records[i]["value"] = value
        else:
            data = b"x" * (value % 5000)
            records[i]["_at"], records[i]["_size"] = len(heap), len(data)
            heap += data
    return RecordBlock(records[order], heap)


def add(cold, rows):
    hashes = rows.records["_hash"]
    written = cold.adding([rows], len(hashes), int(hashes[0]), int(hashes[-1]))
    assert list(written) == [len(hashes)]


def values_of(rows):
    """{key: (epoch, value)} of records."""
    records = rows.records
    if "_at" in records.dtype.names:
        values = list(map(len, rows.payloads()))
    else:
        values = records["value"].tolist()
    keys = map(tuple, records["_key"].tolist())
    return {
        k: (e, v if e >= 0 else None)
        for k, e, v in zip(keys, records["_epoch"].tolist(), values, strict=True)
    }


def asked(keys):
    """Hashes in order, and words, of keys."""
    words = np.array(sorted(keys), np.int64).reshape(-1, 2)
    hashes = hash_columns([words[:, 0].copy()])
    order = np.argsort(hashes, kind="stable")
    return hashes[order], words[order]


def found(cold, keys):
    hashes, words = asked(keys)
    got = {}
    for each in cold.find(hashes, words):
        values = values_of(each.rows)
        assert {tuple(w) for w in words[each.which].tolist()} == set(values)
        assert not values.keys() & got.keys()
        got |= values
    return got


@pytest.mark.parametrize("dtype", [FIXED, HEAP], ids=["fixed", "heap"])
@pytest.mark.parametrize("seed", range(4))
def test_segments_say_what_a_dictionary_says(tmp_path, monkeypatch, dtype, seed):
    rng = random.Random(seed)
    monkeypatch.setattr(cold_rows, "FOLD_BYTES", 2500)
    monkeypatch.setattr(cold_rows, "UNSTORED_MOST", 2)
    probe = rng.choice([whole_hash, with_last_word])
    cold, known = ColdRows(tmp_path, "o", dtype, probe), {}
    stored = 0
    for epoch in range(1, 30):
        rows = {}
        for _ in range(rng.choice([1, 5, 200])):
            key = rng.randrange(300), rng.randrange(3)
            value = None if rng.random() < 0.3 else rng.randrange(9000)
            due = NEVER if value is None or rng.random() < 0.5 else rng.randrange(1000)
            rows[key] = epoch, due, value
        add(cold, records_of(rows, dtype))
        known |= rows
        stored = max(stored, epoch - rng.randrange(1, 6))
        if rng.random() < 0.7:
            cold.fold(stored, rng.choice([1, 50, 1 << 40]))
        keys = {(rng.randrange(330), rng.randrange(3)) for _ in range(50)}
        got = found(cold, keys)
        for key in keys:
            e, _, value = known.get(key, (0, 0, None))
            if value is not None:
                cut = value if dtype is FIXED else value % 5000
                assert got[key] == (e, cut)
            elif key in got:  # a removal that nothing needs may be forgotten
                assert got[key] == (~e, None)
            else:
                assert e <= stored
    assert len(cold.segments) < 29
    assert cold.folded
    assert not list(tmp_path.iterdir())  # files have no names


def test_there_are_few_segments_however_long_no_checkpoint_is_committed(tmp_path):
    """Deltas find in them what they would find in those that were folded: the newest record of each
    key, and what says that it was removed."""
    rng = random.Random(7)
    cold, known = ColdRows(tmp_path, "o", FIXED), {}
    older = {(key, 0): (1, NEVER, key) for key in range(100)}
    add(cold, records_of(older, FIXED))
    for epoch in range(2, 400):
        value = None if rng.random() < 0.2 else epoch
        rows = {(rng.randrange(100), 0): (epoch, NEVER, value) for _ in range(rng.randrange(1, 9))}
        add(cold, records_of(rows, FIXED))
        known |= rows
        cold.fold(1, 1 << 40)
        assert len(cold.segments) < 20
    assert cold.segments[0].newest == 1  # what is stored stays by itself: deltas need not read it
    changed = [s for s in cold.segments if s.newest > 1]
    records = newest_of([s.between(0, HASHES) for s in changed])
    wanted = {key: (~e if v is None else e, v) for key, (e, _, v) in known.items()}
    assert values_of(records) == wanted


@pytest.mark.parametrize("seed", range(3))
def test_what_is_due_is_brought_once(tmp_path, seed):
    rng = random.Random(seed)
    cold, known = ColdRows(tmp_path, "o", FIXED), {}
    for epoch in range(1, 6):
        rows = {
            (rng.randrange(400), 0): (epoch, rng.randrange(100), rng.randrange(9))
            for _ in range(150)
        }
        add(cold, records_of(rows, FIXED))
        known |= rows
    for before, upto in pairwise((-1, 10, 11, 60, 200)):
        due = {k: (e, v) for k, (e, d, v) in known.items() if d <= upto}
        new = {k: (e, v) for k, (e, d, v) in known.items() if before < d <= upto}
        low, high = range_of(KeyRange(0, 5), 9)
        got = {}
        for begin, end in ((low, high), (high, HASHES)):
            for rows in cold.due(upto, begin, end):
                part = values_of(rows)
                assert not part.keys() & got.keys()
                got |= part
                assert all(begin <= h < end for h in rows.records["_hash"].tolist())
        assert new.items() <= got.items() <= due.items()  # others may come again
        cold.passed(upto)
        assert cold.next_due > upto
        assert not any(len(r.records) for r in cold.due(upto))


def test_all_rows_of_a_hash(tmp_path):
    cold = ColdRows(tmp_path, "o", FIXED)
    add(cold, records_of({(7, s): (1, NEVER, s) for s in range(200)}, FIXED))
    add(
        cold,
        records_of({(7, 3): (2, NEVER, None), (7, 4): (2, NEVER, 44), (8, 1): (2, 5, 1)}, FIXED),
    )
    hashes = np.unique(hash_columns([np.array([7, 9])]))
    got = {}
    for rows in cold.find_all(hashes):
        got |= values_of(rows)
    assert got == {(7, s): (1, s) for s in range(200) if s not in (3, 4)} | {(7, 4): (2, 44)}


def test_ranges_are_those_of_key_groups(tmp_path):
    cold = ColdRows(tmp_path, "o", FIXED)
    add(cold, records_of({(k, 0): (1, NEVER, k) for k in range(1000)}, FIXED))
    (segment,) = cold.segments
    total = 0
    for lo, hi in ((0, 3), (3, 50), (50, 64)):
        rows = segment.between(*range_of(KeyRange(lo, hi), 64)).records
        assert all(lo <= group_of_hash(h, 64) < hi for h in rows["_hash"].tolist())
        total += len(rows)
    assert total == 1000


def test_a_damaged_page_is_told(tmp_path, monkeypatch):
    sums = paged_file.zlib.crc32
    monkeypatch.setattr(paged_file.zlib, "crc32", lambda data: sums(data) ^ 1)
    cold = ColdRows(tmp_path, "count", FIXED)
    add(cold, records_of({(k, 0): (1, NEVER, k) for k in range(500)}, FIXED))
    monkeypatch.undo()
    with pytest.raises(StateError, match="count: a page of its rows on disk is damaged"):
        found(cold, [(3, 0)])


def test_a_folder_that_is_not_there(tmp_path):
    cold = ColdRows(tmp_path / "gone", "count", FIXED)
    with pytest.raises(StateError, match="count: rows that memory has no room for") as error:
        add(cold, records_of({(1, 0): (1, NEVER, 1)}, FIXED))
    assert "--state-folder" in str(error.value)
