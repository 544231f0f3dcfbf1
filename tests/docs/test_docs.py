"""Every block of code in the documents runs, and prints what the document says."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from benchmarks.chaos.soak_summary import read, summary, wrong
from raystream.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
RUN = {
    "README.md": "words",
    "docs/guide.md": "guide",
    "docs/connectors/sqlite.md": "sqlite_page",
    "docs/connectors/duckdb.md": "duckdb_page",
    "docs/connectors/own.md": "own_page",
    "docs/connectors/tables.md": "tables_page",
    "docs/connectors/formats.md": "formats_page",
    "docs/connectors/files.md": "files_page",
    "docs/connectors/push.md": "push_page",
    "docs/connectors/subscriptions.md": "subscriptions_page",
}
"""The documents whose blocks are run, and the module that their Python makes up."""
MARK = "\0block\0"

ELSEWHERE = {
    'curl -H "Authorization: Bearer secret" --data-binary @': "tests/io/test_push.py, alike",
    'curl -H "Authorization: Bearer secret" -H "Raystream-Sender': "tests/io/test_push.py, alike",
    "     --data-binary '{": "the line above, gone on",
    'curl -H "Authorization: Bearer secret" -X POST': "tests/io/test_push.py, alike",
    "export RAYSTREAM_PUSH_TOKEN=": "tests/io/test_push.py",
    "raystream certificates tls": "tests/security/test_certificates.py",
    "curl --cacert tls/ca.crt": "tests/io/test_push.py, alike",
    "python3 -m venv .venv && source": "tools/install.py, alike",
    "pip install -e .": "tools/install.py, which `make` calls",
    "make run": "tests/lrb/test_cli.py, the same steps",
    "make test": "runs this",
    "raystream run words:flow --instances count=2": "tests/actors/client/test_submit.py",
    "raystream run words:slow": "tests/actors/client/test_submit.py, alike",
    "raystream run words:flow --policy cpu":
        "tests/cli/test_cli.py, tests/actors/jobs/test_elastic.py",
    "raystream run examples.word_count:flow --policy cpu": "the same",
    "raystream run examples.word_count:flow --address auto --instances CountWords=2":
        "tests/actors/client/test_submit.py",
    "ray job submit --working-dir . -- python -m raystream run examples.word_count:flow":
        "tests/actors/client/test_submit.py",
    "raystream run examples.word_count:flow --durable": "tests/actors/jobs/test_ray_durable.py",
    "raystream demo": "tests/cli/test_demo.py",
    "raystream new": "tests/cli/test_project.py",
    "raystream status word-count": "tests/cli/test_status.py",
    "raystream top": "tests/cli/test_status.py",
    "raystream story": "tests/cli/test_status.py",
    "raystream state word-count": "tests/actors/observed/test_ray_queries.py, alike",
    'curl -H "Authorization: Bearer $RAYSTREAM_STATE': "tests/actors/client/test_querying.py",
    "raystream ui": "tests/actors/observed/test_ray_page.py",
    "raystream stop word-count --save": "tests/actors/jobs/test_ray_durable.py",
    "raystream scale words": "tests/actors/jobs/test_ray_moves.py",
    "raystream scale word-count": "tests/actors/jobs/test_ray_moves.py",
    "raystream move word-count": "tests/actors/jobs/test_ray_moves.py",
    "raystream drain word-count": "tests/actors/jobs/test_ray_moves.py",
    "raystream push alarms limits": "tests/actors/world/test_ray_controlled.py, alike",
    "python -m spark_ingest generate": "tests/spark_ingest/test_cli.py",
    "python -m lrb run": "tests/lrb/test_cli.py",
    "python -m lrb validate": "tests/lrb/test_cli.py",
    "python -m lrb rate": "tests/lrb/rating/test_rate.py",
    "ray job submit --working-dir . -- python -m lrb run":
        "tests/actors/client/test_submit.py, alike",
}  # fmt: skip
"""Commands of the documents that other tests run, by how they begin."""


class Block(NamedTuple):
    language: str
    first: int  # the line after the fence, counted from 0
    lines: tuple[str, ...]


def blocks(document: str) -> list[Block]:
    found: list[Block] = []
    lines = (ROOT / document).read_text(encoding="utf-8").splitlines()
    language, first = None, 0
    for at, line in enumerate(lines):
        fence = re.match(r"```(\w*)\s*$", line)
        if fence and language is None:
            language, first = fence[1], at + 1
        elif fence:
            found.append(Block(str(language), first, tuple(lines[first:at])))
            language = None
    assert language is None, f"{document}: a block is not closed"
    return found


def as_module(document: str) -> str:
    """All Python of a document, on the lines where it stands; each prints a mark at its end."""
    out = [""] * (len((ROOT / document).read_text(encoding="utf-8").splitlines()) + 1)
    out[0] = "from __future__ import annotations"
    for block in blocks(document):
        if block.language == "python":
            end = block.first + len(block.lines)
            out[block.first : end] = block.lines
            out[end] = f"print({MARK!r})"
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("document", RUN)
def test_python_prints_what_the_document_says(
    document: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"{RUN[document]}.py"
    path.write_text(as_module(document), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    printed = [p.strip() for p in capsys.readouterr().out.split(f"{MARK}\n")]
    found = blocks(document)
    python = [i for i, b in enumerate(found) if b.language == "python"]
    assert len(printed) == len(python) + 1
    for text, at in zip(printed, python, strict=False):
        after = found[at + 1] if at + 1 < len(found) else None
        said = after.lines if after is not None and after.language == "text" else ()
        assert text.splitlines() == list(said), f"{document}:{found[at].first}"


def commands(document: str) -> list[str]:
    lines = [line for b in blocks(document) if b.language == "sh" for line in b.lines]
    return [re.sub(r"\s+#.*", "", line) for line in lines]


@pytest.mark.parametrize(("document", "line"), [(d, c) for d in RUN for c in commands(d)])
def test_commands_run(
    document: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if any(line.startswith(known) for known in ELSEWHERE):
        return
    program, *arguments = shlex.split(line)
    assert program == "raystream", f"{document}: nothing tries `{line}`"
    (tmp_path / f"{RUN[document]}.py").write_text(as_module(document), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, RUN[document], raising=False)
    result = CliRunner().invoke(app, arguments)
    monkeypatch.delitem(sys.modules, RUN[document], raising=False)
    assert result.exit_code == 0, result.output
    assert (
        "flow" in result.output
        or "ok     source" in result.output
        or "ended after" in result.output
        or "key groups" in result.output
    )


def test_commands_that_others_try_are_in_the_documents() -> None:
    told = [c for d in RUN for c in commands(d)]
    assert [k for k in ELSEWHERE if not any(c.startswith(k) for c in told)] == []


DOCUMENTS = sorted(
    str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)


@cache
def file_names() -> set[str]:
    """Names of all modules of the repository, without their folders."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()  # nothing where there is no git: then all that is there counts
    paths = [Path(p) for p in listed] or list(ROOT.glob("*/**/*.py"))
    return {p.name for p in paths}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_and_file_names_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    here = (ROOT / document).parent
    links = [m for m in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in m]
    missing = [link for link in links if not (here / link).exists()]
    names = re.findall(
        r"`((?:raystream|tests|examples|lrb|spark_ingest|docs|tools|benchmarks)/[\w/.-]+)`", text
    )
    missing += [n for n in names if not (ROOT / n).exists()]
    if "docs/lab" not in document:  # pages of their day
        beside = re.findall(r"`(\w+\.py)`", text)
        saved = re.findall(r"Save this as `(\w+\.py)`", text)  # by the reader
        missing += [n for n in beside if n not in file_names() and n not in saved]
    assert not missing


def test_decisions_are_listed_by_their_numbers() -> None:
    pages = sorted((ROOT / "docs/decisions").glob("0*.md"))
    titles = [p.read_text(encoding="utf-8").splitlines()[0] for p in pages]
    listed = [
        f"{number}. [{re.sub(r'^# [0-9]+[.] ', '', title)}]({page.name})"
        for number, (page, title) in enumerate(zip(pages, titles, strict=True), 1)
    ]
    assert [int(p.name[:4]) for p in pages] == list(range(1, len(pages) + 1))
    assert [title.partition(".")[0] for title in titles] == [
        f"# {n + 1}" for n in range(len(pages))
    ]
    assert (
        (ROOT / "docs/decisions/README.md")
        .read_text(encoding="utf-8")
        .endswith("\n\n" + "\n".join(listed) + "\n")
    )


def anchors(path: Path) -> set[str]:
    """What a link may name behind the `#`, as GitHub makes it from the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_headings_that_are_linked_exist(document: str) -> None:
    path = ROOT / document
    links = re.findall(r"\]\(([^)#\s:]*)#([\w-]+)\)", path.read_text(encoding="utf-8"))
    missing = [
        f"{page}#{heading}"
        for page, heading in links
        if heading not in anchors(path.parent / page if page else path)
    ]
    assert not missing


def test_soak_runs_are_summed_up_as_the_command_prints_them() -> None:
    printed = [*summary(read()), "", *wrong(read())]
    page = (ROOT / "docs/reference/guarantees.md").read_text(encoding="utf-8")
    assert "\n".join(printed) in page, "copy what `python -m benchmarks soak-summary` prints"


def test_each_guarantee_names_what_tries_it() -> None:
    """A test, the simulator or a command in each row of a table; the test or folder is there."""
    page = (ROOT / "docs/reference/guarantees.md").read_text(encoding="utf-8")
    page = page[: page.index("## Soak runs")]
    tables = re.findall(r"^\|.*\|\n\|[-|: ]+\|\n((?:\|.*\|\n)+)", page, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 60
    without = [
        row
        for row in rows
        if not re.search(r"`tests/|simulator|`rs\.testing\.check_|`python -m benchmarks", row)
    ]
    assert not without, "\n".join(without)
    named = set(re.findall(r"`(tests/[\w/.]+)`", page))
    assert not [name for name in named if not (ROOT / name).exists()]
    for test in re.findall(r"`(test_\w+)`", page):
        found = [p for p in (ROOT / "tests").rglob("*.py") if f"def {test}(" in p.read_text()]
        assert found, test


def test_every_extra_for_users_is_in_the_readme() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ours = {"dev", "docs", "bench"}  # for the tests, the site and the benchmarks
    extras = project["optional-dependencies"].keys() - ours
    assert not [extra for extra in extras if f"`.[{extra}]`" not in readme]


def test_the_page_of_numbers_stays_short() -> None:
    assert (ROOT / "docs/performance.md").read_text(encoding="utf-8").count("\n") <= 150
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") < 250


def test_answers_to_strangers_name_what_is_there() -> None:
    text = (ROOT / "docs/lab/strangers.md").read_text(encoding="utf-8")
    answers = re.findall(r"^\|.*\| `(raystream/[\w/.]+)` \| (?:`(\w+)`)? *\|$", text, re.MULTILINE)
    assert len(answers) >= 10
    missing = [
        f"{file}: {name}"
        for file, name in answers
        if not re.search(rf"\b{name}\b", (ROOT / file).read_text(encoding="utf-8"))
    ]
    assert not missing
