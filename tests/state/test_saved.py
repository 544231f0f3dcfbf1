"""Saved cuts: what a manifest says survives, whatever is not one is refused by name."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.errors import InternalError, StateError
from raystream.schema.types import KeyRange
from raystream.state.saved import (
    Layout,
    Named,
    Saved,
    SavedChain,
    SavedImage,
    absent,
    claim_name,
    decode,
    droppable,
    encode,
    folder_of,
    manifest_name,
    named,
    newest_first,
    newest_run,
    overlaps,
    refuse_other,
    saved_image,
)
from tests.dataflow.cuts import random_ranges
from tests.examples import examples

GROUPS = 16
whole = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=5)


@st.composite
def chains(draw: Any, job: str, number: int, cut: int, vertex: str) -> tuple[SavedChain, ...]:
    found = []
    for keys in random_ranges(draw(st.randoms(use_true_random=False)), GROUPS):
        cuts = sorted(draw(st.sets(st.integers(1, cut), min_size=1, max_size=3)))
        images = tuple(
            saved_image(job, number, vertex, keys, base, at, draw(st.binary(max_size=3)))
            for base, at in zip([0, *cuts], cuts, strict=False)
        )
        found.append(SavedChain(keys, images))
    return tuple(found)


@st.composite
def cuts(draw: Any, job: str | None = None) -> Saved:
    job = draw(texts) if job is None else job
    number, cut = draw(st.integers(1, 10**7)), draw(st.integers(1, 10**13))
    shapes = draw(st.dictionaries(texts, texts, min_size=1, max_size=3))
    real = st.floats(allow_nan=False, allow_infinity=False)
    return Saved(
        job,
        number,
        draw(texts),
        cut,
        draw(st.integers(1, 100)),
        Layout(GROUPS, draw(st.integers(1, 10**9)), shapes, tuple(draw(st.lists(texts)))),
        {v: draw(chains(job, number, cut, v)) for v in shapes},
        draw(st.dictionaries(texts, st.lists(texts, max_size=3).map(tuple), max_size=2)),
        draw(st.none() | st.tuples(real, real, st.none() | real)),
        tuple(draw(st.lists(st.tuples(texts, whole, whole, whole, st.booleans()), max_size=3))),
        draw(st.dictionaries(texts, st.tuples(texts, whole), max_size=2)),
    )


def name_of(saved: Saved) -> str:
    return manifest_name(saved.job, saved.number, saved.cut)


ONE = KeyRange(0, GROUPS)


def small(job: str = "job", number: int = 1, cut: int = 10, **images: list[SavedImage]) -> Saved:
    """A cut of one vertex and range; `images` of it unless it is one full image."""
    layout = Layout(GROUPS, 1, {"v": ""}, ("s.Word to v",))
    mine = images.get("images", [saved_image(job, number, "v", ONE, 0, cut, b"full")])
    return Saved(job, number, "run", cut, 5, layout, {"v": (SavedChain(ONE, tuple(mine)),)})


# ---------------------------------------------------------------- the stored form


@examples(60)
@given(cuts())
def test_a_manifest_is_read_as_it_was_written(saved: Saved) -> None:
    data = encode(saved)
    assert decode(saved.job, name_of(saved), data) == saved
    assert encode(decode(saved.job, name_of(saved), data)) == data
    for image in saved.images:
        assert named(saved.job, image.name) == Named("images", saved.number, image.cut)


@examples(100)
@given(cuts(), st.data())
def test_whatever_happens_to_a_manifest_is_noticed(saved: Saved, data: st.DataObject) -> None:
    stored = encode(saved)
    at = data.draw(st.integers(0, len(stored) - 1))
    change = data.draw(st.sampled_from(["cut off", "another byte", "too long"]))
    damaged = {
        "cut off": stored[:at],
        "another byte": stored[:at]
        + bytes([stored[at] ^ data.draw(st.integers(1, 255))])
        + stored[at + 1 :],
        "too long": stored + b"}",
    }[change]
    with pytest.raises(StateError, match=r"cuts/\d+-\d+"):
        decode(saved.job, name_of(saved), damaged)


def test_why_a_manifest_is_refused() -> None:
    saved = small()
    name, data = name_of(saved), encode(saved)
    for broken, why in {
        b"": "does not begin as one",
        b"PAR1" + data: "does not begin as one",
        data[:-1]: "is damaged or cut off",
        data.replace(b"cut 2 ", b"cut 3 ", 1): r"of format version 3(.|\n)*with the version",
        _sealed(b"{}"): "KeyError: 'layout'",
        _sealed(b"[]"): "TypeError",
    }.items():
        with pytest.raises(StateError, match=rf"{name}(.|\n)*{why}"):
            decode("job", name, broken)


def _sealed(body: bytes, version: int = 2) -> bytes:
    return b"raystream saved cut %d %08x\n" % (version, zlib.crc32(body)) + body


def test_a_manifest_of_the_first_version_is_read() -> None:
    """It does not say by which columns epochs were cut."""
    saved = small()
    values = json.loads(encode(saved).partition(b"\n")[2])
    del values["columns"]
    assert decode("job", name_of(saved), _sealed(json.dumps(values).encode(), 1)) == saved


def test_a_manifest_of_something_else_is_refused() -> None:
    data = encode(small())
    for job, name in (
        ("job", manifest_name("job", 1, 11)),
        ("job", manifest_name("job", 2, 10)),
        ("other", manifest_name("other", 1, 10)),
    ):
        with pytest.raises(StateError, match="is not what it is called: it holds cut 10 of run 1"):
            decode(job, name, data)


def full(keys: KeyRange, cut: int = 10, job: str = "job") -> SavedChain:
    return SavedChain(keys, (saved_image(job, 1, "v", keys, 0, cut, b""),))


def delta(base: int, cut: int) -> SavedImage:
    return saved_image("job", 1, "v", ONE, base, cut, b"")


@pytest.mark.parametrize(
    ("these", "why"),
    [
        ({}, "does not hold the images of all operators"),
        ({"v": ()}, "do not make up all 16 key groups"),
        ({"v": (full(KeyRange(0, 15)),)}, "do not make up all 16 key groups"),
        ({"v": (full(KeyRange(0, 9)), full(KeyRange(8, 16)))}, "do not make up all"),
        ({"v": (full(KeyRange(0, 17)), full(KeyRange(17, 16)))}, "do not make up all"),
        ({"v": (full(ONE, 11),)}, "do not follow each other"),
        ({"v": (SavedChain(ONE, ()),)}, "do not follow each other"),
        (
            {"v": (full(ONE, 5)._replace(images=(*full(ONE, 5).images, delta(7, 10))),)},
            "do not follow each other",
        ),
        ({"v": (full(ONE, job="other"),)}, r"other/images/.* is no image of it"),
        ({"v": (SavedChain(ONE, (SavedImage("../x", 0, 10, 0, 0),)),)}, "x is no image of it"),
    ],
)
def test_a_manifest_that_is_not_whole_is_neither_written_nor_read(these: Any, why: str) -> None:
    saved = replace(small(), chains=these)
    with pytest.raises(InternalError, match=why):
        encode(saved)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("raystream.state.saved._flaw", lambda _: "")
        data = encode(saved)
    with pytest.raises(StateError, match=rf"cuts/000001-000000000010 is not whole: .*{why}"):
        decode("job", name_of(saved), data)


# ---------------------------------------------------------------- names


@given(texts, texts)
def test_jobs_do_not_share_a_folder(one: str, two: str) -> None:
    folders = folder_of(one), folder_of(two)
    assert (folders[0] == folders[1]) == (one == two)
    assert all("/" not in f and f and not f.startswith(".") for f in folders)


def test_names_of_others_mean_nothing() -> None:
    for name in (
        "job",
        "job/notes.md",
        "job/cuts/1-2.old",
        "job2/cuts/1-2",
        "job/images/1/v/x",
        "job/images/1/../0-1/0-1-00000000",
    ):
        assert named("job", name) is None
    assert named("job", claim_name("job", 3)) == Named("runs", 3, 0)
    assert named("job", manifest_name("job", 3, 12)) == Named("cuts", 3, 12)


def test_other_content_has_another_name() -> None:
    one, two = (saved_image("j", 1, "v", ONE, 0, 5, data) for data in (b"one", b"two"))
    assert one.name != two.name


# ---------------------------------------------------------------- plans


def test_the_newest_is_the_newest_cut_of_the_newest_run() -> None:
    at = [(1, 9), (2, 3), (10, 1), (2, 12)]
    names = [manifest_name("job", *a) for a in at] + [claim_name("job", 11), "job/x", "other/cuts"]
    expected = [manifest_name("job", *a) for a in ((10, 1), (2, 12), (2, 3), (1, 9))]
    assert newest_first("job", names) == expected
    assert newest_run("job", names) == 11
    assert newest_run("job", []) == 0


def test_what_is_absent_is_not_there_or_of_another_size() -> None:
    one, two, three = (saved_image("j", 1, "v", ONE, 0, n, b"x" * n) for n in (1, 2, 3))
    assert absent([one, two, three], {one.name: 1, two.name: 1}) == [two, three]


@examples(100)
@given(st.data())
def test_only_what_nobody_needs_is_dropped(data: st.DataObject) -> None:
    """Cuts of several runs on top of each other; some share images."""
    numbers = st.integers(1, 3)
    found: dict[tuple[int, int], Saved] = {}
    for number, cut in sorted(data.draw(st.sets(st.tuples(numbers, st.integers(1, 9))))):
        older = [s for s in found.values() if s.cut < cut]
        if older and data.draw(st.booleans()):
            base = older[-1].images
            images = [*base, saved_image("job", number, "v", ONE, base[-1].cut, cut, b"delta")]
        else:
            images = [saved_image("job", number, "v", ONE, 0, cut, b"full")]
        found[number, cut] = small("job", number, cut, images=images)
    newest = sorted(found.values(), key=lambda s: (s.number, s.cut), reverse=True)
    loose = [
        saved_image("job", *data.draw(st.tuples(numbers, st.just("v"))), ONE, 0, cut, b"loose")
        for cut in data.draw(st.sets(st.integers(1, 12)))
    ]
    strange = ["job/notes.md", "other/cuts/000001-000000000001"]
    there = {name_of(s) for s in newest} | {i.name for s in newest for i in s.images}
    there |= {i.name for i in loose} | {claim_name("job", n) for n in (1, 2, 3)} | set(strange)
    number = data.draw(st.integers(1, 4))
    keep = data.draw(st.sets(st.sampled_from(sorted(there))))
    dropped = droppable("job", there, newest[:2], number, keep)

    assert len(dropped) == len(set(dropped)) and set(dropped) <= there
    left = there - set(dropped)
    for saved in newest[:2]:
        assert {name_of(saved), *(i.name for i in saved.images)} <= left
    assert not set(dropped) & {*strange, *keep}
    if len(newest) < 2 or newest[0].number > number:
        assert not dropped
        return
    top = (newest[0].number, newest[0].cut)
    for name in dropped:
        at = named("job", name)
        assert at is not None and at[1:] <= top, "what may become a cut stays"
    needed = {i.name for s in newest[:2] for i in s.images} | keep
    for saved in newest[2:]:
        assert name_of(saved) in dropped or name_of(saved) in keep
        assert all(i.name in {*dropped, *needed} for i in saved.images)
    kinds = [at.kind for n in dropped if (at := named("job", n)) is not None]
    assert kinds == sorted(kinds, key=["cuts", "images", "runs"].index), "manifests go first"


@examples(60)
@given(cuts(), st.randoms(use_true_random=False))
def test_parts_of_chains_make_up_what_is_wanted(saved: Saved, rng: Any) -> None:
    for vertex in saved.chains:
        for keys in random_ranges(rng, GROUPS):
            found = overlaps(saved, vertex, keys)
            groups = [g for _, part in found for g in range(part.lo, part.hi)]
            assert groups == list(range(keys.lo, keys.hi))
            assert all(c.keys.lo <= p.lo and p.hi <= c.keys.hi for c, p in found)


def test_a_flow_that_is_another_is_refused() -> None:
    saved = small()
    now = saved.layout
    refuse_other(saved, now)
    for other, why in (
        (replace(now, groups=32), r"another number of key groups(.|\n)*saved: 16\n  now:   32"),
        (replace(now, ticks=1000), r"another time unit"),
        (replace(now, shapes={"v": "", "w": ""}), r"set of operators(.|\n)*saved: v\n.* v, w"),
        (replace(now, edges=()), r"other streams(.|\n)*saved: s\.Word to v"),
        (replace(now, shapes={"v": "n: i4"}), r"state of v(.|\n)*saved: none\n  now:   n: i4"),
    ):
        with pytest.raises(StateError, match=why) as told:
            refuse_other(saved, other)
        assert "begin anew: --fresh" in told.value.hint
    refuse_other(saved, replace(now, shapes={"v": "n: i4"}), upgraded={"v"})
