"""What opens a bucket: a file system of `pyarrow.fs`, with the settings of the environment.

Region, endpoint and credentials are found where the tools of the provider look for them. They are
read in each process, and are in no plan, message or log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any

from raystream.errors import ConfigError
from raystream.filesystem import reason
from raystream.io.buckets.urls import BucketUrl

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
"""Limits of one attempt: to connect, and to wait for bytes."""
ATTEMPTS = 4
RETRY_SECONDS = 60
"""How often, or how long, a request is tried again that failed for a passing reason."""

_ENVIRONMENT = {
    "s3": ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("STORAGE_EMULATOR_HOST",),
    "az": ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ENDPOINT"),
}
"""What is looked up here; the rest is left to the library of the provider."""
_SECRETS = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS",),
    "az": ("AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"),
}


def filesystem(place: BucketUrl) -> Any:
    """The file system of a bucket; one for each process and set of settings.

    Raises:
        ConfigError: the Arrow that is installed has none for the scheme, or a setting is missing.
    """
    names = (*_ENVIRONMENT[place.scheme], *_SECRETS[place.scheme])
    seen = tuple((name, os.environ.get(name, "")) for name in names)
    return _made(place.scheme, place.settings, seen)


@lru_cache(maxsize=16)
def _made(
    scheme: str, settings: tuple[tuple[str, str], ...], seen: tuple[tuple[str, str], ...]
) -> Any:
    try:
        return _MAKERS[scheme](dict(settings), dict(seen))
    except (ImportError, AttributeError):
        raise ConfigError(
            f"The pyarrow that is installed cannot open {scheme}://.",
            hint="Install a wheel of pyarrow: pip install pyarrow.",
        ) from None


def _s3(settings: Mapping[str, str], seen: Mapping[str, str]) -> Any:
    from pyarrow import fs

    region = settings.get("region") or seen["AWS_REGION"] or seen["AWS_DEFAULT_REGION"]
    endpoint = settings.get("endpoint") or seen["AWS_ENDPOINT_URL_S3"] or seen["AWS_ENDPOINT_URL"]
    scheme, _, host = endpoint.rpartition("://")
    return fs.S3FileSystem(
        region=region or None,
        endpoint_override=host or None,
        scheme=scheme or None,
        anonymous=_yes(settings),
        connect_timeout=CONNECT_SECONDS,
        request_timeout=READ_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        allow_delayed_open=True,  # a small object is one request, and appears whole
        background_writes=False,
    )


def _gs(settings: Mapping[str, str], seen: Mapping[str, str]) -> Any:
    from pyarrow import fs

    endpoint = settings.get("endpoint") or seen["STORAGE_EMULATOR_HOST"]
    scheme, _, host = endpoint.rpartition("://")
    return fs.GcsFileSystem(
        anonymous=_yes(settings),
        endpoint_override=host or None,
        scheme=scheme or "https",
        retry_time_limit=timedelta(seconds=RETRY_SECONDS),
    )


def _az(settings: Mapping[str, str], seen: Mapping[str, str]) -> Any:
    from pyarrow import fs

    account = settings.get("account") or seen["AZURE_STORAGE_ACCOUNT"]
    if not account:
        raise ConfigError(
            "az:// needs the name of a storage account.",
            hint="Set AZURE_STORAGE_ACCOUNT, or write az://container/rows?account=NAME.",
        )
    scheme, _, host = (settings.get("endpoint") or seen["AZURE_STORAGE_ENDPOINT"]).rpartition("://")
    elsewhere = {"blob_storage_authority": host, "dfs_storage_authority": host} if host else {}
    if scheme:
        elsewhere |= {"blob_storage_scheme": scheme, "dfs_storage_scheme": scheme}
    return fs.AzureFileSystem(
        account,
        account_key=seen["AZURE_STORAGE_KEY"] or None,
        sas_token=seen["AZURE_STORAGE_SAS_TOKEN"] or None,
        **elsewhere,
    )


_MAKERS = {"s3": _s3, "gs": _gs, "az": _az}


def _yes(settings: Mapping[str, str]) -> bool:
    return settings.get("anonymous", "").lower() in ("1", "true", "yes")


# ---------------------------------------------------------------- errors in words

_SAID = re.compile(
    r"AWS Error (?P<code>[A-Z_]+)(?: \[code \d+\])? during \w+ operation: ?(?P<what>.*)"
)
_WHAT_TO_DO = {
    "NO_SUCH_BUCKET": "Make the bucket first, or name one that is there.",
    "ACCESS_DENIED": "Allow s3:ListBucket on the bucket, s3:GetObject on what is read, and"
    " s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on what is written.",
    "INVALID_ACCESS_KEY_ID": "Check AWS_ACCESS_KEY_ID, or the profile.",
    "SIGNATURE_DOES_NOT_MATCH": "Check AWS_SECRET_ACCESS_KEY, or the profile.",
    "NETWORK_CONNECTION": "Check the network, the region and AWS_ENDPOINT_URL.",
    "UNKNOWN": "Check the region: AWS_REGION, or ?region= in the URL.",
}


def said(error: OSError) -> str:
    """What went wrong with a bucket, in few words."""
    if (found := _SAID.search(str(error))) is not None:
        what = re.sub(r" ?\(Request ID:.*?\)", "", found["what"]).partition("\n")[0].strip()
        return f"{what or found['code'].lower().replace('_', ' ')}".rstrip(".")
    if isinstance(error, FileNotFoundError):
        return "it is not there"
    return reason(error)


def advice(error: OSError) -> str:
    """What to do about it; nothing if that is not known."""
    if isinstance(error, BucketError):
        return error.hint
    found = _SAID.search(str(error))
    return "" if found is None else _WHAT_TO_DO.get(found["code"], "")


@contextmanager
def named(place: str) -> Iterator[None]:
    """Gives an error that Arrow raises for a bucket the place, as the system does for a path."""
    try:
        yield
    except BucketError:
        raise
    except FileNotFoundError as error:
        raise BucketMissingError(place, error) from error
    except OSError as error:
        raise BucketError(place, error) from error


class BucketError(OSError):
    """What a bucket refused. As of any OSError, `filename` is the place."""

    def __init__(self, place: str, error: OSError) -> None:
        self.words = said(error)
        super().__init__(self.words)
        self.filename = place
        self.hint = advice(error)

    def __str__(self) -> str:
        return self.words


class BucketMissingError(BucketError, FileNotFoundError):
    """There is no such object."""
