"""Where a run with a durable tier begins: at the newest saved checkpoint, or at the beginning."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

from raystream.controller.protocol.saving import saved_checkpoint
from raystream.dataflow.plan import Durable, Plan
from raystream.dataflow.upgrading.versions import version_at
from raystream.durable.manifest import Saved, manifest_name
from raystream.durable.saves import KEPT, EncodedImage, Found, Saves
from raystream.errors import ConfigError, JobError, LostError, StateError
from raystream.schema.types import KeyRange
from raystream.state.images.image import Image

RESUMES_MAX = 3
"""How many times a run that lost all copies of something begins again at the same saved
checkpoint."""

log = logging.getLogger("raystream.saves")


class StartPoint(NamedTuple):
    """Where a run begins."""

    saved: Saved | None
    """The checkpoint to go on from; None to begin at the beginning."""
    notes: tuple[str, ...]
    """What the user should be told about it."""


def beginning(saves: Saves, resume: bool | None) -> StartPoint:
    """Where a run begins.

    Args:
        resume: True goes on from the newest checkpoint that is whole, and begins at the beginning
            if nothing was saved. False always begins at the beginning: the new checkpoints
            supersede those that are there. None begins at the beginning, but only if nothing was
            saved.

    Raises:
        ConfigError: `resume` is None, and there are saved checkpoints.
        StateError: `resume` is True, and none of the saved checkpoints is whole.
    """
    if resume is False:
        return StartPoint(None, ())
    if resume is None:
        found = saves.newest(checksums=False)
        if found.saved or found.refused:
            raise ConfigError(
                f"{saves} holds checkpoints of an earlier run: {found.saved or found.refused[0]}",
                hint="Go on from there with --resume (resume=True), or begin again from the"
                " start with --fresh (resume=False): the new checkpoints then take their place.",
            )
        return StartPoint(None, ())
    found = saves.newest()
    refused = _refused(found)
    if found.saved is not None:
        upgraded = found.saved.version and (
            f"{found.saved} was made by code to which the job was upgraded,"
            f" {found.saved.code or 'without a name'}: this run goes on with the code that it is"
            " given"
        )
        notes = (*refused, f"goes on from {found.saved} in {saves}{_over(saves, found.saved)}")
        return StartPoint(found.saved, (*notes, upgraded) if upgraded else notes)
    if refused:
        raise StateError(f"no checkpoint in {saves} is whole", hint="\n  ".join(refused))
    return StartPoint(None, (f"nothing was saved in {saves}: begins at the beginning",))


def _over(saves: Saves, saved: Saved) -> str:
    """What to add where nothing is left to read: a job that ends at once needs a word why."""
    ends = [header for source in saved.splits for header in saves.ends(saved, source)]
    if not ends or not all(header.input_position.ended for header in ends):
        return ""
    return "; its input had ended there, so only sources and files that are new are read"


def _refused(found: Found) -> tuple[str, ...]:
    return tuple(f"a newer checkpoint was refused: {why}" for why in found.refused)


class Resumes:
    """Decides whether a run that lost state begins again at a saved checkpoint."""

    def __init__(self, saves: Saves) -> None:
        self._saves = saves
        self._times = 0

    def after(self, error: LostError, plan: Plan) -> StartPoint:
        """Where to begin again.

        Raises:
            LostError: no checkpoint of this run, or of the one that it goes on from, is whole; or
                the run has begun again too often without saving another one.
        """
        found = self._saves.newest()
        if found.saved is None:
            why = "\n  ".join(
                ("no whole checkpoint is saved yet: begin again from the start", *found.refused)
            )
            raise LostError(f"{error.message}; in {self._saves} {why}", hint=error.hint)
        if _foreign(found.saved, plan):
            raise LostError(
                f"{error.message}; the newest in {self._saves} is {found.saved}, which is no"
                " checkpoint of this run",
                hint="Begin again from the start with --fresh, or go on from that checkpoint with"
                " --resume.",
            )
        _refuse_unknown_code(error, found.saved, plan)
        new = plan.resumed is None or _order(found.saved) > _order(plan.resumed)
        self._times = 1 if new else self._times + 1
        if self._times > RESUMES_MAX:
            raise LostError(
                f"{error.message}; it went on from {found.saved} {RESUMES_MAX} times and saved no"
                " other checkpoint since",
                hint="`raystream run --resume` tries it again; with copies=2 it may lose less.",
            )
        again = f"{error.message}; goes on from {found.saved} in {self._saves}"
        return StartPoint(found.saved, (*_refused(found), again))


def _foreign(saved: Saved, plan: Plan) -> bool:
    """Whether a checkpoint is not a part of what a run has done: the run began at the beginning
    although the checkpoint was there, or another run has begun since."""
    if plan.durable is None or saved.number == plan.durable.number:
        return False
    return plan.resumed is None or saved.number > plan.durable.number


def _refuse_unknown_code(error: LostError, saved: Saved, plan: Plan) -> None:
    """Refuse to go on by itself from a checkpoint of a version of the code that this process does
    not have: nothing that is in the durable tier is ever run."""
    known = () if plan.durable is None else plan.durable.versions
    version = version_at(known, saved.checkpoint)
    if saved.version != (0 if version is None else version.number):
        raise LostError(
            f"{error.message}; {saved} was made by other code than the job began with, and the job"
            " was lost before its submitter knew of that",
            hint=f"Go on from there with that code: raystream run {saved.code or 'MODULE:FLOW'}"
            " --resume, in the folder where that code is.",
        )


def _order(saved: Saved) -> tuple[int, int]:
    return saved.number, saved.checkpoint


def durably(
    plan: Plan,
    saves: Saves,
    run: str,
    saved: Saved | None,
    known: Collection[str] | None = None,
    changed: Saved | None = None,
    keep: int = KEPT,
) -> Plan:
    """The plan of a new run that saves its checkpoints.

    This claims the next run number: from then on earlier runs can save nothing. The checkpoint with
    which the run begins is saved again under the new number, so that anything that is still on its
    way to the store from an earlier run is older.

    The run has the versions of the code that the one before had which this plan is from.

    Args:
        saved: the checkpoint with which the run begins; None if it begins at the beginning.
        known: the manifests that were there before `saved` was chosen; None if it does not matter
            what earlier runs have saved.
        changed: `saved` as a checkpoint of this plan, where the flow has changed since.
        keep: how many whole checkpoints stay in the store.

    Raises:
        ConfigError: an earlier run has saved a newer checkpoint since.
    """
    number, versions = saves.claim(run), () if plan.durable is None else plan.durable.versions
    if known is not None:
        _refuse_overtaken(saves, saved, known)
    if saved is not None:
        made_by = version_at(versions, saved.checkpoint)
        version = 0 if made_by is None else made_by.number
        saved = replace(saved, number=number, version=version)
        saves.commit(saved)
        saved = replace(changed or saved, number=number, version=version)
    return replace(plan, durable=Durable(saves.store.url, number, run, saved, keep, versions))


def _refuse_overtaken(saves: Saves, saved: Saved | None, known: Collection[str]) -> None:
    """Refuse to go on from a checkpoint if a run that is still at work has saved a newer one since
    the choice: what it saved it has also published, and going on from the older one would discard
    that. After the claim the earlier run saves nothing, so all of it is visible now."""
    chosen = saved and manifest_name(saved.job, saved.number, saved.checkpoint)
    newer = takewhile(lambda name: name != chosen, saves.manifests())
    if late := [name for name in newer if name not in known]:
        raise ConfigError(
            f"an earlier run has saved {late[0]} in {saves.store.url} while this one began",
            hint="From now on it can save nothing. End it, if it is still running, and go on from"
            " there with --resume (resume=True).",
        )


def save(plan: Plan, saves: Saves, checkpoint: int, images: Mapping[int, Iterable[Image]]) -> None:
    """Save a checkpoint of a run in this process, then delete older ones.

    What cannot be deleted now is deleted after a later checkpoint.

    Args:
        images: by vertex, a full image of every range.

    Raises:
        JobError: the checkpoint cannot be saved.
    """
    durable = plan.durable
    assert durable is not None
    chains = {
        v: [
            saves.put_chain(
                durable.number,
                plan.vertices[v].name,
                image.header.keys,
                [EncodedImage(0, image.header.checkpoint, image.encode())],
            )
            for image in found
        ]
        for v, found in images.items()
    }
    saves.commit(saved_checkpoint(plan, durable, checkpoint, chains))
    try:
        saves.drop(durable.number, kept=durable.keep)
    except JobError as error:
        log.warning("what checkpoint %d does not need could not be deleted: %s", checkpoint, error)


def images_of(plan: Plan, saves: Saves) -> dict[str, list[list[Image]]]:
    """The images of the checkpoint with which a run begins, by the names of vertices."""
    saved = plan.resumed
    if saved is None:
        return {}
    whole = KeyRange(0, plan.groups)
    return {v.name: saves.images(saved, v.name, whole) for v in plan.vertices}
