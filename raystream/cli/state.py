"""The command `raystream state`: rows of state of a running job."""

from __future__ import annotations

import json
import operator as operators
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raystream.cli.errors import errors_reported
from raystream.cli.jobs import Address, JobOption, Json
from raystream.errors import ConfigError

if TYPE_CHECKING:
    from raystream.actors.client.querying import StateReader

TOKEN = "RAYSTREAM_STATE_TOKEN"
"""The environment variable with the token of `--http`."""
TOKEN_BYTES = 24
_COMPARISONS = {
    "==": operators.eq,
    "!=": operators.ne,
    "<=": operators.le,
    ">=": operators.ge,
    "<": operators.lt,
    ">": operators.gt,
    "=": operators.eq,
}
_WHERE = re.compile(r"\s*(\w+)\s*(==|!=|<=|>=|<|>|=)\s*(.*?)\s*")


def _several(flag: str, metavar: str, help: str) -> Any:
    return typer.Option(
        flag, metavar=metavar, help=f"{help} May be given several times.", show_default=False
    )


Keys = Annotated[
    list[str] | None,
    _several(
        "--key",
        "KEY",
        "A key. A key of several fields, or in windows, is a JSON list: '[\"ann\", 60]'.",
    ),
]
Conditions = Annotated[
    list[str] | None,
    _several(
        "--where",
        "'FIELD > VALUE'",
        "Without --key, show only rows that fulfil this: = != < <= > >=.",
    ),
]
HttpOption = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="[HOST:]PORT",
        help="Answer queries of all operators over HTTP until you leave with Ctrl-C; port 0 for"
        " any that is free. It is not encrypted: beyond this machine, use it in a network that you"
        f" trust. The token is ${TOKEN}, or a new one that is printed.",
        show_default=False,
    ),
]


def state(
    job: JobOption,
    operator: Annotated[
        str, typer.Argument(metavar="OPERATOR", help="An operator that keeps rows.")
    ] = "",
    key: Keys = None,
    where: Conditions = None,
    committed: Annotated[
        bool, typer.Option("--committed", help="Read keys at the committed checkpoint.")
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Rows that are shown at most.")
    ] = 100,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How long an answer may take.")
    ] = 10.0,
    json: Json = False,
    http: HttpOption = None,
    address: Address = "auto",
) -> None:
    """Show rows of state of a job while it runs.

    With --key the newest rows of these keys, from the instances that own them; otherwise all rows
    at the committed checkpoint.

    Example: raystream state word-count CountWords --key to
    """
    with errors_reported():
        if http is not None:
            _serve(job, http, wait, address)
            return
        if key and where:
            raise ConfigError("--where is for all rows, --key for some")
        from raystream.actors.client.querying import query

        with query(job, operator, address=address, wait=wait) as reader:
            if key:
                _show_keys(reader, key, committed=committed, as_json=json)
            else:
                table = reader.scan(where_of(where or ()))
                _show_table(table, reader.seen, limit, as_json=json)


def where_of(conditions: Sequence[str]) -> Any:
    """Conditions as an expression of Arrow, which holds where all of them do; None without any.

    Raises:
        ConfigError: a text is no condition.
    """
    import pyarrow.compute as pc

    found = None
    for text in conditions:
        match = _WHERE.fullmatch(text)
        if match is None:
            raise ConfigError(f"--where {text!r} is no condition", hint="As in --where 'n > 10'.")
        field, comparison, written = match.groups()
        try:
            value = json.loads(written)
        except ValueError:
            value = written
        one = _COMPARISONS[comparison](pc.field(field), value)
        found = one if found is None else found & one
    return found


def _show_keys(reader: StateReader, keys: list[str], *, committed: bool, as_json: bool) -> None:
    from raystream.actors.client.state_text import fields_of, key_of, plain

    wanted = [key_of(text, reader.key_types) for text in keys]
    for text, found in zip(keys, reader.get_many(wanted, committed=committed), strict=True):
        run, epoch = found.moment
        row = None if found.row is None else {n: plain(v) for n, v in found.row.items()}
        if as_json:
            said = {"key": text, "row": row, "run": run, "epoch": epoch}
            typer.echo(json.dumps(said, ensure_ascii=False))
        else:
            shown = "no row" if row is None else fields_of(row)
            typer.echo(f"{text}: {shown}   (epoch {epoch}, run {run})")


def _show_table(table: Any, seen: Any, limit: int, *, as_json: bool) -> None:
    from raystream.actors.client.state_text import fields_of, plain

    for row in table.slice(0, limit).to_pylist():
        values = {n: plain(v) for n, v in row.items()}
        typer.echo(json.dumps(values, ensure_ascii=False) if as_json else fields_of(values))
    more = table.num_rows - limit
    rows = f"{table.num_rows:,} rows" if table.num_rows != 1 else "1 row"
    rest = f", the first {limit:,} are shown: --limit" if more > 0 else ""
    typer.echo(f"{rows} at epoch {seen.epoch} of run {seen.run}{rest}", err=True)


def _serve(job: str, http: str, wait: float, address: str) -> None:
    import secrets

    from raystream.actors.client.state_server import serve_state
    from raystream.actors.cluster.connecting import visited

    host, _, port = http.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"--http {http}: a port, or HOST:PORT")
    token = os.environ.get(TOKEN, "")
    if not token:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        typer.echo(f"token: {token}", err=True)
    host = host.strip("[]") or "127.0.0.1"
    with visited(address):
        serve_state(
            job, address, host=host, port=int(port), token=token, wait=wait, tell=typer.echo
        )
