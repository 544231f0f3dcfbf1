"""Whether this process is the entrypoint of a submitted Ray job."""

from __future__ import annotations

import os

SUBMITTED = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The environment variable that Ray sets for such a process."""


def submitted() -> bool:
    """Whether `ray job submit` has started this process, so that Ray keeps what it prints."""
    return SUBMITTED in os.environ
