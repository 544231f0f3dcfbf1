"""Formats: how the messages of a broker, which are bytes, stand for records. (Formats of files are
elsewhere: `raystream/io/files` reads them, `raystream/io/output/formats.py` writes them.)

    base        what a format is, and what all of them share: bad messages, keys beside values
    json        JSON
    plain       bytes or text as they are, and functions of the user
    avro        Avro, with a schema registry or one schema
    avro_columns
                the same of flat records, a column at a time
    protobuf    Protobuf, by a class that `protoc` made
    values      values of Python as columns, for these two
    registry    schema registries, as Confluent's
    bad_messages
                messages that are no records, as a stream

A connector gets a `Format` from the user, and asks it for the `Codec` of a record type, or of those
of its fields that a part of the message holds (`part_of`, `joined`). A codec decodes and encodes
many messages in one call, to and from columns.
"""

from __future__ import annotations

from raystream.io.formats.avro import avro
from raystream.io.formats.base import Codec, Format, joined, part_of, sift
from raystream.io.formats.json import json
from raystream.io.formats.plain import function, raw
from raystream.io.formats.protobuf import protobuf

__all__ = [
    "Codec",
    "Format",
    "avro",
    "function",
    "joined",
    "json",
    "part_of",
    "protobuf",
    "raw",
    "sift",
]
