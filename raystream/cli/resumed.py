"""What `raystream plan --resume` shows: what a flow would make of a saved checkpoint."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from raystream.api.flow import Flow
from raystream.controller.planning.adapting import adapted
from raystream.controller.planning.changes import ResumeWishes
from raystream.controller.planning.plans import make_plan
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from raystream.errors import ConfigError


def resumed(flow: Flow, url: str, wishes: ResumeWishes) -> dict[str, Any]:
    """What a flow would make of its newest saved checkpoint in a store. Nothing is changed there.

    Raises:
        ConfigError: there is no checkpoint. StateError: the flow cannot go on from it.
    """
    saves = Saves(open_store(url, make=False), flow.name)
    found = saves.newest(checksums=False)
    if found.saved is None:
        raise ConfigError(
            f"no checkpoint of {flow.name} is in {saves}",
            hint="\n  ".join(found.refused) or "A run with --durable saves them there.",
        )
    plan = make_plan(flow, saved=found.saved, wishes=wishes)
    changes = adapted(saves, plan, found.saved, wishes).notes
    return {
        "checkpoint": str(found.saved),
        "epoch": found.saved.checkpoint,
        "refused": list(found.refused),
        "changes": list(changes),
    }


def show(found: dict[str, Any]) -> None:
    """Print it for people."""
    tree = Tree(f"goes on from [bold]{escape(found['checkpoint'])}[/]", guide_style="dim")
    for why in found["refused"]:
        tree.add(f"a newer checkpoint was refused: {escape(why)}")
    for change in found["changes"] or ["everything goes on as it was"]:
        tree.add(escape(change))
    Console(highlight=False, soft_wrap=True).print(tree)
