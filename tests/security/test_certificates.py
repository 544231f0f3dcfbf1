"""Certificates: those that fit are taken, all others are refused in words before a job begins."""

from __future__ import annotations

import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raystream.cli.app import app
from raystream.errors import ConfigError
from raystream.security.certificates import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    given,
    made,
    read,
    write,
    write_authority,
)
from raystream.security.contexts import Certificates, accepting, connecting
from raystream.security.credentials import Credentials
from raystream.testing import Collect
from tests.flows import running, word_flow

FIRST, SECOND = made(), made()


def test_what_was_written_is_read_and_is_for_the_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    paths = write(FIRST, folder)
    assert read(folder) == given(folder) == FIRST
    assert [p.name for p in paths] == [AUTHORITY, CERTIFICATE, KEY]
    assert {stat.S_IMODE(p.stat().st_mode) for p in paths} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with pytest.raises(ConfigError, match="File exists"):
        write(SECOND, folder)
    assert read(folder) == FIRST


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (FIRST._replace(key=SECOND.key), "key values mismatch"),
        (FIRST._replace(authority=SECOND.authority), "local issuer"),
        (made(days=-0.01), "expired"),
        (FIRST._replace(key=b""), "pem"),
        (FIRST._replace(authority=b"\xff"), "ordinal not in range"),
        (FIRST._replace(authority=b""), "empty"),
    ],
)
def test_certificates_that_are_no_good_are_refused_before_a_job_begins(
    bad: Certificates, why: str, tmp_path: Path
) -> None:
    folder = tmp_path / "tls"
    write(bad, folder)
    with pytest.raises(ConfigError, match=why):
        word_flow(Collect(), running).run(tls=folder)


def test_a_folder_without_certificates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca\.crt: No such file"):
        read(tmp_path)


def test_without_the_package_they_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match="not installed"):
        made()


def test_an_authority_that_is_kept_signs_more(tmp_path: Path) -> None:
    write_authority(tmp_path / "ca", 30)
    first, second = (made(["h.example"], by=tmp_path / "ca") for _ in range(2))
    assert first.authority == second.authority and first.key != second.key
    write(first._replace(certificate=second.certificate, key=second.key), tmp_path / "tls")
    assert read(tmp_path / "tls").certificate == second.certificate
    with pytest.raises(ConfigError, match=r"ca\.key: No such file"):
        made(by=tmp_path / "tls")
    (tmp_path / "ca" / "ca.key").write_bytes(b"none")
    with pytest.raises(ConfigError, match="cannot sign"):
        made(by=tmp_path / "ca")


def test_the_command_makes_them(tmp_path: Path) -> None:
    def command(*words: str) -> Any:
        return CliRunner().invoke(app, ["certificates", *words])

    ca, tls = str(tmp_path / "ca"), str(tmp_path / "tls")
    assert command(ca, "--authority").exit_code == 0
    told = command(tls, "--by", ca, "--host", "10.0.0.1")
    assert told.output.split() == [f"{tls}/{name}" for name in (AUTHORITY, CERTIFICATE, KEY)]
    assert read(tls).authority == (tmp_path / "ca" / AUTHORITY).read_bytes()
    assert command(tls).exit_code == 2
    assert "exclude each other" in command(tls, "--by", ca, "--authority").output


def test_secrets_are_not_in_the_text_of_what_holds_them() -> None:
    shown = Credentials("the token", FIRST)
    for text in (repr(shown), str(shown), repr(FIRST), f"{FIRST}"):
        assert "the token" not in text and "BEGIN" not in text


def test_both_sides_speak_tls_1_3_and_ask_for_a_certificate() -> None:
    for context in (accepting(FIRST), connecting(FIRST)):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
    assert connecting(FIRST).check_hostname
