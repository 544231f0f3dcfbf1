"""PyArrow does without pandas until somebody imports it, and then with it as ever."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("pandas") is None, reason="there is no pandas")

START = """
import sys
import numpy as np
import pyarrow as pa
from raystream.native.lazy_pandas import put_off_pandas
put_off_pandas()
pa.array(["a", None]), pa.array(np.arange(3)), pa.record_batch({"n": [1]}).to_pylist()
assert "pandas" not in sys.modules
"""


def python(code: str) -> None:
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "pa.record_batch({'n': [1, None]}).to_pandas()",
        "import pandas",
        "import pandas.api.types",
        "import importlib.util; importlib.util.find_spec('pandas'); import pandas",
    ],
    ids=["to_pandas", "import", "import of a part", "looked for before"],
)
def test_pyarrow_knows_pandas_once_it_is_imported(code: str) -> None:
    """A series with a gap: to PyArrow a null with pandas, a number that is none without."""
    python(
        START
        + code
        + """
import pandas as pd
assert pa.lib._pandas_api.have_pandas
assert pa.array(pd.Series([1.0, float("nan")])).null_count == 1
assert pa.array(pd.Categorical(["x"])).type == pa.dictionary(pa.int8(), pa.string())
frame = pd.DataFrame({"n": [1, 2], "s": ["a", None]})
batch = pa.RecordBatch.from_pandas(frame)
assert batch.to_pandas().equals(frame)
assert not any(type(f).__module__.startswith("raystream") for f in sys.meta_path)
"""
    )


def test_who_imports_something_else_meanwhile_finds_it() -> None:
    """Python goes through the list of finders that it took up."""
    python(START + "before = sys.meta_path; finders = len(before); import pandas"
           + "; assert len(before) == finders and len(sys.meta_path) == finders - 1")  # fmt: skip


def test_an_import_that_fails_can_be_tried_again() -> None:
    python(
        START
        + """
import io
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas._config":
            raise ImportError("broken")
broken = Broken()
sys.meta_path.insert(0, broken)
try:
    import pandas
except ImportError as error:
    assert "broken" in str(error)
else:
    raise AssertionError
sys.meta_path.remove(broken)
import pandas as pd
assert pa.array(pd.Series([float("nan")])).null_count == 1
"""
    )


@pytest.mark.parametrize("before", ["import sys, pandas", START], ids=["imported", "put off"])
def test_nothing_is_put_off_twice(before: str) -> None:
    python(
        f"{before}\nfrom raystream.native.lazy_pandas import put_off_pandas\n"
        "before = list(sys.meta_path); put_off_pandas(); assert sys.meta_path == before\n"
        "import pandas"
    )
