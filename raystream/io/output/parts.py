"""What users call to find what a job wrote: `rs.io.parts` and `rs.io.read_parts`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, TypeVar

from raystream.api.arguments import check_flag, check_record, whole
from raystream.api.batch import Batch
from raystream.errors import placed
from raystream.io.buckets.paths import folder_at
from raystream.io.file_functions import AnyPath, Columns, csv, json, parquet
from raystream.io.files.reading import reading
from raystream.io.output.manifest import PartFile, merge, read_manifests
from raystream.schema.fields import AnyRecord
from raystream.schema.types import MAX_KEY_GROUPS

U = TypeVar("U", bound=AnyRecord)


@placed
def parts(folder: AnyPath, /, *, key_groups: int = 256, partial: bool = False) -> list[PartFile]:
    """The files that a sink wrote into a folder, in order of epochs, then of key groups.

    Args:
        key_groups: those of the flow (256 unless it says otherwise).
        partial: return what has been committed of all key groups although the job has not ended;
            with a durable tier that is what is saved there.

    Raises:
        InputError: the folder holds no output, or that of several runs.
        JobError: the output of some key groups is missing, or the job has not ended.
    """
    key_groups = whole("rs.io.parts", "key_groups", key_groups, 1, MAX_KEY_GROUPS)
    check_flag("rs.io.parts", "partial", partial)
    path = folder_at(folder)
    with reading(str(path)):
        manifests = read_manifests(path)
    return merge(path, manifests, key_groups, partial=partial)


@placed
def read_parts(
    folder: AnyPath,
    record: type[U],
    /,
    *,
    header: bool = True,
    delimiter: str = ",",
    columns: Columns | None = None,
    key_groups: int = 256,
    partial: bool = False,
) -> Iterator[Batch[U]]:
    """The records of one type that a sink wrote into a folder, in the order of `parts`.

    Args:
        record: their type; a sink keeps types apart by the name of their class.
        header, delimiter: as the sink was told, for CSV.
        columns: as the sink was told.

    Raises:
        InputError, JobError: as `parts`; and a part is not as the manifest says.
    """
    check_record("rs.io.read_parts", record)
    found = parts(folder, key_groups=key_groups, partial=partial)
    for part in found:
        if part.record == record.__name__:
            source = _source_of(os.fspath(part.path), record, header, delimiter, columns)
            for split in source.splits():
                for _, batch in source.read(split, 0):
                    yield batch


def _source_of(
    name: str, record: type[U], header: bool, delimiter: str, columns: Columns | None
) -> Any:
    suffix = os.path.splitext(name.partition("?")[0])[1]
    if suffix == ".jsonl":
        return json(name, record, columns=columns)
    if suffix == ".csv":
        return csv(name, record, header=header, delimiter=delimiter, columns=columns)
    return parquet(name, record, columns=columns)
