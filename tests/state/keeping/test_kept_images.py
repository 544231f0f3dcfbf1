"""Images whose parts lie in memory or in files, and what is left of them when a file is damaged."""

from __future__ import annotations

from raystream.schema.types import KeyRange
from raystream.state.images.image_store import Stored
from raystream.state.keeping.files import placed
from raystream.state.keeping.kept_images import KeptImages, KeptPart
from raystream.state.keeping.tiles import tiles_of

ALL = KeyRange(0, 16)
HALVES = KeyRange(0, 8), KeyRange(8, 16)


def sent(kept: KeptImages[bytes], checkpoint: int, base: int | None, *, size: int = 40) -> bool:
    """Take an image in two parts; whether it is held."""
    for part in HALVES:
        data = bytes([checkpoint, part.lo]) * (size // 2)
        whole = kept.take(ALL, part, Stored(checkpoint, base, data, len(data), sender="a"))
    assert whole is not None
    return kept.images.store(1, ALL, whole)


def write(kept: KeptImages[bytes]) -> None:
    """Write all that is to be written."""
    while (batch := kept.holdings.next_batch()) is not None:
        parts = [kept.part(number).data for number in batch.parts]
        kept.written(batch, placed(batch.file, [part or b"" for part in parts]))


def test_a_damaged_part_takes_its_image_and_what_builds_on_it() -> None:
    kept: KeptImages[bytes] = KeptImages(100, 50)
    assert sent(kept, 1, None) and sent(kept, 2, 1)
    write(kept)
    assert sent(kept, 3, 2)
    ((keys, chain),) = kept.chains(1, 3)
    assert keys == ALL and [s.checkpoint for s in chain] == [1, 2, 3]
    first = chain[0].data[0]
    assert first.data is None and kept.place(first.number) is not None, "the oldest is in a file"
    assert chain[2].data[1].data is not None, "the newest is in memory"
    said, _ = kept.damaged(first.number)
    assert said == ["vertex 1 [0, 16) at checkpoint 1"]
    assert not kept.chains(1, 3) and first.number not in kept
    assert not sent(kept, 4, 3), "a delta on what is not held any more"
    assert sent(kept, 5, None), "a full image mends it"
    assert kept.chains(1, 5)
    kept.trim(5, {(1, ALL)})
    assert [s.checkpoint for s in kept.images.chains[1, ALL]] == [5]


def test_what_a_trim_leaves_is_what_is_counted() -> None:
    kept: KeptImages[bytes] = KeptImages(60, 50)
    for checkpoint in range(1, 6):
        assert sent(kept, checkpoint, None)
        write(kept)
    files = {*kept.holdings.files}
    gone = kept.trim(5, {(1, ALL)})
    assert {*gone} == files - {*kept.holdings.files} and gone
    assert kept.holdings.memory <= 80 == kept.images.nbytes
    assert not kept.holdings.disk or kept.holdings.files


def part(number: int, lo: int, hi: int, size: int = 10) -> KeptPart[bytes]:
    return KeptPart(number, KeyRange(lo, hi), size, None)


def test_tiles_follow_the_image_in_the_most_parts() -> None:
    fine = [part(1, 0, 4), part(2, 4, 8), part(3, 8, 12), part(4, 12, 16)]
    coarse = [part(5, 0, 10), part(6, 10, 16)]
    tiles = tiles_of([coarse, fine], ALL, nbytes=20)
    assert [t.keys for t in tiles] == [KeyRange(0, 8), KeyRange(8, 16)]
    assert [[p.number for p in parts] for parts in tiles[0].images] == [[5], [1, 2]]
    assert [[p.number for p in parts] for parts in tiles[1].images] == [[5, 6], [3, 4]]


def test_tiles_of_a_part_of_a_range_read_nothing_else() -> None:
    fine = [part(1, 0, 4), part(2, 4, 8), part(3, 8, 12), part(4, 12, 16)]
    tiles = tiles_of([fine], KeyRange(5, 11), nbytes=1)
    assert [t.keys for t in tiles] == [KeyRange(5, 8), KeyRange(8, 11)]
    assert [[p.number for p in parts] for t in tiles for parts in t.images] == [[2], [3]]
    assert [t.keys for t in tiles_of([[part(1, 0, 16)]], KeyRange(3, 5))] == [KeyRange(3, 5)]
