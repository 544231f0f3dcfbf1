"""Formats: how the messages of a broker, which are bytes, stand for records.

    base        what a format is, and what all of them share: bad messages, keys beside values
    json        JSON
    plain       bytes or text as they are, and functions of the user

A connector gets a `Format` from the user, and asks it for the `Codec` of a record type, or of those
of its fields that a part of the message holds (`part_of`, `joined`). A codec decodes and encodes
many messages in one call, to and from columns.
"""

from __future__ import annotations

from raystream.io.formats.base import Codec, Format, joined, part_of, sift
from raystream.io.formats.json import json
from raystream.io.formats.plain import function, raw

__all__ = ["Codec", "Format", "function", "joined", "json", "part_of", "raw", "sift"]
