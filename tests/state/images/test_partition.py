"""Where the key groups of an image begin: what a keeper does first when it cuts one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from raystream.schema.types import KeyRange
from raystream.state.images.image import KEY, Image, ImageHeader, InputPosition
from raystream.state.images.partition import offsets_of, recut_encoded
from raystream.state.keys import even_ranges, key_group
from tests.gates import LIMIT_SECONDS

GROUPS = 16
INTS, TEXTS = st.integers(-(2**63), 2**63 - 1), st.text("aé日", max_size=20)


def rows_of(keys: list[tuple[Any, ...]]) -> Any:
    """Rows of these keys in key order."""
    keys = sorted(keys, key=lambda key: key_group(key, GROUPS))
    names = [f"{KEY}{i}" for i in range(len(keys[0]))]
    return pa.RecordBatch.from_arrays([pa.array(c) for c in zip(*keys, strict=True)], names)


@given(
    keys=st.lists(st.tuples(INTS), min_size=1)
    | st.lists(st.tuples(TEXTS), min_size=1)
    | st.lists(st.tuples(TEXTS, INTS, st.binary(max_size=9)), min_size=1)
)
def test_key_groups_are_found_by_halving(keys: list[tuple[Any, ...]]) -> None:
    groups = np.sort([key_group(key, GROUPS) for key in keys])
    bounds = range(GROUPS + 1)
    assert offsets_of(rows_of(keys), GROUPS, bounds) == np.searchsorted(groups, bounds).tolist()


CHECKPOINT = """
import sys
from pathlib import Path
from raystream.actors.keepers.backup import KeyRange, recut_encoded
from raystream.actors.keepers.keeper import put_off_pandas
put_off_pandas()
path = Path(sys.argv[1])
path.write_bytes(recut_encoded([path.read_bytes()], KeyRange(*map(int, sys.argv[2:]))))
print(sorted({"numba", "pyarrow.compute"} & set(sys.modules)))
"""


def test_a_keeper_cuts_images_without_compiled_code(tmp_path: Path) -> None:
    """A fresh process would have to load it first, and somebody waits."""
    rows = rows_of([(f"k{i}", i) for i in range(1000)])
    header = ImageHeader(
        operator="op",
        shape="shape",
        groups=GROUPS,
        keys=KeyRange(0, GROUPS),
        base=0,
        checkpoint=1,
        input_position=InputPosition(10),
    )
    encoded = Image(header, rows, rows.slice(0, 0)).encode()
    _, part = even_ranges(GROUPS, 2)
    (path := tmp_path / "image").write_bytes(encoded)
    ran = subprocess.run(
        [sys.executable, "-c", CHECKPOINT, str(path), *map(str, part)],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    assert ran.stdout == "[]\n"
    assert path.read_bytes() == recut_encoded([encoded], part) != encoded
