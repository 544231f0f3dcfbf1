"""URLs of buckets: `s3://bucket/key`, `gs://bucket/key`, `az://container/key`.

A URL may end in settings that the environment does not say:
`s3://bucket/rows/*.csv?region=eu-central-1&endpoint=http://127.0.0.1:9000`. So the name of a file
says all that is needed to open it, in every process of a job. Credentials are never part of a URL:
names of files stand in plans, messages and logs.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from raystream.errors import ConfigError
from raystream.filesystem import absolute, scheme_of

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az"}
"""Known schemes, with the one that is used for each."""
SETTINGS = {
    "s3": ("region", "endpoint", "anonymous"),
    "gs": ("endpoint", "anonymous"),
    "az": ("account", "endpoint"),
}
"""What a URL of a scheme may say."""
_QUERY = re.compile(r"\?(?=[a-z_]+=)(?P<query>[^?*\[\]]*)$")
"""Settings, and not a `?` of a pattern."""
_SECRET = re.compile(r"key|secret|token|password|sas|credential", re.IGNORECASE)


@dataclass(frozen=True)
class BucketUrl:
    """An object, a prefix or a pattern in a bucket."""

    scheme: str
    bucket: str
    key: str
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def plain(self) -> str:
        """The URL without settings, for people."""
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/")

    @property
    def path(self) -> str:
        """As `pyarrow.fs` calls it."""
        return f"{self.bucket}/{self.key}".rstrip("/")

    def __str__(self) -> str:
        """The whole URL."""
        return self.plain + (f"?{urlencode(self.settings, safe=':/')}" if self.settings else "")

    def at(self, path: str) -> BucketUrl:
        """Another place in the bucket. path: as `pyarrow.fs` calls it."""
        return replace(self, key=path.partition("/")[2])


def is_bucket(name: str) -> bool:
    """Whether a name is the URL of something in a bucket, and no path of this machine."""
    return scheme_of(name) in SCHEMES


def parsed(url: str) -> BucketUrl:
    """The parts of a URL.

    Raises:
        ConfigError: it has no bucket, or settings that its scheme does not have, or credentials.
    """
    scheme, _, rest = url.partition("://")
    scheme = SCHEMES[scheme]
    found = _QUERY.search(rest)
    if found is not None:
        rest = rest[: found.start()]
    bucket, _, key = rest.partition("/")
    if "@" in bucket or ":" in bucket:
        raise ConfigError(
            f"A URL of {scheme}:// names a bucket and nothing before it: credentials do not belong"
            " there, because names of files stand in messages and logs.",
            hint=_ELSEWHERE[scheme],
        )
    if not bucket or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", bucket):
        raise ConfigError(
            f"{scheme}://{bucket} names no bucket.", hint=f"For example {scheme}://bucket/rows/."
        )
    settings = parse_qsl(found["query"], keep_blank_values=True) if found is not None else []
    for name, _ in settings:
        if name not in SETTINGS[scheme]:
            raise _unknown(scheme, bucket, name)
    return BucketUrl(scheme, bucket, key.strip("/"), tuple(settings))


_ELSEWHERE = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role, on every node.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS, or give the nodes a service account.",
    "az": "Set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, or give the nodes an identity.",
}
"""Where credentials are found, by scheme."""


def _unknown(scheme: str, bucket: str, name: str) -> ConfigError:
    if _SECRET.search(name):
        return ConfigError(
            f"{scheme}://{bucket}/... has {name}=: credentials do not belong in a URL, because"
            " names of files stand in messages and logs.",
            hint=_ELSEWHERE[scheme],
        )
    return ConfigError(
        f"{scheme}://{bucket}/... has {name}=, which is no setting of {scheme}://.",
        hint=f"It has {', '.join(SETTINGS[scheme])}. A ? of a pattern stands before no name and =.",
    )


def place_name(path: Any) -> str:
    """A path, pattern or URL that means the same in every process of a job.

    Raises:
        ConfigError: it is none, or of a scheme that is not known.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if isinstance(text, str) and is_bucket(text):
        return str(parsed(text))
    return absolute(path)
