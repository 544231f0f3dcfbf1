"""What the buttons of the page ask of a job: the same as the commands do. Each asks first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from nicegui import context, ui

from raystream.actors.client.querying import query
from raystream.actors.client.rescaling import drain, move, scale
from raystream.actors.client.state_text import fields_of, key_of, plain
from raystream.actors.client.stopping import checkpoint, stop
from raystream.controller.protocol.history import MoveRecord
from raystream.controller.reporting.story import moved_line
from raystream.controller.reporting.views import JobPicture
from raystream.errors import RaystreamError

ASKED_MAX = 16
"""How many requests are waited for at once; a move may take long, where it waits for a node."""
Request = Callable[[], str]
"""Asks something of a job, and returns what came of it."""
_waiting = ThreadPoolExecutor(ASKED_MAX, thread_name_prefix="asked")


def ask_scale(job: JobPicture, address: str) -> None:
    """Ask how many instances an operator is to have."""
    many = {o.name: o.instances for o in job.operators}
    with _question(f"Scale {job.run}") as dialog:
        first = next((o.name for o in job.operators if o.kind == "operator"), next(iter(many)))
        which = _choice(list(many), value=first, label="operator")
        count = ui.number("instances", value=many[which.value], min=1, precision=0)
        count.props("dense").style("width:100%")
        which.on_value_change(lambda e: count.set_value(many[e.value]))
        _answers(
            dialog,
            "Scale",
            lambda: _told(scale(job.run, address, {which.value: int(count.value or 0)}, "replay")),
        )


def ask_move(job: JobPicture, address: str) -> None:
    """Ask which instance is to be moved, and where to."""
    nodes = {"": "any node"} | {n.id: n.name for n in job.nodes}
    with _question(f"Move an instance of {job.run}") as dialog:
        names = [i.name for i in job.listed]
        which = _choice(names, value=names[0], label="instance")
        where = _choice(nodes, value="", label="to")
        _answers(
            dialog,
            "Move",
            lambda: _told(move(job.run, address, which.value, where.value, "replay")),
        )


def ask_drain(job: JobPicture, address: str) -> None:
    """Ask which node is to be left."""
    nodes = {n.id: f"{n.name} ({n.instances} instances)" for n in job.nodes}
    with _question(f"Have {job.run} leave a node, and not use it again") as dialog:
        which = _choice(nodes, value=next(iter(nodes)), label="node")
        _answers(dialog, "Drain", lambda: _told(drain(job.run, address, which.value)))


def ask_key(job: JobPicture, address: str, *, values: bool) -> None:
    """Ask for a key, and show what an operator keeps for it.

    Args:
        values: whether the values of the row are shown; otherwise only its fields and their types.
    """
    operators = [o.name for o in job.operators if o.kind == "operator"]
    with _question(f"A row of {job.run}") as dialog:
        which = _choice(operators, value=next(iter(operators), None), label="operator")
        key = ui.input("key", placeholder='of several fields: ["ann", 60]')
        key.props("dense autofocus").style("width:100%")
        _answers(
            dialog,
            "Show",
            lambda: row_said(job.run, which.value or "", key.value or "", address, values=values),
        )


def row_said(run: str, operator: str, text: str, address: str, *, values: bool) -> str:
    """What an operator keeps for a key, in words.

    Raises:
        RaystreamError: the text is no key, or `StateReader.get` fails.
    """
    with query(run, operator, address=address) as reader:
        found = reader.get(key_of(text, reader.key_types))
    if found.row is None:
        said = "no row"
    elif values:
        said = fields_of({name: plain(value) for name, value in found.row.items()})
    else:
        said = ", ".join(f"{name}: {type(value).__name__}" for name, value in found.row.items())
    shown = text if values else "the key"
    return f"{operator}, {shown}: {said}\n(epoch {found.moment.epoch}, run {found.moment.run})"


def ask_checkpoint(job: JobPicture, address: str) -> None:
    """Ask whether the job is to take a checkpoint now."""
    with _question(f"Have {job.run} take a checkpoint now?") as dialog:
        ui.label("It is saved in its durable tier, too." if job.can_save else "The job goes on.")
        _answers(dialog, "Checkpoint", lambda: checkpoint(job.run, address))


def ask_stop(job: JobPicture, address: str) -> None:
    """Ask whether the job is to end, and whether with a saved checkpoint."""
    with _question(f"Stop {job.run}?") as dialog:
        if job.can_save:
            ui.label("With a saved checkpoint, another run can go on from there.")
            _answers(
                dialog,
                "Save and stop",
                lambda: _stopped(job.run, address, save=True),
                ("Stop at once", lambda: _stopped(job.run, address, save=False)),
            )
        else:
            ui.label("It has no durable tier, so nothing can go on from where it is.")
            _answers(dialog, "Stop", lambda: _stopped(job.run, address, save=False))


def _stopped(run: str, address: str, *, save: bool) -> str:
    return stop(run, address, save=save, tell=lambda _: None)


def _told(moves: list[MoveRecord]) -> str:
    return "\n".join(moved_line(m).strip() for m in moves) or "nothing had to be moved"


def is_open() -> bool:
    """Whether a question is open in the browser that is spoken with."""
    return any(isinstance(each, ui.dialog) for each in context.client.elements.values())


def _question(title: str) -> ui.card:
    dialog = ui.dialog(value=True)
    dialog.on("hide", dialog.delete)
    with dialog:
        card = ui.card().classes("rs-card").style("max-width:460px;min-width:min(300px,100%)")
    with card:
        ui.label(title).style("font-weight:700;font-size:16px;overflow-wrap:anywhere")
    return card


def _choice(options: list[str] | dict[str, str], *, value: str | None, label: str) -> ui.select:
    return ui.select(options, value=value, label=label).props("dense").style("width:100%")


def _answers(card: ui.card, yes: str, do: Request, also: tuple[str, Request] | None = None) -> None:
    """Buttons below a question.

    Args:
        yes: the answer of the first.
        do: what that asks of the job.
        also: another answer, and what it asks.
    """
    dialog = card.parent_slot.parent if card.parent_slot else card
    assert isinstance(dialog, ui.dialog)
    page = context.client

    async def go(answer: str, do: Request) -> None:
        dialog.close()
        with page.content:
            ui.notify(f"{answer}: asked", type="info")
        loop = asyncio.get_running_loop()
        try:
            said, good = await loop.run_in_executor(_waiting, do), True
        except RaystreamError as error:
            # Its place would be where the page asks: no code of the user's does.
            said, good = "\n".join(filter(None, (error.message, error.hint))), False
        if page.has_socket_connection:
            with page.content:
                ui.notify(
                    said,
                    type="positive" if good else "negative",
                    multi_line=True,
                    timeout=8000,
                    close_button="OK",
                    classes="rs-said",
                )

    with ui.row():
        ui.button(yes, on_click=partial(go, yes, do)).props("color=primary no-caps autofocus")
        if also is not None:
            ui.button(also[0], on_click=partial(go, *also)).props("outline no-caps")
        ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
