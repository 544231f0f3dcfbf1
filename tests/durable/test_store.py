"""Stores: an object is there as a whole or not at all, in a folder as in a bucket."""

from __future__ import annotations

import builtins
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import IncompleteReadError
from botocore.stub import Stubber

import raystream as rs
import raystream.durable.s3
from raystream.durable.s3 import BucketStore
from raystream.durable.store import FolderStore, Store, open_store
from raystream.errors import ConfigError, InternalError, JobError, OutputError, StateError


def test_what_is_put_is_got(store: Store) -> None:
    store.put("a/one", b"1")
    store.put("a/one", b"one")
    store.put("a/two words%2F/2", memoryview(b"two"))
    store.put("ab", b"")
    assert bytes(store.get("a/one")) == b"one"
    assert bytes(store.get("a/two words%2F/2")) == b"two"
    assert bytes(store.get("ab")) == b""
    assert store.sizes("a") == {"a/one": 3, "a/two words%2F/2": 3}
    assert store.sizes("b") == {}


def test_a_store_is_opened_again_anywhere(store: Store) -> None:
    store.put("a/b", b"x")
    assert bytes(open_store(store.url).get("a/b")) == b"x"


def test_only_one_has_a_claim(store: Store) -> None:
    assert store.claim("runs/1", b"me")
    assert not store.claim("runs/1", b"you")
    assert bytes(store.get("runs/1")) == b"me"
    assert store.sizes("runs") == {"runs/1": 2}


@pytest.mark.parametrize("why", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_folder_without_hard_links(
    why: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a share of Windows, or a bucket that is mounted."""

    def refuse(*_: Any) -> None:
        raise OSError(why, os.strerror(why))

    monkeypatch.setattr(os, "link", refuse)
    store = open_store(tmp_path / "store")
    assert store.claim("job/runs/1", b"a")
    assert not store.claim("job/runs/1", b"b")
    assert bytes(store.get("job/runs/1")) == b"a" and store.sizes("job") == {"job/runs/1": 1}


def test_deleting(store: Store) -> None:
    for name in ("a/b/1", "a/b/2", "a/c"):
        store.put(name, b"x")
    store.delete(["a/b/1", "never", "a/b/2"])
    assert store.sizes("a") == {"a/c": 1}
    store.put("a/b/1", b"again")
    store.delete(store.sizes("a"))
    assert store.sizes("a") == {}


def test_what_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(StateError, match=r"(store|s3://bucket/some/prefix)/a/b is not there"):
        store.get("a/b")


def test_more_than_one_page(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raystream.durable.s3, "PAGE", 3)
    store = open_store("s3://bucket")
    names = [f"many/{i:04d}" for i in range(10)]
    for name in names:
        s3.put_object(Bucket="bucket", Key=name, Body=b"x")
    assert list(store.sizes("many")) == names
    store.delete(names[5:])
    assert list(store.sizes("many")) == names[:5]


def test_large_objects_travel_in_parts(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raystream.durable.s3, "PART_BYTES", 5 << 20)
    store = open_store("s3://bucket/p")
    data = bytes(range(256)) * (48 << 10)
    store.put("large", data)
    assert s3.head_object(Bucket="bucket", Key="p/large")["ETag"].endswith('-3"')
    assert store.get("large") == data


# ---------------------------------------------------------------- what dies in the middle


def test_a_put_that_dies_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    store.put("a/b", b"whole")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", _die)
        patch.setattr(os, "unlink", _die)
        with pytest.raises(_DiedError):
            store.put("a/b", b"half")
    assert len(list((tmp_path / "a").iterdir())) == 2
    assert store.get("a/b") == b"whole"
    assert store.sizes("a") == {"a/b": 5}
    store.sweep("a")
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]


class _DiedError(BaseException):
    pass


def _die(*_: Any) -> None:
    raise _DiedError


def test_an_upload_that_dies_is_no_object_and_is_swept(s3: Any) -> None:
    store = open_store("s3://bucket/p")
    for key in ("p/a/b", "p/ab"):
        s3.create_multipart_upload(Bucket="bucket", Key=key)
    assert store.sizes("a") == {}
    store.sweep("a")
    left = s3.list_multipart_uploads(Bucket="bucket")["Uploads"]
    assert [upload["Key"] for upload in left] == ["p/ab"]


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("url", ["gs://bucket/x", "s3://", "s3:///x", "file://host/x", "file://"])
def test_urls_that_name_no_store(url: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a place to store to(.|\n)*s3://bucket/prefix"):
        open_store(url)


def test_a_folder_has_several_names(tmp_path: Path) -> None:
    for url in (tmp_path / "a b", str(tmp_path / "a b"), f"file://{tmp_path}/a%20b"):
        assert open_store(url).url == str(tmp_path / "a b")


def test_a_folder_that_is_only_read_is_not_made(tmp_path: Path) -> None:
    for url in (tmp_path / "typo", f"file://{tmp_path}/typo"):
        store = open_store(url, make=False)
        assert store.sizes("words") == {} and not (tmp_path / "typo").exists()
    store.put("words/a", b"1")
    assert bytes(store.get("words/a")) == b"1"


def test_names_stay_in_the_store(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    for name in ("../x", "/x", "a/../../x", ".hidden", ""):
        with pytest.raises(InternalError, match="is not the name of an object"):
            store.put(name, b"")


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/below cannot be made: Not a directory"):
        open_store(tmp_path / "file" / "below")
    store = FolderStore(tmp_path)
    with pytest.raises(OutputError, match=r"file/x cannot be written: (File exists|Not a dir)"):
        store.put("file/x", b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(JobError, match=r"folder cannot be read: Is a directory"):
        store.get("folder")


def test_a_bucket_that_is_not_there(s3: Any) -> None:
    with pytest.raises(ConfigError, match=r"s3://other cannot be used(.|\n)*Make the bucket"):
        open_store("s3://other/x")


def test_a_server_that_is_not_there(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"cannot be used(.|\n)*AWS_ENDPOINT_URL"):
        open_store("s3://bucket/x")


def test_a_bucket_without_credentials(
    s3: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"used(.|\n)*Set AWS_ACCESS_KEY_ID.*IamInstanceProfile"):
        open_store("s3://bucket/x")


def test_what_is_forbidden_is_said(s3: Any) -> None:
    store = open_store("s3://bucket/p")
    assert isinstance(store, BucketStore)
    with Stubber(store._client) as stub:
        stub.add_client_error("put_object", "AccessDenied", http_status_code=403)
        with pytest.raises(OutputError, match=r"p/a cannot be written(.|\n)*Allow s3:ListBucket"):
            store.claim("a", b"")
        stub.add_client_error("list_objects_v2", "AccessDenied", http_status_code=403)
        with pytest.raises(JobError, match=r"p/a cannot be read(.|\n)*Allow s3:ListBucket"):
            store.sizes("a")
        refused = {"Errors": [{"Key": "p/a", "Code": "AccessDenied", "Message": "Access Denied"}]}
        stub.add_response("delete_objects", refused)
        with pytest.raises(OutputError, match=r"p/a cannot be deleted: Access Denied"):
            store.delete(["a"])
        stub.add_client_error("delete_objects", "SlowDown", http_status_code=503)
        with pytest.raises(OutputError, match=r"^s3://bucket/p/a cannot be deleted: .*SlowDown"):
            store.delete(["a"])
        begun = {"Uploads": [{"Key": "p/a/b", "UploadId": "1"}]}
        stub.add_response("list_multipart_uploads", begun)
        stub.add_client_error("abort_multipart_upload", "AccessDenied", http_status_code=403)
        with pytest.raises(OutputError, match=r"^s3://bucket/p/a/b cannot be deleted: "):
            store.sweep("a")


def test_answers_that_are_cut_off_are_an_error_of_the_store(
    s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(body: Any, *_: Any, **__: Any) -> bytes:
        body.close()
        raise IncompleteReadError(actual_bytes=1, expected_bytes=3)

    store = open_store("s3://bucket/p")
    store.put("a", b"abc")
    monkeypatch.setattr("botocore.response.StreamingBody.read", cut_off)
    with pytest.raises(JobError, match=r"p/a cannot be read: 1 read, but .* expected is 3"):
        store.get("a")


def test_boto3_is_asked_for_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "boto3":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'raystream\[s3\]'"):
        open_store("s3://bucket/x")


def test_another_package_adds_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"gs://bucket/x is not a place(.|\n)*Known are .*s3://"):
        open_store("gs://bucket/x")
    info = tmp_path / "packages" / "added-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: added\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[raystream.stores]\ngs = added_package:open_bucket\n"
        "[raystream.connectors]\nadded = added_package\n"
    )
    (tmp_path / "packages" / "added_package.py").write_text(
        "from pathlib import Path\n"
        "from raystream.durable.store import FolderStore\n"
        f"def open_bucket(url): return FolderStore(Path({str(tmp_path)!r}) / url[5:])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    store = open_store("gs://bucket/x")
    store.put("a", b"1")
    assert (tmp_path / "bucket" / "x" / "a").read_bytes() == b"1"
    assert rs.io.added.open_bucket("gs://y").url == str(tmp_path / "y")  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"rs\.io has no 'adde'\. Is it added\?"):
        _ = rs.io.adde  # type: ignore[attr-defined]
