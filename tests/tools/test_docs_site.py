"""The documentation as a site: every page is there, and no link leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import docs_site

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md",
    "docs/guide.md": "guide.md",
    "docs/elastic.png": "elastic.png",
    "docs/connectors/README.md": "connectors/index.md",
    "docs/connectors/own.md": "connectors/own.md",
}


@pytest.mark.parametrize(
    ("source", "text", "shown"),
    [
        ("README.md", "[a guide](docs/guide.md#epochs)", "[a guide](guide.md#epochs)"),
        ("README.md", "![a plot](docs/elastic.png)", "![a plot](elastic.png)"),
        ("README.md", "[all](docs/connectors/)", "[all](connectors/index.md)"),
        ("docs/connectors/own.md", "[up](../../README.md)", "[up](../index.md)"),
        ("docs/guide.md", "[here](#epochs)", "[here](#epochs)"),
        ("docs/guide.md", "[code](../raystream/run.py)", "code"),
        ("docs/guide.md", "[out](https://www.ray.io)", "[out](https://www.ray.io)"),
        ("docs/guide.md", "```\n[x](guide.md)\n```\n", "```\n[x](guide.md)\n```\n"),
    ],
)
def test_links_are_those_of_the_site(source: str, text: str, shown: str) -> None:
    assert docs_site.linked(text, source, PAGES) == shown


def test_every_page_of_the_repository_is_found_from_the_start() -> None:
    pages = docs_site.places()
    named = "\n".join(docs_site._nav(pages))
    missing = [p for p in pages if p.endswith(".md") and f'"{pages[p]}"' not in named]
    assert missing == []


def test_pages_of_a_folder_are_in_the_order_of_its_readme() -> None:
    pages = docs_site._pages_of("docs/tutorials", docs_site.places())
    assert [Path(page).stem for page in pages][:2] == ["README", "files-to-windows"]
    assert pages.index("docs/tutorials/scale.md") < pages.index("docs/tutorials/kill.md")


def test_it_is_made_without_a_warning() -> None:
    done = subprocess.run(
        [sys.executable, "tools/docs_site.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = docs_site.SITE / "html"
    assert "by_time" in (pages / "api" / "raystream.html").read_text(encoding="utf-8")
    assert (pages / "guide.html").exists()
    for page in pages.rglob("*.html"):  # a site works without the internet
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=[\"']?(?:https?:)?//[^>]*>", text)
        loaded += re.findall(r"<link[^>]*rel=[\"']?stylesheet[^>]*(?:https?:)?//[^>]*>", text)
        assert not loaded and 'class="mermaid"' not in text, page
    assert (pages / "internals" / "protocol-1.svg").exists()
    assert "RESTORING" in (pages / "internals" / "protocol-1.svg").read_text(encoding="utf-8")
