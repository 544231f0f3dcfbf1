"""The bytes of a file as UTF-8 text, whatever it was packed with and encoded in.

How a file is packed is told by its first bytes, not by its name: gzip, bzip2, xz, zstd, lz4.
An encoding is told by a byte order mark, or by the user.
"""

from __future__ import annotations

import codecs
import errno
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow as pa

from raystream.errors import ConfigError, InputError
from raystream.filesystem import reason
from raystream.io.buckets import objects
from raystream.io.buckets.filesystems import advice, said
from raystream.io.buckets.urls import is_bucket

EMPTY_HINT = "Remove it. Files of a folder whose names begin with a dot or _ are not read."
"""What to do about a file of no bytes: nobody knows whether it is still being written."""
PACKED = ("", ".gz", ".bz2", ".xz", ".zst", ".lz4")
"""What may follow the suffix of a file in a folder."""
CHUNK_BYTES = 1 << 20
"""What is decoded, or left out, at a time."""

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
"""The first bytes of a packed file. No text begins so: BZh is followed by a digit and a mark."""
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte order marks, longer ones first: that of UTF-16 begins that of UTF-32."""


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turns what the system says of a file into an `InputError` that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{name} is not there, or is no longer there.") from error
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{name} is cut off or damaged: {error}.") from error
    except OSError as error:
        raise InputError(
            f"{name} cannot be read: {said(error) if is_bucket(name) else reason(error)}.",
            hint="Let the process open more files: `ulimit -n 65536` before it starts."
            if error.errno in (errno.EMFILE, errno.ENFILE)
            else advice(error),
        ) from error


def check_encoding(encoding: str | None) -> str | None:
    """The name of an encoding as Python has it; None for UTF-8 or what a byte order mark says.

    Raises:
        ConfigError: it is unknown, or no encoding of text.
    """
    if encoding is None:
        return None
    try:
        found = codecs.lookup(encoding)
        known = found._is_text_encoding
    except (LookupError, TypeError, ValueError):
        known = False
    if not known:
        raise ConfigError(
            f"encoding={encoding!r} is not known",
            hint='For example "latin-1", "cp1252", "utf-16" or "shift_jis".',
        )
    return None if found.name in ("utf-8", "utf-8-sig") else found.name


def open_text(name: str, encoding: str | None = None) -> BinaryIO:
    """A file as UTF-8 text in bytes, unpacked and decoded. A byte order mark of UTF-8 is left in.

    Args:
        encoding: as `check_encoding` returns it.

    Raises:
        OSError, EOFError, InputError: it cannot be read; see `reading`.
    """
    file = open_bytes(name)
    try:
        if encoding is None:
            head = cast("io.BufferedReader", file).peek(4)[:4]
            encoding = next((e for mark, e in _MARKS.items() if head.startswith(mark)), None)
        if encoding is not None:
            return io.BufferedReader(_Decoded(file, name, encoding), CHUNK_BYTES)
    except BaseException:
        file.close()
        raise
    return file


def open_bytes(name: str) -> BinaryIO:
    """A file, unpacked."""
    with open_file(name) as file:
        head = file.read(10)
    packed = next((how for magic, how in _MAGIC.items() if head.startswith(magic)), None)
    if packed == "bzip2" and head[4:10] != b"1AY&SY" and head[4:10] != b"\x17rE8P\x90":
        packed = None  # text that begins with BZh
    opened: Any
    match packed:
        case "gzip":
            import gzip

            opened = gzip.GzipFile(fileobj=(whole := open_file(name)), mode="rb")
        case "bzip2":
            import bz2

            opened = bz2.BZ2File(whole := open_file(name), "rb")
        case "xz":
            opened = lzma.LZMAFile(whole := open_file(name), "rb")  # noqa: SIM115  closed below
        case "zstd" | "lz4":
            stream = pa.CompressedInputStream(whole := open_file(name), packed)
            return io.BufferedReader(_Closing(stream, whole), CHUNK_BYTES)
        case _:
            if head.startswith(b"PK\x03\x04"):
                raise InputError(
                    f"{name} is a zip archive, which holds files and is none.",
                    hint="Unpack it, or pack each file by itself: gzip, zstd, bzip2, xz or lz4.",
                )
            return open_file(name)
    return io.BufferedReader(_Closing(opened, whole), CHUNK_BYTES)


def open_file(name: str) -> BinaryIO:
    """A file as it is, on this machine or in a bucket."""
    if is_bucket(name):
        return io.BufferedReader(objects.open_object(name), CHUNK_BYTES)
    return open(name, "rb")


def skip(file: BinaryIO, nbytes: int) -> None:
    """Go on by `nbytes`, or to the end, in a file that was just opened."""
    if file.seekable():
        file.seek(nbytes)
        return
    while nbytes and (data := file.read(min(nbytes, CHUNK_BYTES))):
        nbytes -= len(data)


class _Closing(io.RawIOBase):
    """A file that is unpacked, and closed together with the one that it is unpacked from."""

    def __init__(self, unpacked: Any, whole: BinaryIO) -> None:
        self._unpacked = unpacked
        self._whole = whole

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._unpacked.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._unpacked.close()
        self._whole.close()
        super().close()


class _Decoded(io.RawIOBase):
    """Text of any encoding as UTF-8."""

    def __init__(self, file: BinaryIO, name: str, encoding: str) -> None:
        self._file = file
        self._name = name
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._lines = 0
        self._rest = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest and not self._ended:
            data = self._file.read(CHUNK_BYTES)
            self._ended = not data
            self._rest = self._decoded(data).encode()
            self._lines += self._rest.count(b"\n")
        now, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(now)] = now
        return len(now)

    def _decoded(self, data: bytes) -> str:
        try:
            return self._decoder.decode(data, self._ended)
        except UnicodeError as error:
            before = data[: error.start] if isinstance(error, UnicodeDecodeError) else b""
            line = self._lines + before.decode(self._encoding, "replace").count("\n") + 1
            raise InputError(
                f"{self._name}, line {line}: this is not {self._encoding} text.",
                hint="Say what it is: encoding=...",
            ) from None

    def close(self) -> None:
        self._file.close()
        super().close()
