"""JSON that is not an object on each line: one array, or objects over several lines."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, BinaryIO

from raystream.errors import InputError
from raystream.io.files.reading import CHUNK_BYTES


def _exact(text: str) -> Decimal | float:
    try:
        return Decimal(text)
    except InvalidOperation:  # its exponent is beyond what a Decimal has
        return float(text)


EXACT = json.JSONDecoder(parse_float=_exact)
"""Decodes a number with a point or an exponent to a Decimal. A float has 17 digits of it at most,
which is too few for a field of decimals, and for a large int that is written as `1.5e18`."""

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"
_HEAD_BYTES = 1 << 16


def has_lines(file: BinaryIO) -> bool:
    """Whether a file, just opened, is JSON Lines: an object is whole on its first line that is not
    blank. What is no JSON at all is taken for lines, too, so that the line can be named."""
    while line := file.readline(_HEAD_BYTES):
        text = line.decode(errors="replace").removeprefix("\ufeff").strip()
        if not text:
            continue
        if text.startswith("["):
            return False
        if not text.startswith("{") or len(line) == _HEAD_BYTES:
            return True
        try:
            _DECODER.raw_decode(text)
        except ValueError as error:
            # What is cut off goes on below; anything else is an error of this line.
            return getattr(error, "pos", 0) < len(text) and not _unfinished(error, text)
        except RecursionError:
            return True  # an error of this line, too
        return True
    return True


def _unfinished(error: ValueError, text: str) -> bool:
    message = str(error)
    at = getattr(error, "pos", 0)
    return at >= len(text) or message.startswith("Unterminated string")


def values(file: BinaryIO, name: str) -> Iterator[tuple[int, Any, str]]:
    """The lines at which the values of a file begin, the values, as of `EXACT`, and their text:
    those of its one array, or those that follow each other.

    Raises:
        InputError: it is no JSON.
    """
    text = _JsonText(file, name)
    in_array = text.peek() == "["
    if in_array:
        text.take("[")
    first = True
    while True:
        found = text.peek()
        if in_array and found == "]":
            text.take("]")
            if text.peek():
                raise text.wrong("something follows the array")
            return
        if not found:
            if in_array:
                raise text.wrong("the array is not closed")
            return
        if in_array and not first:
            text.take(",")
            text.peek()
        first = False
        yield text.value()


class _JsonText:
    """Text that is decoded as it is needed."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._line = 1
        self._ended = False

    def peek(self) -> str:
        """The next character that is no space; nothing at the end."""
        while True:
            start = self._at
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            self._line += self._text.count("\n", start, self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(1):
                return ""

    def take(self, character: str) -> None:
        """Go on behind a character."""
        if self._text[self._at] != character:
            raise self.wrong(f"expected {character!r}, found {self._text[self._at]!r}")
        self._at += 1

    def value(self) -> tuple[int, Any, str]:
        """The line at which the next value begins, the value, and its text."""
        need = CHUNK_BYTES
        while True:
            try:
                found, end = EXACT.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                # It may only be cut off: look again with twice as much.
                if not self._more(need):
                    line = self._line
                    if isinstance(error, json.JSONDecodeError):
                        line += self._text.count("\n", self._at, error.pos)
                        raise self.wrong(error.msg, line) from None
                    raise self.wrong(str(error), line) from None
                need *= 2
                continue
            if end == len(self._text) and self._more(1):
                continue  # a number may go on
            line = self._line
            self._line += self._text.count("\n", self._at, end)
            text, self._at = self._text[self._at : end], end
            return line, found, text

    def wrong(self, what: str, line: int | None = None) -> InputError:
        """What is raised at this place."""
        return InputError(f"{self._name}, line {line or self._line}: no JSON: {what}")

    def _more(self, nbytes: int) -> bool:
        """Have more text; False at the end."""
        if self._ended:
            return False
        parts = []
        while nbytes > 0 and not self._ended:
            data = self._file.read(max(nbytes, CHUNK_BYTES))
            self._ended = not data
            nbytes -= len(data)
            try:
                parts.append(self._decoder.decode(data, self._ended))
            except UnicodeDecodeError:
                raise self.wrong("this is not UTF-8 text") from None
        self._text = self._text[self._at :] + "".join(parts)
        self._at = 0
        return True
