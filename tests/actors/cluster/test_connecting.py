"""Which cluster a command joins, and which Ray it starts. No Ray is started here."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray._common import utils as ray_utils
from ray._private import services, utils
from ray._raylet import (
    AuthenticationMode,
    AuthenticationTokenLoader,
    get_authentication_mode,
)

from raystream.actors.client import jobs
from raystream.actors.cluster import auth, connecting, environment, private_ray
from raystream.actors.cluster import ray_internals as internals
from raystream.actors.cluster.connecting import cluster, visited
from raystream.cli.errors import REFUSED
from raystream.errors import ConfigError
from raystream.run import _alone
from tests.gates import LIMIT_SECONDS


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "127.0.0.1:99999", "nowhere.invalid:6379", "odd"]
)
def test_an_address_where_nobody_answers_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting.ray, "is_initialized", lambda: False)
    with pytest.raises(ConfigError, match="no Ray cluster at"), cluster(address):
        pass


def test_a_cluster_that_wants_a_token_is_no_bug(tmp_path: Path) -> None:
    """Ray asks for one as soon as somebody listens there."""
    unset = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"}
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env |= {"RAY_AUTH_MODE": "token", "HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-m", "raystream", "jobs", "--address", address]
        done = subprocess.run(
            command, check=False, env=env, capture_output=True, text=True, timeout=LIMIT_SECONDS
        )
    assert done.returncode == REFUSED
    assert "is not open to this process" in done.stderr and "RAY_AUTH_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr and "report it" not in done.stderr


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a Ray is when it has started."""
    monkeypatch.setattr(environment, "_given", {})
    context = SimpleNamespace(gcs_address="127.0.0.1:7")
    monkeypatch.setattr(connecting.ray, "get_runtime_context", lambda: context)
    return "127.0.0.1:7"


def test_a_ray_that_was_too_slow_to_start_is_started_again(
    monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    tried: list[dict[str, Any]] = []

    def init(address: str, **options: Any) -> None:
        tried.append(options)
        if len(tried) < 2:
            raise Exception("The current node timed out during startup.\nAnd more.")

    monkeypatch.setattr(connecting.ray, "init", init)
    connecting.start_ray(num_cpus=3)
    assert [options["num_cpus"] for options in tried] == [3, 3]
    assert [*environment._given] == [at]


def test_a_ray_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(address: str, **options: Any) -> None:
        raise Exception("The current node timed out during startup.\nAnd more.")

    monkeypatch.setattr(connecting.ray, "init", init)
    with pytest.raises(ConfigError, match=r"did not start .* timed out during startup\.") as caught:
        connecting.start_ray()
    assert "tried 2 times" in caught.value.hint


def test_auto_is_the_cluster_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting.ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"no Ray cluster at '127.0.0.1:1'"), cluster("auto"):
        pass


def test_the_address_of_a_dashboard_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """`RAY_ADDRESS` is that for `ray job submit`, and stays set."""
    monkeypatch.setattr(connecting.ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    with pytest.raises(ConfigError, match="where jobs are submitted") as refused, visited("auto"):
        pass
    assert "unset RAY_ADDRESS" in refused.value.hint


def test_a_cluster_that_was_killed_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Ray goes on noting its address, and would join it for minutes unless told to start one."""
    asked: list[str | None] = []
    monkeypatch.setattr(services, "find_gcs_addresses", set[str])
    monkeypatch.setattr(utils, "read_ray_address", lambda: "192.0.2.1:6379")
    monkeypatch.setattr(connecting.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(
        connecting.ray, "init", lambda address=None, **options: asked.append(address)
    )
    monkeypatch.setattr(connecting.ray, "shutdown", lambda: None)
    monkeypatch.setattr(private_ray, "note", lambda token: at)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    told: list[str] = []
    with cluster("auto", on_note=told.append):
        pass
    assert asked == ["local"]
    assert told == ["started a Ray for this run, at 127.0.0.1:7"]


def ray_of_a_run(folder: Path, session: str, address: str) -> None:
    noted = folder / f"session_{session}" / private_ray.NOTE
    noted.parent.mkdir()
    noted.write_text(f"{address}\ntoken of {session}\n", encoding="utf-8")


def test_a_connection_stays_until_the_last_thread_has_left_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One thread runs a job, another one reads its state and is a little later."""
    said, connected = list[str](), [False]

    def connect(*_: object, **__: object) -> None:
        said.append("connected")
        connected[0] = True

    def shut_down() -> None:
        said.append("closed")
        connected[0] = False

    monkeypatch.setattr(connecting, "_connect", connect)
    monkeypatch.setattr(connecting.ray, "is_initialized", lambda: connected[0])
    monkeypatch.setattr(connecting.ray, "shutdown", shut_down)
    with ExitStack() as reader:
        with cluster("auto"):
            reader.enter_context(visited("auto"))
            with visited("auto"):
                pass
        assert said == ["connected"]
    assert said == ["connected", "closed"]
    with cluster("auto"):
        with visited("auto"):
            pass
        assert said[2:] == ["connected"]
    assert said[2:] == ["connected", "closed"]


def test_who_looks_finds_the_ray_that_a_run_started_for_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str | None] = []
    ray_of_a_run(tmp_path, "1", "127.0.0.1:1")
    for session in ("0", "1b", "2"):  # earlier ones that had the same address have ended
        ray_of_a_run(tmp_path, session, "127.0.0.1:2")
    monkeypatch.setattr(ray_utils, "get_default_ray_temp_dir", lambda: str(tmp_path))
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: {"127.0.0.1:2", "127.0.0.1:3"})
    monkeypatch.setattr(utils, "read_ray_address", lambda: None)
    monkeypatch.setattr(connecting, "_answers", lambda address: None)
    monkeypatch.setattr(internals, "refuse_wrong_token", lambda address: None)
    monkeypatch.setattr(connecting.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(
        connecting.ray, "init", lambda address=None, **options: asked.append(address)
    )
    monkeypatch.setattr(connecting.ray, "shutdown", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = {name: os.environ.get(name) for name in (auth.MODE, auth.TOKEN)}
    with visited("auto"):
        assert (os.environ[auth.MODE], os.environ[auth.TOKEN]) == ("token", "token of 2")
        assert get_authentication_mode() == AuthenticationMode.TOKEN
    assert {name: os.environ.get(name) for name in before} == before
    assert get_authentication_mode() == AuthenticationMode.DISABLED
    assert asked == ["127.0.0.1:2"]
    with pytest.raises(ConfigError, match="no Ray is there"), cluster("auto", start=False):
        pass  # a run leaves it alone: it ends with the other one
    ray_of_a_run(tmp_path, "3", "127.0.0.1:3")
    with pytest.raises(ConfigError, match="several runs") as caught, visited("auto"):
        pass
    assert "--address 127.0.0.1:2 or 127.0.0.1:3" in caught.value.hint
    monkeypatch.setattr(os, "getuid", lambda: -1)
    with pytest.raises(ConfigError, match="no Ray is there"), visited("auto"):
        pass  # those of other users are not looked at


def test_a_run_asks_the_rays_of_other_runs_and_leaves_them_before_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at, asked = list[str](), list[tuple[str, list[str]]]()

    @contextmanager
    def joined(address: str) -> Iterator[bool]:
        at.append(address)
        yield address in ("127.0.0.1:2", "127.0.0.1:4")  # another one ends at this moment
        at.remove(address)

    others = [f"127.0.0.1:{port}" for port in (2, 3, 4)]
    monkeypatch.setattr(connecting, "joined", joined)
    monkeypatch.setattr(connecting, "of_other_runs", lambda address: others)
    monkeypatch.setattr(jobs, "refuse_running", lambda job, where: asked.append((where, [*at])))
    with _alone("words", "auto"):
        assert at == ["auto"]
    assert asked == [
        (f"on a Ray of its own at {other}", ["auto", other]) for other in (others[0], others[2])
    ]
    asked.clear()
    with _alone("words", "127.0.0.1:2"):  # a cluster that is there is the only one that counts
        assert asked == [("in this cluster", ["127.0.0.1:2"])]


@pytest.fixture
def begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[list[tuple[str, str | None]]]:
    """A Ray that `ray start` has begun here, by a user who has a token; how it was joined: with
    which address, and in which mode."""
    token, told = tmp_path / "token", list[tuple[str, str | None]]()
    token.write_text("f" * 64)
    monkeypatch.setenv(auth.TOKEN_PATH, str(token))
    for name in (auth.MODE, auth.TOKEN, "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ray_utils, "get_default_ray_temp_dir", lambda: str(tmp_path))
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: {"127.0.0.1:2"})
    monkeypatch.setattr(utils, "read_ray_address", lambda: "127.0.0.1:2")
    monkeypatch.setattr(connecting, "_answers", lambda address: None)
    monkeypatch.setattr(internals, "refuse_wrong_token", lambda address: None)
    monkeypatch.setattr(connecting.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(connecting.ray, "shutdown", lambda: None)
    monkeypatch.setattr(
        connecting.ray,
        "init",
        lambda address, **options: told.append((address, os.environ.get(auth.MODE))),
    )
    with auth.as_before():
        internals.reload_token()
        yield told


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:2"])
def test_all_commands_show_the_users_token_to_a_ray_that_ray_start_has_begun_here(
    begun: list[tuple[str, str | None]], address: str
) -> None:
    """Ray asks for it there as soon as the user has one, and shows it for `auto` alone."""
    with cluster(address):
        pass
    with visited(address):
        pass
    assert begun == [("127.0.0.1:2", "token")] * 2
    assert auth.MODE not in os.environ


def test_a_ray_elsewhere_is_not_shown_the_users_token(
    begun: list[tuple[str, str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with visited("192.0.2.1:6379"):
        pass
    monkeypatch.setenv(auth.MODE, "disabled")  # the user has chosen
    with visited("auto"):
        pass
    assert begun == [("192.0.2.1:6379", None), ("127.0.0.1:2", "disabled")]


def test_a_run_joins_what_ray_start_has_begun_and_looks_at_other_runs_only_where_there_is_none(
    begun: list[tuple[str, str | None]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))  # which gets the settings of such a Ray
    ray_of_a_run(tmp_path, "1", "127.0.0.1:3")
    ray_of_a_run(tmp_path, "2", "127.0.0.1:4")  # has ended
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: {"127.0.0.1:2", "127.0.0.1:3"})
    assert connecting.of_other_runs("auto") == []
    monkeypatch.setattr(utils, "read_ray_address", lambda: None)
    assert connecting.of_other_runs("auto") == ["127.0.0.1:3"]
    assert connecting.of_other_runs("127.0.0.1:2") == []
    monkeypatch.setitem(os.environ, "RAY_ADDRESS", "192.0.2.1:6379")
    assert connecting.of_other_runs("auto") == []


def test_a_ray_of_a_run_asks_for_a_token_unless_the_user_has_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (auth.TOKEN, auth.TOKEN_PATH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(auth.MODE, "disabled")
    assert auth.show_own() == "" and os.environ[auth.MODE] == "disabled"
    monkeypatch.delenv(auth.MODE)
    with auth.as_before():
        token = auth.show_own()
        assert len(token) == 64 and os.environ[auth.TOKEN] == token
        assert get_authentication_mode() == AuthenticationMode.TOKEN
        assert AuthenticationTokenLoader.instance().get_raw_token() == token
    monkeypatch.setenv(auth.TOKEN_PATH, "/somewhere")
    assert auth.show_own() == "" and auth.MODE not in os.environ


def test_the_ray_of_a_run_writes_little_at_a_time_to_disk_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What its store has no room for."""
    names, usual = [f"RAY_{name}" for name in connecting.SPILLING], str(connecting.SPILL_BYTES)
    for given, expected in (({}, [usual, usual]), ({names[1]: "5"}, [None, "5"])):
        monkeypatch.setattr(os, "environ", environ := dict[str, str](given))
        connecting._set_defaults()
        assert [environ.get(name) for name in names] == expected
