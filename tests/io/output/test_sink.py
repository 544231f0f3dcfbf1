"""Sinks to files: what readers see is whole cuts, whatever was restarted in between."""

from __future__ import annotations

import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import (
    InputError,
    InternalError,
    JobError,
)
from tests.io.kinds import batch
from tests.io.output.written import ALL, HALVES, Other, opened, read, rows, visible, write


def test_nothing_is_seen_before_its_commit(sink: Any, tmp_path: Path) -> None:
    one = opened(sink)
    write(one, 1)
    write(one, 2)
    assert visible(tmp_path) == []
    one.commit(1)
    assert visible(tmp_path) == rows(1)
    write(one, 3)
    one.commit(2)
    assert visible(tmp_path) == rows(1) + rows(2)
    with pytest.raises(JobError, match=r"not ended: .* whole up to epoch 2(.|\n)*partial=True"):
        read(tmp_path)
    one.commit(3)
    one.close()
    assert read(tmp_path) == rows(1) + rows(2) + rows(3)


def test_what_was_not_committed_does_not_end(sink: Any, tmp_path: Path) -> None:
    one = opened(sink)
    write(one, 1)
    one.close()
    with pytest.raises(JobError, match="has not ended"):
        rs.io.parts(tmp_path)


def test_the_same_epoch_again_replaces_the_first(sink: Any, tmp_path: Path) -> None:
    one = opened(sink)
    write(one, 1, number=9)
    write(one, 1)
    one.commit(1)
    one.close()
    assert read(tmp_path) == rows(1)


def test_parts_roll_with_the_cut_and_are_named_by_it(sink: Any, tmp_path: Path) -> None:
    one = opened(sink)
    for epoch in range(1, 41):
        write(one, epoch)
    one.commit(20)
    one.commit(40)
    one.close()
    found = rs.io.parts(tmp_path)
    assert [(p.record, p.after, p.upto, p.keys, p.rows) for p in found] == [
        ("Counted", 0, 20, ALL, 60),
        ("Counted", 20, 40, ALL, 60),
    ]
    names = [f"Counted/run-{a:09d}-{b:09d}-00000-00256-000" for a, b in ((0, 20), (20, 40))]
    assert [str(p.path.relative_to(tmp_path).with_suffix("")) for p in found] == names
    there = sorted((tmp_path / "Counted").iterdir())
    assert there == sorted(p.path for p in found)


def test_what_is_written_at_a_cut_does_not_grow_with_the_job(
    sink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raystream.io.output.manifest.LIST_PARTS", 10)
    manifest, one = tmp_path / "_manifest-run-00000-00256.json", opened(sink)
    for epoch in range(1, 36):
        write(one, epoch)
        one.commit(epoch)
        if epoch == 25:
            one = opened(sink, committed=20)
        assert manifest.read_text().count("Counted/") <= 10
    assert len(visible(tmp_path)) == 3 * 35
    one.close()
    assert [p.upto for p in rs.io.parts(tmp_path)] == [*range(1, 36)]
    lists = sorted(tmp_path.glob("_list-*"))
    assert len(lists) == 3
    lists[0].unlink()
    with pytest.raises(InputError, match=r"names .*_list-run(.|\n)*begin at the beginning"):
        rs.io.parts(tmp_path)
    opened(sink, run="anew")
    assert not sorted(tmp_path.glob("_list-*"))


def test_manifests_without_lists_are_read(sink: Any, tmp_path: Path) -> None:
    """They were written before there were any."""
    one = opened(sink)
    write(one, 1)
    one.commit(1)
    manifest = tmp_path / "_manifest-run-00000-00256.json"
    old = {**json.loads(manifest.read_text()), "format": 3}
    del old["lists"]
    manifest.write_text(json.dumps(old))
    assert visible(tmp_path) == rows(1)


def test_types_are_kept_apart(sink: Any, tmp_path: Path) -> None:
    one = opened(sink)
    write(one, 1)
    one.write(1, ALL, batch(Other, [Other(7)]))
    one.commit(1)
    one.close()
    assert read(tmp_path) == rows(1)
    assert read(tmp_path, Other) == [Other(7)]
    assert {p.path.parent.name for p in rs.io.parts(tmp_path)} == {"Counted", "Other"}


def test_parts_of_all_instances_come_by_epochs_then_keys(sink: Any, tmp_path: Path) -> None:
    high, low = (opened(sink, keys) for keys in reversed(HALVES))
    for epoch in (1, 2):
        for one, keys in ((high, HALVES[1]), (low, HALVES[0])):
            write(one, epoch, keys)
            one.commit(epoch)
    for one in (high, low):
        one.close()
    assert read(tmp_path) == [r for e in (1, 2) for keys in HALVES for r in rows(e, keys)]


def test_only_what_all_have_committed_is_whole(sink: Any, tmp_path: Path) -> None:
    """Commits reach instances at different times, and several may come as one."""
    low, high = (opened(sink, keys) for keys in HALVES)
    for epoch in range(1, 7):
        for one, keys in zip((low, high), HALVES, strict=True):
            write(one, epoch, keys)
    for epoch in (1, 3, 5):
        low.commit(epoch)
    assert visible(tmp_path) == []
    high.commit(3)
    three = sorted(r for e in (1, 2, 3) for keys in HALVES for r in rows(e, keys))
    assert sorted(visible(tmp_path)) == three
    high.commit(6)  # (3, 6] goes beyond what `low` has
    assert sorted(visible(tmp_path)) == three


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ([HALVES[0]], r"lacks the output of the key groups \[128, 256\)"),
        ([HALVES[1]], r"lacks the output of the key groups \[0, 128\)"),
        ([ALL, HALVES[1]], r"the key groups \[128, 256\) twice"),
        ([rs.KeyRange(0, 200), rs.KeyRange(100, 256)], r"the key groups \[100, 200\) twice"),
    ],
)
def test_ranges_must_tile(ranges: list[rs.KeyRange], words: str, sink: Any, tmp_path: Path) -> None:
    for keys in ranges:
        opened(sink, keys)
    with pytest.raises(JobError, match=words):
        rs.io.parts(tmp_path, partial=True)


def test_a_flow_may_have_another_number_of_key_groups(sink: Any, tmp_path: Path) -> None:
    one = opened(sink, rs.KeyRange(0, 16))
    write(one, 1)
    one.commit(1)
    one.close()
    with pytest.raises(JobError, match=r"\[16, 256\)(.|\n)*key_groups="):
        rs.io.parts(tmp_path)
    assert read(tmp_path, key_groups=16) == rows(1)


@settings(max_examples=40)
@given(data=st.data(), chunk=st.sampled_from([1, 4, 1000]))
def test_restarts_change_nothing(data: st.DataObject, chunk: int) -> None:
    """Epochs are written and committed late; lives end at any moment and the next one begins at
    some committed cut. What is read is always the epochs up to the newest commit, once each."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        patch.setattr("raystream.io.output.sink.CHUNK_ROWS", chunk)
        folder = Path(name)
        sink = getattr(rs.io, data.draw(st.sampled_from(["parquet", "csv", "json"])))(folder)
        one, position, committed = opened(sink), 0, 0
        for _ in range(data.draw(st.integers(1, 12))):
            match data.draw(st.sampled_from("wwwwcr")):
                case "w":
                    position += 1
                    write(one, position, number=position % 3)  # some epochs have no rows
                case "c" if position:
                    committed = max(committed, data.draw(st.integers(1, position)))
                    one.commit(committed)
                case "r":
                    position = data.draw(st.integers(0, committed))
                    one = opened(pickle.loads(pickle.dumps(sink)))
            expected = [r for e in range(1, committed + 1) for r in rows(e, number=e % 3)]
            assert visible(folder) == expected
        last = max(position, committed) + 2
        for epoch in range(position + 1, last + 1):
            write(one, epoch, number=epoch % 3)
        one.commit(last)
        one.close()
        assert read(folder) == [r for e in range(1, last + 1) for r in rows(e, number=e % 3)]
        listed = {p.path for p in rs.io.parts(folder)}
        assert set(folder.glob("*/*")) == listed, "nothing else is left"


def test_a_new_run_replaces_what_was_there(sink: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")
    for keys in HALVES:
        one = opened(sink, keys, run="first")
        write(one, 1, keys)
        one.commit(1)
        write(one, 2, keys)
        one.close()
    one = opened(sink, run="second")
    write(one, 1, number=1)
    one.commit(1)
    one.close()
    assert read(tmp_path) == rows(1, number=1)
    assert (tmp_path / "notes.md").read_text() == "mine"


def test_the_same_run_name_again_is_a_new_run_once_it_has_ended(sink: Any, tmp_path: Path) -> None:
    for number, ranges in ((5, [ALL]), (2, HALVES)):
        for keys in ranges:
            one = opened(sink, keys)
            write(one, 1, keys, number)
            one.commit(1)
            one.close()
    assert read(tmp_path) == [r for keys in HALVES for r in rows(1, keys, 2)]


def test_an_instance_that_dies_after_it_closed_is_replaced_by_one_that_keeps_its_output(
    sink: Any, tmp_path: Path
) -> None:
    one = opened(sink)
    write(one, 1)
    one.commit(1)
    one.close()
    two = opened(sink, committed=1)
    two.close()
    assert read(tmp_path) == rows(1)


def test_sinks_say_of_which_kind_they_are(tmp_path: Path) -> None:
    assert rs.io.parquet(tmp_path).kind == rs.io.csv(tmp_path).kind == "epoch-addressed"
    assert rs.io.callable(print).kind == rs.io.console().kind == "at-least-once"


def test_a_sink_is_opened_first(sink: Any) -> None:
    with pytest.raises(InternalError, match="before it was opened"):
        sink.commit(1)
