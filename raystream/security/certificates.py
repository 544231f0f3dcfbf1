"""A certificate, its key, and the authority that has to sign the certificates of others.

They are read from a folder, in PEM, under the names of a Kubernetes secret `kubernetes.io/tls`:

    ca.crt      the authority
    tls.crt     the certificate, followed by intermediate certificates if there are any
    tls.key     its key, without a password

or they are `made` here, by a new authority whose key is thrown away: nobody else can sign a
certificate that the processes of the job accept.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Collection, Mapping
from pathlib import Path

from raystream.errors import ConfigError
from raystream.security.contexts import NAME, Certificates, accepting, connecting

AUTHORITY, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
"""The names of the files."""
AUTHORITY_KEY = "ca.key"
"""The name of the file with the key of an authority, which can sign more certificates."""
MADE = "made"
"""The value of `tls` that stands for certificates made for one run."""
DAYS = 3650
"""Certificates that are made are valid for this many days: a run may take years."""


def given(tls: str | os.PathLike[str] | None) -> Certificates | None:
    """The certificates for the option `tls` of a run; None without the option.

    Args:
        tls: a folder, or `MADE`.

    Raises:
        ConfigError: see `read` and `made`.
    """
    if tls is None:
        return None
    return made() if tls == MADE else read(tls)


def read(folder: str | os.PathLike[str]) -> Certificates:
    """The certificates in a folder.

    Raises:
        ConfigError: a file is missing, or the certificates do not fit each other, have expired, or
            are not for the name `NAME`.
    """
    where = Path(folder)
    try:
        found = Certificates(*((where / n).read_bytes() for n in (AUTHORITY, CERTIFICATE, KEY)))
    except (OSError, ValueError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        raise ConfigError(
            f"tls={os.fspath(folder)!r}: {reason}",
            hint=f"A folder with {AUTHORITY}, {CERTIFICATE} and {KEY}; `raystream certificates"
            f' FOLDER` makes them. Or tls="{MADE}".',
        ) from None
    try:
        _try_out(found)
    except (OSError, ValueError) as error:  # of `ssl`, too
        raise ConfigError(
            f"tls={os.fspath(folder)!r}: these cannot be used: {_reason(error)}",
            hint=f"{CERTIFICATE} is to be signed by {AUTHORITY}, for the name"
            f" {NAME}, as a server's and a client's; {KEY} is its key.",
        ) from None
    return found


def write(certificates: Certificates, folder: str | os.PathLike[str]) -> list[Path]:
    """Put certificates into a folder. See `write_files`."""
    names = (AUTHORITY, CERTIFICATE, KEY)
    return write_files(folder, dict(zip(names, certificates, strict=True)))


def write_files(folder: str | os.PathLike[str], files: Mapping[str, bytes]) -> list[Path]:
    """Write files into a folder, and make the folder if it is missing. Only the user can read them.

    Returns:
        The paths of the files.

    Raises:
        ConfigError: a file cannot be written, or is there already.
    """
    where, paths = Path(folder), []
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, data in files.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with open(os.open(where / name, flags, 0o600), "wb") as file:
                file.write(data)
            paths.append(where / name)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or where}: {error.strerror}",
            hint="Name a folder that is not there yet, where you may write.",
        ) from None
    return paths


def made(
    hosts: Collection[str] = (), days: float = DAYS, by: str | os.PathLike[str] | None = None
) -> Certificates:
    """New certificates. See `making.signed`.

    Args:
        by: the folder of the authority that signs them; None for a new authority, whose key is
            thrown away.

    Raises:
        ConfigError: the package `cryptography` is not installed, or the authority cannot sign.
    """
    from raystream.security import making

    if by is None:
        return making.signed(making.authority(days), hosts, days)
    try:
        found = [(Path(by) / name).read_bytes() for name in (AUTHORITY, AUTHORITY_KEY)]
    except OSError as error:
        raise ConfigError(
            f"no authority: {error.filename}: {error.strerror}",
            hint="`raystream certificates FOLDER --authority` makes one.",
        ) from None
    return making.signed(making.Authority(*found), hosts, days)


def write_authority(folder: str | os.PathLike[str], days: float) -> list[Path]:
    """Make an authority in a folder. See `write_files`."""
    from raystream.security import making

    names = (AUTHORITY, AUTHORITY_KEY)
    return write_files(folder, dict(zip(names, making.authority(days), strict=True)))


def _try_out(certificates: Certificates) -> None:
    """Connect a client to a server, both with these certificates, without a network.

    Raises:
        ssl.SSLError, OSError, ValueError: they cannot connect.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = connecting(certificates).wrap_bio(to_client, to_server, server_hostname=NAME)
    server = accepting(certificates).wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


def _reason(error: Exception) -> str:
    said = str(error)
    if isinstance(error, ssl.SSLError):
        said = getattr(error, "verify_message", "") or error.reason or said
    return said.replace("_", " ").lower()
