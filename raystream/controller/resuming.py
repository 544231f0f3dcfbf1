"""Where a run with a durable tier begins: at the newest saved cut, or at the beginning."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

from raystream.controller.saving import saved_cut
from raystream.dataflow.plan import Durable, Plan
from raystream.errors import ConfigError, JobError, LostError, StateError
from raystream.io.saves import Encoded, Found, Saves
from raystream.schema.types import KeyRange
from raystream.state.image import Image
from raystream.state.saved import Saved, manifest_name

RESUMES_MAX = 3
"""So often a run that lost all copies of something begins again without having saved a new cut."""

log = logging.getLogger("raystream.saves")


class Beginning(NamedTuple):
    """saved: the cut to go on from, None for the beginning. notes: what has to be said of it."""

    saved: Saved | None
    notes: tuple[str, ...]


def beginning(saves: Saves, resume: bool | None) -> Beginning:
    """Where a run begins.

    Args:
        resume: True goes on from the newest whole cut, and begins at the beginning where nothing
            was saved; False begins there anyway: its cuts supersede those that are there; None does
            so only if there are none.

    Raises:
        ConfigError: there are some. StateError: there are, and none is whole.
    """
    if resume is False:
        return Beginning(None, ())
    if resume is None:
        found = saves.newest(checksums=False)
        if found.saved or found.refused:
            raise ConfigError(
                f"{saves} holds cuts of an earlier run: {found.saved or found.refused[0]}",
                hint="Go on from there with --resume (resume=True), or begin anew with --fresh"
                " (resume=False): its cuts then take their place.",
            )
        return Beginning(None, ())
    found = saves.newest()
    refused = _refused(found)
    if found.saved is not None:
        return Beginning(found.saved, (*refused, f"goes on from {found.saved} in {saves}"))
    if refused:
        raise StateError(f"no cut in {saves} is whole", hint="\n  ".join(refused))
    return Beginning(None, (f"nothing was saved in {saves}: begins at the beginning",))


def _refused(found: Found) -> tuple[str, ...]:
    return tuple(f"a newer cut was refused: {why}" for why in found.refused)


class Resumes:
    """Decides whether a run that lost something begins again at a saved cut."""

    def __init__(self, saves: Saves) -> None:
        self._saves = saves
        self._times = 0

    def after(self, error: LostError, plan: Plan) -> Beginning:
        """Where to begin again.

        Raises:
            LostError: no cut of the run, or of those that it goes on from, is whole; or that was
            tried too often.
        """
        found = self._saves.newest()
        if found.saved is None:
            why = "\n  ".join(("no whole cut is saved yet: begin anew", *found.refused))
            raise LostError(f"{error.message}; in {self._saves} {why}", hint=error.hint)
        if _foreign(found.saved, plan):
            raise LostError(
                f"{error.message}; the newest in {self._saves} is {found.saved}, which is no cut"
                " of this run",
                hint="Begin anew with --fresh, or go on from that cut with --resume.",
            )
        new = plan.resumed is None or _order(found.saved) > _order(plan.resumed)
        self._times = 1 if new else self._times + 1
        if self._times > RESUMES_MAX:
            raise LostError(
                f"{error.message}; it went on from {found.saved} {RESUMES_MAX} times and saved no"
                " other cut since",
                hint="`raystream run --resume` tries it again, with copies=2 it may lose less.",
            )
        again = f"{error.message}; goes on from {found.saved} in {self._saves}"
        return Beginning(found.saved, (*_refused(found), again))


def _foreign(saved: Saved, plan: Plan) -> bool:
    """Whether a cut is no part of what a run has done: it began anew although the cut was there,
    or another run has begun since."""
    if plan.durable is None or saved.number == plan.durable.number:
        return False
    return plan.resumed is None or saved.number > plan.durable.number


def _order(saved: Saved) -> tuple[int, int]:
    return saved.number, saved.cut


def durably(
    plan: Plan,
    saves: Saves,
    run: str,
    saved: Saved | None,
    known: Collection[str] | None = None,
) -> Plan:
    """The plan of a new run that saves its cuts. Takes its number: earlier runs save no more. Their
    cut with which it begins becomes one of its own, so that what may still be on its way to the
    store from them is older than that.

    Args:
        known: the manifests that were there before `saved` was chosen; None if what earlier runs
            saved does not matter.

    Raises:
        ConfigError: an earlier run has saved a newer cut since.
    """
    number = saves.claim(run)
    if known is not None:
        _refuse_overtaken(saves, saved, known)
    if saved is not None:
        saved = replace(saved, number=number)
        saves.commit(saved)
    return replace(plan, durable=Durable(saves.store.url, number, run, saved))


def _refuse_overtaken(saves: Saves, saved: Saved | None, known: Collection[str]) -> None:
    """A run that is still at work has shown what it saved meanwhile: to go on from an older cut
    would discard that. From the claim on it saves nothing, so who looks now sees all of it."""
    chosen = saved and manifest_name(saved.job, saved.number, saved.cut)
    newer = takewhile(lambda name: name != chosen, saves.manifests())
    if late := [name for name in newer if name not in known]:
        raise ConfigError(
            f"an earlier run has saved {late[0]} in {saves.store.url} while this one began",
            hint="From now on it saves no more. End it, if it is still running, and go on from"
            " there with --resume (resume=True).",
        )


def save(plan: Plan, saves: Saves, cut: int, images: Mapping[int, Iterable[Image]]) -> None:
    """Save a cut of a run in this process. Once it is saved, older ones are deleted as far as that
    is possible: what is left goes with a later one.

    Args:
        images: by vertex, a full one of every range.

    Raises:
        JobError: it cannot be.
    """
    durable = plan.durable
    assert durable is not None
    chains = {
        v: [
            saves.put_chain(
                durable.number,
                plan.vertices[v].name,
                image.header.keys,
                [Encoded(0, image.header.cut, image.encode())],
            )
            for image in found
        ]
        for v, found in images.items()
    }
    saves.commit(saved_cut(plan, durable, cut, chains))
    try:
        saves.drop(durable.number)
    except JobError as error:
        log.warning("what cut %d does not need could not be deleted: %s", cut, error)


def images_of(plan: Plan, saves: Saves) -> dict[str, list[list[Image]]]:
    """All that the cut holds with which a run begins, by the names of vertices."""
    saved = plan.resumed
    if saved is None:
        return {}
    whole = KeyRange(0, plan.groups)
    return {v.name: saves.images(saved, v.name, whole) for v in plan.vertices}
