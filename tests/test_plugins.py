"""Names that other packages give a meaning by entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from raystream.errors import ConfigError
from raystream.plugins import STORES, Registry

GROUP = "raystream.tests"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Install a package that has these entry points, as pip would."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(package: str, **entries: str) -> None:
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in entries.items())]
        (info / "entry_points.txt").write_text("\n".join(lines))

    return install


def test_what_raystream_has_is_found_without_looking_at_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = Registry[object](GROUP, {"here": "pathlib:Path"})
    monkeypatch.setattr(Registry, "_theirs", lambda self: pytest.fail("it looked"))
    assert registry.get("here") is Path


def test_a_package_adds_a_name(install) -> None:
    registry = Registry[object](GROUP, {"here": "pathlib:Path"})
    assert registry.get("there") is None
    install("adds", there="fractions:Fraction.from_float", here="fractions:Fraction")
    from fractions import Fraction

    assert registry.get("there") == Fraction.from_float
    assert registry.get("here") is Path, "what raystream has itself cannot be replaced"
    assert registry.known() == ["here", "there"]
    assert "there" not in Registry(STORES, {}).known()


def test_a_name_of_two_packages_is_refused(install) -> None:
    install("one", name="pathlib:Path")
    install("two", name="fractions:Fraction")
    with pytest.raises(ConfigError, match=r"several things .* fractions:Fraction, pathlib:Path"):
        Registry(GROUP, {}).get("name")


@pytest.mark.parametrize("value", ["not_there:thing", "pathlib:thing"])
def test_what_cannot_be_imported_is_told(install, value: str) -> None:
    install("broken", name=value)
    with pytest.raises(ConfigError, match=f"name of {GROUP} is {value}, which cannot be imported"):
        Registry(GROUP, {}).get("name")
