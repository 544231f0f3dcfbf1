"""`raystream replay` and `raystream fork`: a job that has failed, looked at."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from raystream.cli.app import app
from raystream.cli.replaying import versions
from raystream.durable.manifest import Saved, SavedChain, SavedImage
from raystream.durable.saves import Saves
from raystream.durable.store import missing, open_store
from raystream.schema.types import KeyRange

MODULE = """\
from collections.abc import Iterator
from typing import NamedTuple

import raystream as rs


class Word(NamedTuple):
    time: int
    text: str
    n: int = 1


class Tally(rs.State):
    n: int = 0


@rs.operator(key="text")
def count(word: Word, tally: Tally) -> Iterator[Word]:
    tally.n += word.n
    if tally.n == {limit}:
        raise ValueError("enough of this")
    yield Word(word.time, word.text, tally.n{more})


def flow() -> rs.Flow:
    made = rs.Flow("words")
    words = [Word(time, w) for time, w in enumerate("to be or not to be".split() * 10)]
    source = made.source(rs.io.iterable(words, Word), epochs=rs.by_time(seconds=1), name="words")
    source.through(count).to(rs.io.parquet("out"), name="files")
    return made
"""


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the module of a job, and the newer version in the folder `new`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "replayed_words", raising=False)
    (tmp_path / "new").mkdir()
    code = MODULE.format(limit=12, more="")
    (tmp_path / "replayed_words.py").write_text(code, encoding="utf-8")
    more = " + 100 * (word.time % 10 == 0)"
    newer = MODULE.format(limit=-1, more=more)
    (tmp_path / "new" / "replayed_words.py").write_text(newer, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("replayed_words", None)


def call(*args: str, said: str | None = None) -> Result:
    return CliRunner().invoke(app, [*args], input=said)


def failed(*more: str) -> tuple[Result, str]:
    """The job that has failed, and the command that its error names."""
    run = ("run", "replayed_words:flow", "--local", "--durable", "cuts")
    result = call(*run, "--checkpoint-seconds", "0.25", *more)
    assert result.exit_code == 1, result.output
    (command,) = re.findall("Replay it: raystream (.*)", result.output)
    return result, command


def test_a_checkpoint_of_code_to_which_the_job_was_upgraded_is_said_to_be_one(words: Path) -> None:
    failed()
    saves = Saves(open_store("cuts"), "words")
    newest = saves.kept()[0]
    asked = (
        "replay",
        "replayed_words:flow",
        "--durable",
        "cuts",
        "--to",
        str(newest.checkpoint + 1),
    )
    assert "was upgraded" not in call(*asked).output
    saves.commit(replace(newest, code="words:new", version=1))
    assert "the job was upgraded: words:new made that checkpoint" in call(*asked).output


def test_a_job_may_delete_the_checkpoint_that_is_replayed(
    words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps two, and a replay reads the images only when it has loaded both versions."""
    failed()
    compare, kept, lists = versions.compare, Saves.kept, 0

    def deleted(*what: Any, **more: Any) -> bool:
        shutil.rmtree("cuts")
        return compare(*what, **more)

    def stale(saves: Saves) -> list[Saved]:
        """The first two times the newest is deleted just then."""
        nonlocal lists
        lists += 1
        found = kept(saves)
        if lists > 2:
            return found
        gone = SavedChain(KeyRange(0, 256), (SavedImage("gone", 0, 1, 1, 1),))
        return [replace(found[0], chains={"count": (gone,)}), *found[1:]]

    monkeypatch.setattr(versions, "compare", deleted)
    monkeypatch.setattr(Saves, "kept", stale)
    code = ("--code", "replayed_words:flow", "--code-folder", "new")
    asked = (
        "fork",
        "replayed_words:flow",
        "--as",
        "trial",
        "--durable",
        "cuts",
        "--to",
        "8",
        *code,
    )
    result = call(*asked)
    assert lists == 3 and "no epoch was compared" in result.output, result.output


def test_a_checkpoint_that_is_always_deleted_before_it_is_read_is_said_to_be(
    words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed()

    def gone(saves: Saves, saved: Saved) -> None:
        raise missing("cuts", "an image")

    monkeypatch.setattr(Saves, "hold", gone)
    result = call("replay", "replayed_words:flow", "--durable", "cuts")
    assert result.exit_code == 2
    assert "deletes its checkpoints" in result.output and "--keep N" in result.output


def test_the_command_of_an_error_shows_the_record_and_its_row(words: Path) -> None:
    result, command = failed()
    error = result.output[result.output.index("error: ") :]
    again = call(*shlex.split(command))
    assert again.exit_code == 1
    assert again.stdout.endswith(
        "epoch 35  count  key 'to'\n"
        "  in       Word(time=34, text='to', n=1)\n"
        "  before   Tally(n=11)\n"
        "  after    Tally(n=12)\n"
        "  raised   ValueError: enough of this\n"
    )
    assert again.stdout.count("key 'to'") == again.stdout.count("epoch ")
    first, *_, line = error.partition("\n  Replay it")[0].splitlines()
    assert first in again.output and line in again.output
    assert not list(words.glob("out/*/*.new")) and "kept are 1-25, 1-30" in again.stderr


def test_a_job_is_found_by_its_name(words: Path) -> None:
    failed("--keep", "4")
    result = call("replay", "words", "--durable", "cuts", "--from", "15", "--to", "33")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [
        f"from checkpoint 15 of run 1 of words in {words}/cuts/words; kept are 1-15, 1-20, 1-25,"
        " 1-30",
        "replayed epochs 16 to 33: 18 records were read, and made 18 for files; nothing was"
        " written",
    ]
    for asked, says in (
        (["words", "--from", "3"], "There are 1-15, 1-20, 1-25, 1-30: a replay reaches back to"),
        (["nothing"], "no checkpoint is in"),
        (["words", "--operator", "split", "--show"], "there is no operator 'split' to look at"),
        (["words", "--code-folder", "new"], "--code-folder needs --code"),
        (["words", "--code", "replayed_words:flow", "--show"], "compares what two versions make"),
    ):
        refused = call("replay", *asked, "--durable", "cuts")
        assert refused.exit_code == 2 and says in refused.stderr, refused.output
    for command in (["replay", "words"], ["plan", "replayed_words:flow"]):
        option = "--durable" if command[0] == "replay" else "--resume"
        refused = call(*command, option, "typo")
        assert refused.exit_code == 2 and "no checkpoint" in refused.stderr, refused.output
        assert not (words / "typo").exists(), "nothing is written where nothing is found"


def test_a_replay_may_begin_at_the_beginning(words: Path) -> None:
    flow = "replayed_words:flow"
    result = call("replay", flow, "--to", "30")
    assert result.exit_code == 0, result.output
    assert "words from the beginning of its input\nreplayed epochs 1 to 30: 30" in result.stderr
    run = ("run", flow, "--local", "--durable", "cuts")
    early = call(*run, "--checkpoint-seconds", "60")
    (command,) = re.findall("Replay it: raystream (.*)", early.output)
    assert command == f"replay {flow} --to 35 --operator count --key to --show"
    again = call(*shlex.split(command))
    assert again.exit_code == 1 and again.stdout.count("key 'to'") == 12, again.output
    compared = call("replay", flow, "--code", flow, "--code-folder", "new", "--differences", "1")
    assert compared.exit_code == 1
    assert compared.stdout.startswith(
        "epoch 1  files\n  - Word(time=0, text='to', n=1)\n  + Word(time=0, text='to', n=101)\n"
    )
    assert (
        "compared epochs 1 to 34, 34 records of files: they differ in 4 places" in compared.stderr
    )
    for asked, says in (
        (["words"], "words is the name of a job"),
        ([flow, "--from", "20"], "--from 20 needs --durable URL"),
    ):
        refused = call("replay", *asked)
        assert refused.exit_code == 2 and says in refused.stderr, refused.output


def test_the_debugger_stops_before_the_record_with_its_row(words: Path) -> None:
    _, command = failed()
    args = shlex.split(command.replace("--show", "--debug"))
    result = call(*args, said="p (word.time, tally.n)\ntally.n = 3\nc\np (word.time, tally.n)\nq\n")
    assert result.exit_code == 0, result.output
    assert "epoch 31, count, key 'to', process of Word(time=30, text='to', n=1)\n" in result.stdout
    assert "-> tally.n += word.n\n" in result.stdout, "the first line of the operator"
    assert "(Pdb) (30, 10)\n" in result.stdout
    assert "(Pdb) (34, 4)\n" in result.stdout, "what was changed in the debugger holds"
    assert "left the debugger" in result.stderr


def test_the_debugger_opens_where_the_job_has_failed(words: Path) -> None:
    failed()
    result = call(
        "replay", "words", "--durable", "cuts", "--debug", said="p (word.time, tally.n)\n"
    )
    assert result.exit_code == 1
    assert '-> raise ValueError("enough of this")' in result.stdout and "(34, 12)" in result.stdout


def test_where_no_epoch_was_compared_none_is_named() -> None:
    first, second = SimpleNamespace(at=908), SimpleNamespace(at=909)
    pair: Any = SimpleNamespace(alone=[], failed="total raised", first=first, second=second)
    assert versions.outcome(pair, 909, 0).splitlines() == [
        "the first version ended in epoch 909: total raised",
        "the second went through that epoch, up to 909",
        "no epoch was compared",
    ]


def test_another_version_is_compared_record_by_record(words: Path) -> None:
    failed()
    code = ("--code", "replayed_words:flow", "--durable", "cuts")
    same = call("replay", "words", *code, "--to", "34")
    assert same.exit_code == 0, same.output
    assert "compared epochs 31 to 34, 4 records of files: no record differs" in same.stderr
    result = call("replay", "words", *code, "--code-folder", "new")
    assert result.exit_code == 1, result.output
    assert result.stdout == (
        "epoch 31  files\n  - Word(time=30, text='to', n=11)\n  + Word(time=30, text='to', n=111)\n"
    )
    assert "the first version ended in epoch 35: count raised ValueError" in result.stderr
    assert "the second went through that epoch, up to 35\n" in result.stderr
    broken = call("replay", "words", *code)
    assert broken.exit_code == 1 and "the second version ends in epoch 35:" in broken.stderr


def test_a_fork_runs_beside_the_job(words: Path) -> None:
    failed()
    fork = ("fork", "words", "--as", "trial", "--durable", "cuts", "--out", "trials")
    code = ("--code", "replayed_words:flow", "--code-folder", "new", "--differences", "0")
    result = call(*fork, *code, "--to", "33")
    assert result.exit_code == 1, result.output
    assert result.stdout == "more differ: --differences N shows them\n"
    assert "compared epochs 31 to 33, 3 records of files: they differ in 1 place" in result.stderr
    assert (words / "trials" / "trial" / "files").is_dir()
