"""What a shell or an editor offers behind `rs.`, `rs.io.` and `rs.testing.`."""

from __future__ import annotations

from typing import Any

import pytest

import raystream as rs


@pytest.mark.parametrize("module", [rs, rs.io, rs.testing], ids=lambda m: str(m.__name__))
def test_a_shell_offers_public_names_and_no_others(module: Any) -> None:
    offered = dir(module)
    assert set(module.__all__) <= set(offered)
    assert not [name for name in offered if name.startswith("_")]
    assert not {"Any", "Callable", "TypeVar", "annotations"} & set(offered), "what it has imported"
