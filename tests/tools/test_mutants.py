"""What `make mutants` draws and counts; it does not run mutmut here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import mutants  # noqa: E402

FOUND: dict[str, dict[str, int | None]] = {
    "a.py": {f"a{i}": 1 for i in range(30)},
    "b.py": {"b1": 1, "b2": 0, "b3": 33, "b4": None, "b5": 36},
}


def test_a_sample_is_the_same_each_time_and_has_some_of_each_module() -> None:
    drawn = mutants.sample(FOUND, 7, 1)
    assert drawn == mutants.sample(FOUND, 7, 1) != mutants.sample(FOUND, 7, 2)
    assert len([n for n in drawn if n in FOUND["a.py"]]) == 7
    assert len(drawn) == 7 + len(FOUND["b.py"])


def test_verdicts() -> None:
    verdicts = {n: mutants.verdict(code) for n, code in FOUND["b.py"].items()}
    assert verdicts == {
        "b1": "killed", "b2": "survived", "b3": "survived", "b4": "untried", "b5": "killed",
    }  # fmt: skip


def test_a_report_counts_by_module(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "mutmut", lambda *given: [sys.executable, "-c", "print('diff')"])
    monkeypatch.setattr(mutants, "TREE", ROOT)
    assert mutants.report(FOUND) == 1  # one was not tried
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:4] == [
        ["a.py", "30", "0", "0"], ["b.py", "2", "2", "1"], ["all", "32", "2", "1"],
    ]  # fmt: skip
    assert lines.count(["diff"]) == 2
    assert mutants.report({"a.py": FOUND["a.py"]}) == 0
    assert mutants.report({}) == 1


def test_what_is_not_of_the_core_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        mutants.main(["cli/app"])
    assert refused.value.code == 2 and "no module of the core: cli/app" in capsys.readouterr().err


def test_modules_and_their_tests_are_there() -> None:
    for module, tests in mutants.CORE.items():
        assert [*ROOT.glob(module)], module
        assert all((ROOT / test).exists() for test in tests), tests


def test_mutmut_is_told_what_to_change_and_which_tests_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tomllib

    for name in mutants.COPIED:
        (tmp_path / name).touch() if "." in name else (tmp_path / name).mkdir()
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "TREE", tmp_path / "tree")
    mutants.make_tree({"raystream/a.py": ["tests/test_a.py"]})
    told = tomllib.loads((tmp_path / "tree" / "pyproject.toml").read_text())["tool"]["mutmut"]
    assert told["only_mutate"] == ["raystream/a.py"]
    assert told["pytest_add_cli_args_test_selection"] == ["tests/test_a.py"]
    meta = tmp_path / "tree" / "mutants" / "raystream" / "a.py.meta"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"exit_code_by_key": {"a1": None}}))
    assert mutants.found() == {"raystream/a.py": {"a1": None}}
