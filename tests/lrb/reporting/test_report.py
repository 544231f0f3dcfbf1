"""The table and the page of a run: every number is there, nothing comes from elsewhere."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from lrb.oracle.answers import KINDS, LATENCY_FILE, LATENCY_SCHEMA, RUN_FILE, TOLL
from lrb.oracle.validate import Difference, KindVerdict, Verdict
from lrb.reporting import plots
from lrb.reporting.plots import latency_percentiles, seconds_text, series_of, short_number
from lrb.reporting.report import summary_table, write_report
from raystream.errors import ConfigError, InputError
from tests.lrb.sample_run import sample_latency, sample_run

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def _coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is most of the time of these tests, and nobody looks."""
    monkeypatch.setattr(plots, "DPI", 40)


def verdict_of(*, wrong: int = 0, late: int | None = 0) -> Verdict:
    """A verdict on 4,000 answers; what is wrong or late are tolls."""
    difference = Difference(TOLL, {"vid": 8, "time": 61}, ({"lav": 39, "toll": 200},), ())
    kinds = tuple(
        KindVerdict(
            kind=kind,
            expected=1000,
            answered=1000,
            wrong=wrong if kind is TOLL else 0,
            missing=wrong if kind is TOLL else 0,
            duplicates=0,
            late=late if kind is TOLL or late is None else 0,
            unmeasured=0,
            examples=(difference,) if wrong and kind is TOLL else (),
        )
        for kind in KINDS
    )
    expected = "f" * 16 if wrong else "0123456789abcdef"
    return Verdict(kinds, "0123456789abcdef", expected, positive_tolls=5, re_entries=9012)


def answers_folder(folder: Path, run: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / RUN_FILE).write_text(json.dumps(run))
    if run["speed"] is not None:
        pq.write_table(sample_latency(speed=run["speed"]), folder / LATENCY_FILE)
    return folder


def terminal(run: dict[str, Any], verdict: Verdict | None) -> str:
    console = Console(file=StringIO(), width=140, color_system=None)
    console.print(summary_table(run, verdict))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


class Page(HTMLParser):
    """The text of a page, and all that it would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "srcset", "href")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))


# ---- the table --------------------------------------------------------------------------------


def test_the_table_has_every_number() -> None:
    run = sample_run(speed=60.0)
    text = terminal(run, verdict_of())
    numbers = [
        *run["rows_in"].values(),
        *run["rows_out"].values(),
        sum(run["rows_in"].values()),
        run["positive_tolls"],
        round(run["rate"]),
        9012,
        4000,
    ]
    assert all(f"{number:,}" in text for number in numbers)
    assert all(word in text for word in ("62 ms", "210 ms", "480 ms", "1.9 s"))
    assert "vehicles=2 places=1 segments=2" in text
    assert "counted, not answered" in text
    assert "0123456789abcdef" in text


def test_the_table_says_what_was_kept_for_each_car() -> None:
    run = sample_run(speed=60.0)
    for operator in run["operators"]:
        kept = {"accounts": (1_000, 50_000), "vehicles": (400, 64_000)}.get(
            operator["name"], (0, 0)
        )
        operator["state_rows"], operator["state_bytes"] = kept
    text = terminal(run, None)
    told = text[text.index("State at the end") :]
    assert "0.1 MB of memory at most, 50.0 bytes for each car ever seen" in told
    assert "64.0 bytes for each car" in told
    assert "places" not in told
    assert "State" not in terminal({**run, "operators": run["operators"][:1]}, None)


def test_the_table_says_that_nothing_was_checked() -> None:
    text = terminal(sample_run(speed=60.0), None)
    assert "python -m lrb validate" in text
    assert "re-entries" not in text


def test_the_table_has_no_latency_at_full_speed() -> None:
    text = terminal(sample_run(speed=None), verdict_of(late=None))
    assert "latency is not defined" in text
    assert "p50" not in text


# ---- the page ---------------------------------------------------------------------------------


def test_the_page_is_one_file_without_scripts(tmp_path: Path) -> None:
    answers = answers_folder(tmp_path / "answers", sample_run(speed=60.0))
    path = write_report(answers, verdict_of(), tmp_path / "out")
    page = Page(path.read_text("utf-8"))
    assert path == tmp_path / "out" / "report.html"
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert len(page.loads) == 6  # three pictures, light and dark
    assert all(load.startswith("data:image/png;base64,") for load in page.loads)
    assert "url(" not in path.read_text("utf-8")
    assert "All 4,000 answers are right, and in time." in page.text
    names = {file.name for file in (tmp_path / "out").glob("*.png")}
    assert names == {"input-and-latency.png", "rates.png", "cpu.png"}
    assert all((tmp_path / "out" / name).read_bytes().startswith(PNG) for name in names)


def test_the_page_has_the_table_and_the_operators(tmp_path: Path) -> None:
    run = sample_run(speed=60.0)
    text = Page(
        write_report(answers_folder(tmp_path / "answers", run), verdict_of(), tmp_path).read_text(
            "utf-8"
        )
    ).text
    for number in (*run["rows_in"].values(), *run["rows_out"].values(), 9012):
        assert f"{number:,}" in text
    for operator in run["operators"]:
        assert operator["name"] in text
        assert f"{operator['records_in']:,}" in text
    assert "(type 4) are counted and ignored" in text


def test_the_page_shows_what_is_wrong(tmp_path: Path) -> None:
    answers = answers_folder(tmp_path / "answers", sample_run(speed=60.0))
    text = Page(write_report(answers, verdict_of(wrong=7, late=2), tmp_path).read_text()).text
    assert "The answers are not right: 7 wrong, 7 missing, 0 duplicate." in text
    assert "toll of vid=8 time=61: expected lav=39 toll=200; answered nothing" in text
    assert f"expected {'f' * 16}" in text


def test_the_page_shows_what_is_late(tmp_path: Path) -> None:
    answers = answers_folder(tmp_path / "answers", sample_run(speed=60.0))
    text = Page(write_report(answers, verdict_of(late=2), tmp_path).read_text()).text
    assert "All 4,000 answers are right, and not all of them are known to be in time." in text


def test_at_full_speed_the_page_says_why_there_is_no_latency(tmp_path: Path) -> None:
    answers = answers_folder(tmp_path / "answers", sample_run(speed=None))
    text = Page(write_report(answers, verdict_of(late=None), tmp_path / "out").read_text()).text
    assert "There is no plot of latency: at full speed" in text
    assert {file.name for file in (tmp_path / "out").glob("*.png")} == {
        "input.png",
        "rates.png",
        "cpu.png",
    }


def test_a_run_without_series_has_a_page_without_plots(tmp_path: Path) -> None:
    run = sample_run(speed=None) | {"series": []}
    text = Page(write_report(answers_folder(tmp_path / "a", run), None, tmp_path).read_text()).text
    assert "there is nothing to plot" in text
    assert "answers, not checked." in text


def test_a_run_in_one_process_has_no_plot_of_cpu(tmp_path: Path) -> None:
    run = sample_run(speed=None) | {"cluster": "local"}
    run["series"] = run["series"][:1]
    for operator in run["operators"]:
        operator["cpu_seconds"] = 0.0
    for rates in run["series"][0]["operators"].values():
        rates["cpu"] = 0.0
    text = Page(write_report(answers_folder(tmp_path / "a", run), None, tmp_path).read_text()).text
    assert "There is no plot of CPU" in text
    assert "in one process" in text
    assert {file.name for file in tmp_path.glob("*.png")} == {"input.png", "rates.png"}


def test_a_paced_run_without_answers_has_no_latency_either(tmp_path: Path) -> None:
    run = sample_run(speed=20.0) | {"latency": None, "deadline_missed": 0}
    answers = answers_folder(tmp_path / "answers", run)
    pq.write_table(LATENCY_SCHEMA.empty_table(), answers / LATENCY_FILE)
    text = Page(write_report(answers, None, tmp_path).read_text()).text
    assert "There is no plot of latency: there was nothing to answer." in text


def test_names_from_the_run_are_text_and_not_markup(tmp_path: Path) -> None:
    run = sample_run(speed=None) | {"input": "<script>alert(1)</script>", "series": []}
    page = Page(write_report(answers_folder(tmp_path / "a", run), None, tmp_path).read_text())
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text


def test_bad_input_and_output_are_named(tmp_path: Path) -> None:
    run = sample_run(speed=None)
    answers = answers_folder(tmp_path / "answers", run)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write the report"):
        write_report(answers, None, tmp_path / "file")
    del run["rate"], run["series"]
    with pytest.raises(InputError, match=r"run\.json lacks rate, series"):
        write_report(answers_folder(answers, run), None, tmp_path)


# ---- what the plots are made of ---------------------------------------------------------------


def test_percentiles_are_those_of_each_bin() -> None:
    seconds = np.array([0.0, 0.1, 0.2, plots.BINS, plots.BINS])
    latency = np.array([1.0, 2.0, 3.0, 7.0, 9.0])
    at, values = latency_percentiles(seconds, latency)
    assert at.tolist() == [0.5, plots.BINS - 0.5]  # bins without answers are left out
    assert values[:, 0].tolist() == [2.0, 8.0]
    assert values[:, -1].tolist() == [3.0, 9.0]


def test_input_is_what_the_source_reads_or_else_emits() -> None:
    run = sample_run(speed=None)
    series = series_of(run)
    assert series is not None
    assert series.source == "rows"
    out = [point["operators"]["rows"]["out"] for point in run["series"]]
    assert series.input_rate.tolist() == [out[0], *out]
    assert series.t.tolist() == [0.0, *(point["t"] for point in run["series"])]


def test_an_operator_that_a_point_lacks_did_nothing_then() -> None:
    run = sample_run(speed=None)
    del run["series"][3]["operators"]["places"]
    series = series_of(run)
    assert series is not None
    assert series.operators["places"]["in"][4] == 0
    assert series.operators["places"]["in"][5] > 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0032, "3.2 ms"), (0.25, "250 ms"), (0.9999, "1 s"), (1.2, "1.2 s"), (15, "15 s")],
)
def test_durations_have_a_unit_that_suits_them(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (0.5, "0.5"), (200, "200"), (50_000, "50 k"), (2.5e6, "2.5 M")]
)
def test_numbers_on_an_axis_are_short(number: float, text: str) -> None:
    assert short_number(number) == text
