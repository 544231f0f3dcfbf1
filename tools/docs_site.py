"""The documentation as a site, in `build/site/`: the pages of `docs/`, those beside the README, and
the public interface from its docstrings.

python tools/docs_site.py [--serve]

Pages are written for the repository, where they link to each other and to code. So they are copied
first: a link to a page leads to its place on the site, a link to code becomes its text, and a
picture that is written as text (Mermaid) is drawn, so that no page needs a script from elsewhere.
Then Zensical makes the pages; a link that leads nowhere is an error.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
BESIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docs/README.md": "pages.md",
}
"""Pages that have another name on the site."""
SECTIONS = {
    "Start": ["README.md", "docs/README.md", "docs/tutorials", "docs/guide.md", "docs/why.md"],
    "Connectors": ["docs/connectors"],
    "Run it": [
        "docs/page.md",
        "docs/replay.md",
        "docs/upgrade.md",
        "docs/ec2.md",
        "docs/kubernetes.md",
    ],
    "Reference": ["docs/reference"],
    "Measured": [
        "docs/performance.md",
        "docs/elasticity.md",
        "docs/rating.md",
        "docs/gathering.md",
        "docs/lab",
    ],
    "Inside": ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/internals", "docs/decisions"],
    "News": ["CHANGELOG.md"],
}
"""What is under which heading; a folder stands for its pages: its README, then those to which it
links, in that order, then the others."""
API = {
    "raystream": "api/raystream.md",
    "raystream.io": "api/io.md",
    "raystream.testing": "api/testing.md",
}
"""Public modules, and the page of each."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:)([^)\s#]*)(#[^)\s]*)?\)")

PICTURE = re.compile(r"^```mermaid\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LOOK = '%%{init: {"theme": "neutral", "fontFamily": "Arial, sans-serif"}}%%\n'
"""How pictures look, on a light and on a dark page: they have a background of their own."""

VIEW = re.compile(r'viewBox="(\S+) (\S+) (\S+) (\S+)"')

CONFIG = """\
[project]
site_name = "raystream"
site_description = "Stateful stream processing on Ray, in Python"
docs_dir = "pages"
site_dir = "html"
use_directory_urls = false
nav = [
{nav}
]

[project.theme]
font = false
features = [
  "navigation.sections", "navigation.prune", "navigation.top",
  "content.code.copy", "search.highlight",
]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Dark"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Light"

[project.plugins.mkdocstrings.handlers.python]
paths = ["{root}"]

[project.plugins.mkdocstrings.handlers.python.options]
docstring_style = "google"
show_source = false
show_root_heading = true
show_root_full_path = false
members_order = "source"
separate_signature = true
show_signature_annotations = true
filters = ["!^_"]
docstring_options = {{warn_unknown_params = false, warn_missing_types = false, warnings = false}}

[project.markdown_extensions.admonition]
[project.markdown_extensions.attr_list]
[project.markdown_extensions.tables]
[project.markdown_extensions.md_in_html]
[project.markdown_extensions.pymdownx.highlight]
[project.markdown_extensions.pymdownx.superfences]
[project.markdown_extensions.toc]
slugify = {{object = "pymdownx.slugs.slugify", kwds = {{case = "lower"}}}}
"""


def main(arguments: list[str]) -> int:
    prepare(SITE)
    serve = arguments == ["--serve"]
    command = ["serve"] if serve else ["build", "--strict", "--clean"]
    done = subprocess.run([sys.executable, "-m", "zensical", *command], cwd=SITE, check=False)
    return done.returncode


def prepare(site: Path) -> None:
    """Write the pages, their pictures and the configuration into an empty folder."""
    shutil.rmtree(site, ignore_errors=True)
    pages = places()
    for source, place in pages.items():
        target = site / "pages" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            text = (ROOT / source).read_text(encoding="utf-8")
            target.write_text(pictured(linked(text, source, pages), target), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, target)
    for module, place in API.items():
        target = site / "pages" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(api_page(module), encoding="utf-8")
    nav = "\n".join(_nav(pages))
    (site / "zensical.toml").write_text(CONFIG.format(nav=nav, root=ROOT), encoding="utf-8")


def places() -> dict[str, str]:
    """By its path in the repository, where each page and each picture is on the site."""
    found = {name: place for name, place in BESIDE.items() if (ROOT / name).exists()}
    for path in sorted((ROOT / "docs").rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if path.is_file() and name not in found:
            place = path.relative_to(ROOT / "docs").as_posix()
            found[name] = re.sub(r"README\.md$", "index.md", place)
    return found


def linked(text: str, source: str, pages: dict[str, str]) -> str:
    """The text of a page, with the links as they are on the site. Code blocks are left alone."""

    def replaced(match: re.Match[str]) -> str:
        picture, words, path, anchor = match[1], match[2], match[3], match[4] or ""
        if not path:
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        place = pages.get(target) or pages.get(f"{target}/README.md")
        if place is None:
            return words
        way = posixpath.relpath(place, posixpath.dirname(pages[source]) or ".")
        return f"{picture}[{words}]({way}{anchor})"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(replaced, part) for part in parts)


def pictured(text: str, target: Path) -> str:
    """The text of a page, with its pictures drawn into files beside it."""
    import mmdr

    parts = PICTURE.split(text)
    for n in range(1, len(parts), 2):
        file = target.with_name(f"{target.stem}-{n // 2 + 1}.svg")
        # A page is narrower than the pictures that go from left to right.
        drawn = str(mmdr.render(LOOK + parts[n].replace("flowchart LR", "flowchart TB")).svg())
        drawn = VIEW.sub(_with_a_margin, drawn.replace('style="', 'style="background:#fff;', 1), 1)
        file.write_text(drawn, encoding="utf-8")
        parts[n] = f"![diagram]({file.name})\n"
    return "".join(parts)


def _with_a_margin(view: re.Match[str]) -> str:
    """Room for words at the edge, which another font may make longer."""
    x, y, width, height = map(float, view.groups())
    return f'viewBox="{x - 16:g} {y - 8:g} {width + 32:g} {height + 16:g}"'


def api_page(module: str) -> str:
    """The public names of a module, with what their docstrings say."""
    import importlib

    loaded = importlib.import_module(module)
    doc = (loaded.__doc__ or "").strip().partition("\n")[0]
    names = sorted((n for n in loaded.__all__ if not n.startswith("_")), key=str.lower)
    parts = [f"# {module}", doc]
    for name in names:
        thing = getattr(loaded, name)
        home = getattr(thing, "__module__", None)
        if callable(thing) and isinstance(home, str) and home.startswith("raystream."):
            parts.append(f"::: {home}.{getattr(thing, '__qualname__', name)}")
    return "\n\n".join(parts) + "\n"


def _nav(pages: dict[str, str]) -> Iterable[str]:
    for heading, names in SECTIONS.items():
        yield f'  {{"{heading}" = ['
        for name in names:
            sources = _pages_of(name, pages)
            grouped = len(names) > 1 and len(sources) > 1
            if grouped:
                yield f'    {{"{Path(name).name.capitalize()}" = ['
            for source in sources:
                yield f'    {{"{_title(source)}" = "{pages[source]}"}},'
            if grouped:
                yield "    ]},"
        yield "  ]},"
    yield '  {"Interface" = ['
    for module, place in API.items():
        yield f'    {{"{module}" = "{place}"}},'
    yield "  ]},"


def _pages_of(name: str, pages: dict[str, str]) -> list[str]:
    if name in pages:
        return [name]
    inside = [p for p in pages if p.startswith(f"{name}/") and p.endswith(".md")]
    index = f"{name}/README.md"
    if index not in pages:
        return sorted(inside)
    text = (ROOT / index).read_text(encoding="utf-8")
    linked_to = [posixpath.normpath(f"{name}/{match[3]}") for match in LINK.finditer(text)]
    order = list(dict.fromkeys([index, *linked_to, *sorted(inside)]))
    return sorted(inside, key=order.index)


def _title(source: str) -> str:
    """The heading of a page, as plain text."""
    with (ROOT / source).open(encoding="utf-8") as lines:
        heading = next(line for line in lines if line.startswith("# "))
    return re.sub(r"[`\"*]", "", heading[2:].strip())


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
