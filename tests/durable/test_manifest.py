"""Saved cuts: what a manifest says survives, whatever is not one is refused by name."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.durable.manifest import (
    Named,
    Saved,
    SavedChain,
    SavedImage,
    SavedLayout,
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
    saved_image,
)
from raystream.errors import InternalError, StateError
from raystream.schema.types import KeyRange
from tests.dataflow.random_ranges import random_ranges
from tests.examples import examples

GROUPS = 16
whole = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=5)


@st.composite
def chains(
    draw: Any, job: str, number: int, checkpoint: int, vertex: str
) -> tuple[SavedChain, ...]:
    found = []
    for keys in random_ranges(draw(st.randoms(use_true_random=False)), GROUPS):
        checkpoints = sorted(draw(st.sets(st.integers(1, checkpoint), min_size=1, max_size=3)))
        images = tuple(
            saved_image(job, number, vertex, keys, base, at, draw(st.binary(max_size=3)))
            for base, at in zip([0, *checkpoints], checkpoints, strict=False)
        )
        found.append(SavedChain(keys, images))
    return tuple(found)


ONE = KeyRange(0, GROUPS)


@st.composite
def checkpoints(draw: Any, job: str | None = None) -> Saved:
    job = draw(texts) if job is None else job
    number, checkpoint = draw(st.integers(1, 10**7)), draw(st.integers(1, 10**13))
    shapes = draw(st.dictionaries(texts, texts, min_size=1, max_size=3))
    real = st.floats(allow_nan=False, allow_infinity=False)
    return Saved(
        job,
        number,
        draw(texts),
        checkpoint,
        draw(st.integers(1, 100)),
        SavedLayout(
            GROUPS,
            draw(st.integers(1, 10**9)),
            shapes,
            tuple(draw(st.lists(texts))),
            {v: draw(st.sampled_from(["source", "operator", "sink"])) for v in shapes},
        ),
        {v: draw(chains(job, number, checkpoint, v)) for v in shapes},
        draw(st.dictionaries(texts, st.lists(texts, max_size=3).map(tuple), max_size=2)),
        draw(st.none() | st.tuples(real, real, st.none() | real)),
        tuple(draw(st.lists(st.tuples(texts, whole, whole, whole, st.booleans()), max_size=3))),
        draw(st.dictionaries(texts, st.tuples(texts, whole), max_size=2)),
        draw(st.dictionaries(texts, texts, max_size=2)),
    )


def name_of(saved: Saved) -> str:
    return manifest_name(saved.job, saved.number, saved.checkpoint)


def small(
    job: str = "job", number: int = 1, checkpoint: int = 10, **images: list[SavedImage]
) -> Saved:
    """A cut of one vertex and range; `images` of it unless it is one full image."""
    layout = SavedLayout(GROUPS, 1, {"v": ""}, ("s.Word to v",))
    mine = images.get("images", [saved_image(job, number, "v", ONE, 0, checkpoint, b"full")])
    return Saved(job, number, "run", checkpoint, 5, layout, {"v": (SavedChain(ONE, tuple(mine)),)})


# ---------------------------------------------------------------- the stored form


@examples(60)
@given(checkpoints())
def test_a_manifest_is_read_as_it_was_written(saved: Saved) -> None:
    data = encode(saved)
    assert decode(saved.job, name_of(saved), data) == saved
    assert encode(decode(saved.job, name_of(saved), data)) == data
    for image in saved.images:
        assert named(saved.job, image.name) == Named("images", saved.number, image.checkpoint)


@examples(100)
@given(checkpoints(), st.data())
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
        data.replace(b"cut 5 ", b"cut 6 ", 1): r"of format version 6(.|\n)*with the version",
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
        with pytest.raises(
            StateError, match="is not what it is called: it holds checkpoint 10 of run 1"
        ):
            decode(job, name, data)


def full(keys: KeyRange, checkpoint: int = 10, job: str = "job") -> SavedChain:
    return SavedChain(keys, (saved_image(job, 1, "v", keys, 0, checkpoint, b""),))


def delta(base: int, checkpoint: int) -> SavedImage:
    return saved_image("job", 1, "v", ONE, base, checkpoint, b"")


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
        patch.setattr("raystream.durable.manifest._flaw", lambda _: "")
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
    for number, checkpoint in sorted(data.draw(st.sets(st.tuples(numbers, st.integers(1, 9))))):
        older = [s for s in found.values() if s.checkpoint < checkpoint]
        if older and data.draw(st.booleans()):
            base = older[-1].images
            images = [
                *base,
                saved_image("job", number, "v", ONE, base[-1].checkpoint, checkpoint, b"delta"),
            ]
        else:
            images = [saved_image("job", number, "v", ONE, 0, checkpoint, b"full")]
        found[number, checkpoint] = small("job", number, checkpoint, images=images)
    newest = sorted(found.values(), key=lambda s: (s.number, s.checkpoint), reverse=True)
    loose = [
        saved_image(
            "job", *data.draw(st.tuples(numbers, st.just("v"))), ONE, 0, checkpoint, b"loose"
        )
        for checkpoint in data.draw(st.sets(st.integers(1, 12)))
    ]
    strange = ["job/notes.md", "other/cuts/000001-000000000001"]
    there = {name_of(s) for s in newest} | {i.name for s in newest for i in s.images}
    there |= {i.name for i in loose} | {claim_name("job", n) for n in (1, 2, 3)} | set(strange)
    number = data.draw(st.integers(1, 4))
    keep = data.draw(st.sets(st.sampled_from(sorted(there))))
    kept = data.draw(st.integers(2, 4))
    dropped = droppable("job", there, newest[:kept], number, keep)

    assert len(dropped) == len(set(dropped)) and set(dropped) <= there
    left = there - set(dropped)
    for saved in newest[:kept]:
        assert {name_of(saved), *(i.name for i in saved.images)} <= left
    assert not set(dropped) & {*strange, *keep}
    if len(newest) < 2 or newest[0].number > number:
        assert not dropped
        return
    top = (newest[0].number, newest[0].checkpoint)
    for name in dropped:
        at = named("job", name)
        assert at is not None and at[1:] <= top, "what may become a cut stays"
    needed = {i.name for s in newest[:kept] for i in s.images} | keep
    for saved in newest[kept:]:
        assert name_of(saved) in dropped or name_of(saved) in keep
        assert all(i.name in {*dropped, *needed} for i in saved.images)
    kinds = [at.kind for n in dropped if (at := named("job", n)) is not None]
    assert kinds == sorted(kinds, key=["cuts", "images", "runs"].index), "manifests go first"


@examples(60)
@given(checkpoints(), st.randoms(use_true_random=False))
def test_parts_of_chains_make_up_what_is_wanted(saved: Saved, rng: Any) -> None:
    for vertex in saved.chains:
        for keys in random_ranges(rng, GROUPS):
            found = overlaps(saved, vertex, keys)
            groups = [g for _, part in found for g in range(part.lo, part.hi)]
            assert groups == list(range(keys.lo, keys.hi))
            assert all(c.keys.lo <= p.lo and p.hi <= c.keys.hi for c, p in found)
