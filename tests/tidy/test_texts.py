"""Nothing in the project names the machine on which it was made."""

from __future__ import annotations

import re

from tests.tidy.code import files, name_of

TEXT = {".py", ".md", ".toml", ".txt", ".html", ".j2", ".sh", ".cfg", ".yaml", ".yml", ".json", ""}

# What belongs to one machine and not to the project. Written in pieces, so as not to find itself.
PRIVATE = re.compile(
    "|".join(
        [
            r"(?<![\w.])/" + r"(work|farm)/",
            r"(?<!\w)/tmp/" + r"(rs-venv|brief)",
            "pypi" + r"\.org",
            "pythonhosted" + r"\.org",
            "registry" + r"\.npmjs",
        ]
    )
)
SLICES = re.compile(r"\bshared/|\"shared\"|'shared'")


def private(text: str) -> list[str]:
    found = [m.group() for m in PRIVATE.finditer(text)]
    if "RAYSTREAM_LRB_SLICES" not in text:  # the locator of the slices may say where they are
        found += [m.group() for m in SLICES.finditer(text)]
    return found


def test_nothing_names_one_machine() -> None:
    texts = {name_of(p): p.read_text(encoding="utf-8", errors="replace") for p in files(TEXT)}
    found = {name: named for name, text in texts.items() if (named := private(text))}
    assert not found


def test_names_of_one_machine_are_found() -> None:
    assert private("cd /" + "work/main") == ["/" + "work/"]
    assert private("open('../sha" + "red/a')") == ["sha" + "red/"]
    assert private("our/" + "work/main") == []
