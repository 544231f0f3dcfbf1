"""Stores in buckets of S3, or of what speaks like it, through boto3.

Region, endpoint (`AWS_ENDPOINT_URL`), credentials and retries are as boto3 finds them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from raystream.durable.store import Data, missing, not_a_store
from raystream.errors import ConfigError, JobError, OutputError

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
"""Limits of one attempt: to connect, and to wait for bytes. Attempts are counted by boto3."""
PART_BYTES = 16 << 20
"""Larger objects travel in parts of this size, several at once."""
PAGE = 1000
"""How many objects one request lists or deletes, at most."""

_GONE = ("404", "NoSuchKey")
_TAKEN = ("PreconditionFailed", "ConditionalRequestConflict")
_RIGHTS = (
    "Allow s3:ListBucket and s3:ListBucketMultipartUploads on the bucket, and s3:GetObject,"
    " s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on what is in it."
)
_WHAT_TO_DO = {
    "NoSuchBucket": "Make the bucket first, or name one that is there.",
    "AccessDenied": _RIGHTS,
    "403": _RIGHTS,
    "InvalidAccessKeyId": "Check AWS_ACCESS_KEY_ID, or the profile.",
    "SignatureDoesNotMatch": "Check AWS_SECRET_ACCESS_KEY, or the profile.",
    "NoCredentialsError": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile, on every"
    " node before `ray start`; on EC2 give all nodes a role, operator nodes too: IamInstanceProfile"
    " in cluster.yaml.",
    "EndpointConnectionError": "Check the network, the region and AWS_ENDPOINT_URL.",
}


def open_url(url: str) -> BucketStore:
    """The store at `s3://bucket/prefix`.

    Raises:
        ConfigError: as `open_bucket`; or the URL has no bucket.
    """
    bucket, _, prefix = url.partition("://")[2].partition("/")
    if not bucket:
        raise not_a_store(url)
    return open_bucket(bucket, prefix.strip("/"))


def open_bucket(bucket: str, prefix: str) -> BucketStore:
    """The store below a prefix of a bucket.

    Raises:
        ConfigError: boto3 is not installed; the bucket is not there or may not be listed.
    """
    try:
        import boto3
    except ImportError as error:
        raise ConfigError(
            f"s3://{bucket} needs boto3, which is not installed",
            hint="pip install 'raystream[s3]'",
        ) from error
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    with _translated(ConfigError, f"s3://{bucket} cannot be used"):
        limits = Config(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS)
        client = boto3.Session().client("s3", config=limits)
        client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)
    parts = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES)
    return BucketStore(client, bucket, prefix, parts)


class BucketStore:
    """Objects of a bucket, below a prefix."""

    def __init__(self, client: Any, bucket: str, prefix: str, parts: Any) -> None:
        self.bucket = bucket
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = client
        self._parts = parts

    def put(self, name: str, data: Data) -> None:
        """See `Store`."""
        with self._writing(name):
            self._client.upload_fileobj(
                io.BytesIO(data), self.bucket, self._prefix + name, Config=self._parts
            )

    def claim(self, name: str, data: Data) -> bool:
        """See `Store`."""
        from botocore.exceptions import ClientError

        with self._writing(name):
            try:
                self._client.put_object(
                    Bucket=self.bucket, Key=self._prefix + name, Body=data, IfNoneMatch="*"
                )
            except ClientError as error:
                if _code(error) in _TAKEN:
                    return False
                raise
        return True

    def get(self, name: str) -> Data:
        """See `Store`."""
        from botocore.exceptions import ClientError

        content = io.BytesIO()
        with self._reading(name):
            try:
                self._client.download_fileobj(
                    self.bucket, self._prefix + name, content, Config=self._parts
                )
            except ClientError as error:
                if _code(error) in _GONE:
                    raise missing(self.url, name) from None
                raise
        return content.getbuffer()

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Store`."""
        return {
            found["Key"].removeprefix(self._prefix): found["Size"]
            for found in self._pages("list_objects_v2", folder, "Contents")
        }

    def delete(self, names: Iterable[str]) -> None:
        """See `Store`."""
        keys = [{"Key": self._prefix + name} for name in names]
        for at in range(0, len(keys), PAGE):
            with _translated(OutputError, f"{self._place(keys[at])} cannot be deleted"):
                answer = self._client.delete_objects(
                    Bucket=self.bucket, Delete={"Objects": keys[at : at + PAGE]}
                )
            for refused in answer.get("Errors", []):
                raise OutputError(
                    f"{self._place(refused)} cannot be deleted: {refused['Message']}.",
                    hint=_WHAT_TO_DO.get(refused["Code"], ""),
                )

    def sweep(self, folder: str) -> None:
        """See `Store`. Parts of an upload that was never completed are no objects, and are paid
        for."""
        for begun in self._pages("list_multipart_uploads", folder, "Uploads"):
            with _translated(OutputError, f"{self._place(begun)} cannot be deleted"):
                self._client.abort_multipart_upload(
                    Bucket=self.bucket, Key=begun["Key"], UploadId=begun["UploadId"]
                )

    def _pages(self, call: str, folder: str, what: str) -> list[Any]:
        with self._reading(folder):
            pages = self._client.get_paginator(call).paginate(
                Bucket=self.bucket,
                Prefix=f"{self._prefix}{folder}/",
                PaginationConfig={"PageSize": PAGE},
            )
            return [found for page in pages for found in page.get(what, [])]

    def _place(self, found: dict[str, Any]) -> str:
        return f"s3://{self.bucket}/{found['Key']}"

    def _reading(self, name: str) -> Any:
        return _translated(JobError, f"{self.url}/{name} cannot be read")

    def _writing(self, name: str) -> Any:
        return _translated(OutputError, f"{self.url}/{name} cannot be written")


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def _translated(kind: type[ConfigError | JobError], what: str) -> Iterator[None]:
    """Turns what boto3 raises into an error that says what to do."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError
    from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError

    try:
        yield
    except RetriesExceededError as error:  # answers were cut off again and again
        raise kind(f"{what}: {error.last_exception or error}") from error
    except S3DownloadFailedError as error:  # the object was replaced meanwhile
        raise kind(f"{what}: {error}") from error
    except (ClientError, BotoCoreError, Boto3Error, ValueError) as error:
        code = _code(error) if isinstance(error, ClientError) else type(error).__name__
        raise kind(f"{what}: {error}", hint=_WHAT_TO_DO.get(code, "")) from error
