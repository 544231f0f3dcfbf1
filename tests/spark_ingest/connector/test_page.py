"""The page of Spark prints what it says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_docs import MARK, as_module, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGE = "docs/connectors/spark.md"


def test_the_page_prints_what_it_says(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "spark_page.py"
    path.write_text(as_module(PAGE), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("spark_page", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "spark_page", module)
    spec.loader.exec_module(module)
    printed = capsys.readouterr().out.partition(MARK)[0].strip().splitlines()
    assert printed == [*blocks(PAGE)[1].lines]
