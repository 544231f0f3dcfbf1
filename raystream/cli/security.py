"""The command that makes certificates; `app.py` puts it into the command `raystream`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from raystream.cli.errors import errors_reported
from raystream.cli.jobs import Address
from raystream.errors import ConfigError


def certificates(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Where they go; made if it is not there.")
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name or address at which curl or a browser reaches a server of the job. May be"
            " given several times.",
            show_default=False,
        ),
    ] = None,
    days: Annotated[int, typer.Option(metavar="DAYS", min=1, help="How long they are good.")] = 365,
    authority: Annotated[
        bool,
        typer.Option("--authority", help="Make only an authority in FOLDER: ca.crt and ca.key."),
    ] = False,
    by: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="The folder of an authority that signs. Unless given, a new authority signs, and"
            " its key is kept nowhere.",
            show_default=False,
        ),
    ] = "",
    of: Annotated[
        str,
        typer.Option(
            metavar="JOB",
            help="Make no certificates: take those of a running job, so that clients can push into"
            " it.",
            show_default=False,
        ),
    ] = "",
    address: Address = "auto",
) -> None:
    """Make certificates for TLS: ca.crt, tls.crt and tls.key, for --tls FOLDER.

    Anyone with this folder can connect to the job: it is only for its processes and clients.

    Example: raystream certificates tls --host stream.example.com
    """
    with errors_reported():
        from raystream.security import certificates as files

        if sum(map(bool, (authority, by, of))) > 1:
            raise ConfigError("--authority, --by and --of exclude each other")
        if authority:
            paths = files.write_authority(folder, days)
        elif of:
            from raystream.actors.client.pushing import certificates_of

            paths = files.write(certificates_of(of, address), folder)
        else:
            paths = files.write(files.made(host or (), days, by=by or None), folder)
        for path in paths:
            typer.echo(path)


def token(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The name of a running job.")],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The name of a push source.")],
    hours: Annotated[
        float, typer.Option(metavar="HOURS", min=0.01, help="How long it is good.")
    ] = 24.0,
    address: Address = "auto",
) -> None:
    """Print a token with which clients push into a source of a running job until it expires.

    Before that the next one is made: both are good, and the job goes on.

    Example: raystream token alerts rules --hours 8
    """
    with errors_reported():
        from raystream.actors.client.pushing import expiring_token

        typer.echo(expiring_token(job, source, time.time() + hours * 3600, address))
