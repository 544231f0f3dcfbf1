"""The commands of docs/ec2.md, as far as they can be tried without EC2.

Each line is held against the program that it calls: the command exists, and takes these arguments.
What it does is not tried here: tests/ec2 and tests/actors/client/test_submit.py do what can be
done.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_docs import commands
from tests.gates import LIMIT_SECONDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/ec2.md"


def by_click(command: Any, arguments: list[str]) -> None:
    """Parse arguments, through all levels of commands; nothing is called.

    Raises:
        click.UsageError: there is no such command, or it does not take them.
    """
    while hasattr(command, "commands"):
        name, *arguments = arguments
        assert name in command.commands, f"there is no {name} in {sorted(command.commands)}"
        command = command.commands[name]
    with command.make_context(command.name, [*arguments]):
        if "entrypoint" in [p.name for p in command.params]:  # `ray job submit -- COMMAND`
            inner = arguments[arguments.index("--") + 1 :]
            check(shlex.join(inner))
        elif len(arguments) > 1 and command.name == "exec":  # `ray exec cluster.yaml COMMAND`
            check(arguments[-1])


def ray(arguments: list[str]) -> None:
    from ray.scripts.scripts import cli

    by_click(cli, arguments)


def python(arguments: list[str]) -> None:
    from typer.main import get_command

    assert arguments[0] == "-m"
    match arguments[1]:
        case "lrb":
            from lrb.cli import app
        case "spark_ingest":
            from spark_ingest.cli import app
        case "raystream":
            from raystream.cli.app import app
        case other:
            raise AssertionError(f"nobody tries python -m {other}")
    by_click(get_command(app), arguments[2:])


def operation_of(arguments: list[str]) -> tuple[str, str, list[str]]:
    """The service, the operation that a command of `aws` calls, and what it is given."""
    import botocore.session
    from botocore import xform_name

    session = botocore.session.get_session()
    service, name, *options = arguments
    if name == "wait":  # for something: it calls what shows it
        waiters = session.get_waiter_model(service)
        names = {xform_name(w, "-"): w for w in waiters.waiter_names}
        name, *options = options
        return service, waiters.get_waiter(names[name]).operation, options
    operations = session.get_service_model(service).operation_names
    return service, {xform_name(o, "-"): o for o in operations}[name], options


def aws(arguments: list[str]) -> None:
    """The command line has what the service has: operations, and their parameters as options."""
    import botocore.session
    from botocore import xform_name

    if arguments == ["configure"]:
        return
    service, operation, options = operation_of(arguments)
    model = botocore.session.get_session().get_service_model(service)
    shape: Any = model.operation_model(operation).input_shape
    known = {xform_name(m, "-") for m in shape.members} | {"region", "query", "output"}
    given = [o.removeprefix("--") for o in options if o.startswith("--")]
    assert given and {*given} <= known
    required = {xform_name(m, "-") for m in shape.required_members}
    assert required <= {*given}
    for policy in (o for o in options if o.startswith("{")):
        assert yaml.safe_load(policy)["Statement"]


def pip(arguments: list[str]) -> None:
    install, editable, what = arguments
    assert (install, editable) == ("install", "-e")
    extras = re.fullmatch(r"\.\[([\w,]+)\]", what)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extras is not None
    assert {*extras[1].split(",")} <= {*project["optional-dependencies"]}


def anything(_: list[str]) -> None:
    """Tried below, or by nobody because there is nothing to it."""


PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "ray": ray,
    "python": python,
    "raystream": lambda arguments: python(["-m", "raystream", *arguments]),
    "aws": aws,
    "pip": pip,
    "export": anything,
    "tail": anything,
    "sed": anything,
}


def check(line: str) -> None:
    assigned = re.fullmatch(r"\w+=\$\((.*)\)", line)
    program, *arguments = shlex.split(assigned[1] if assigned else line)
    assert program in PROGRAMS, f"{PAGE}: nothing tries `{line}`"
    PROGRAMS[program](arguments)


@pytest.mark.parametrize("line", commands(PAGE))
def test_a_command_is_one(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    check(line)


def allowed(action: str, policy: str) -> bool:
    """Whether a policy of AWS's allows an action, as far as that depends on nothing else."""
    from moto.iam.aws_managed_policies import aws_managed_policies_data

    document = json.loads(aws_managed_policies_data)[policy]["Document"]
    for statement in document["Statement"]:
        actions = statement["Action"]
        patterns = [actions] if isinstance(actions, str) else actions
        if statement["Effect"] == "Allow" and any(fnmatch(action, p) for p in patterns):
            return True
    return False


def test_the_user_of_the_page_may_do_all_of_it() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    said = re.search(r"the policies `(\w+)` and\s+`(\w+)`", page)
    assert said is not None
    found = [re.search(r"\baws (?!configure)(.*?)\)?$", line) for line in commands(PAGE)]
    called = [operation_of(shlex.split(f[1])) for f in found if f is not None]
    assert len(called) >= 5
    for service, operation, _ in called:
        action = f"{service}:{operation}"
        assert any(allowed(action, policy) for policy in said.groups()), action


WRONG = [
    "ray upp cluster.yaml",
    "ray job submit --wait -- python -m lrb run",
    "ray job submit -- python -m lrb run --inputs data/",
    "ray exec cluster.yaml 'ray stats'",
    "aws ec2 describe-instance",
]


@pytest.mark.parametrize("line", WRONG)
def test_what_is_no_command_is_found_out(line: str) -> None:
    with pytest.raises(Exception, match=r"no|No|describe-instance"):
        check(line)


def test_the_image_is_written_where_it_belongs(tmp_path: Path) -> None:
    shutil.copy(ROOT / "cluster.yaml", tmp_path)
    (line,) = (c for c in commands(PAGE) if c.startswith("sed"))
    for image in ("ami-0123456789abcdef0", "ami-0fedcba9876543210"):
        script = f"AMI={image}; {line}"
        subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True, timeout=LIMIT_SECONDS)
        written = yaml.safe_load((tmp_path / "cluster.yaml").read_text(encoding="utf-8"))
        kinds = written["available_node_types"].values()
        assert {k["node_config"]["ImageId"] for k in kinds} == {image}
        assert all(k["node_config"]["BlockDeviceMappings"] for k in kinds)
