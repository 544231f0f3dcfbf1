"""`raystream new`: a folder with a flow that runs, its tests, and what it takes to deploy it."""

from __future__ import annotations

import keyword
import re
import sys
from importlib import metadata, resources
from pathlib import Path
from string import Template

from raystream.errors import ConfigError

FILES = {
    "{module}/__init__.py": None,
    "{module}/flow.py": "flow.py.in",
    "tests/test_flow.py": "test_flow.py.in",
    "pyproject.toml": "pyproject.toml.in",
    "Dockerfile": "Dockerfile.in",
    "rayjob.yaml": "rayjob.yaml.in",
    "README.md": "README.md.in",
    ".gitignore": None,
}
"""The files of a project, and the template of each."""
WRITTEN = {"{module}/__init__.py": "", ".gitignore": "__pycache__/\n/out/\n"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def make_project(folder: Path) -> list[Path]:
    """Write the files of a new project, which has the name of the folder.

    Returns:
        The files, in the order in which one reads them.

    Raises:
        ConfigError: the name cannot be that of a package, or the folder is there already.
    """
    words = _words(folder.name)
    if folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise ConfigError(
            f"{folder} is there already, and is not empty", hint="Choose another name."
        )
    made = []
    for place, template in FILES.items():
        path = folder / place.format(module=words["module"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            WRITTEN[place] if template is None else _filled(template, words), encoding="utf-8"
        )
        made.append(path)
    return made


def _words(name: str) -> dict[str, str]:
    """What the templates leave open."""
    module = name.replace("-", "_").lower()
    if not _NAME.fullmatch(name) or keyword.iskeyword(module) or module in sys.stdlib_module_names:
        raise ConfigError(
            f"{name!r} cannot be the name of a project",
            hint="A name has letters, digits, - and _, begins with a letter, and is no word or"
            " module of Python.",
        )
    from raystream import __version__

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {
        "name": name.lower(),
        "module": module,
        "dns_name": module.replace("_", "-").strip("-"),
        "raystream": __version__,
        "ray": metadata.version("ray"),
        "python": python,
        "python_digits": python.replace(".", ""),
    }


def _filled(template: str, words: dict[str, str]) -> str:
    text = resources.files("raystream.cli.template").joinpath(template).read_text(encoding="utf-8")
    return Template(text).substitute(words)
