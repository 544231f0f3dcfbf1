"""The user's functions that are told how a job goes: what they raise is named in words."""

from __future__ import annotations

from typing import Any

import pytest

from raystream.errors import OperatorError, Stopped
from tests.local.test_late import NEWEST_FIRST, run


def broken(told: Any) -> None:
    raise ValueError("the display is gone")


@pytest.mark.parametrize("name", ["on_progress", "on_note"])
def test_what_a_listener_raises_names_it_and_its_line(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raystream.io.memory.BATCH_ROWS", 10)  # so that records are late: a note
    options: Any = {name: broken}
    with pytest.raises(OperatorError, match=f"{name} raised ValueError: the display") as caught:
        run(NEWEST_FIRST, **options)
    assert caught.value.where is not None
    assert caught.value.where.file == __file__
    assert caught.value.where.text == 'raise ValueError("the display is gone")'
    assert isinstance(caught.value.__cause__, ValueError)


def stopping(told: Any) -> None:
    raise Stopped("enough")


def test_errors_of_raystream_pass_a_listener_unchanged() -> None:
    with pytest.raises(Stopped, match="enough"):
        run(NEWEST_FIRST, on_progress=stopping)
