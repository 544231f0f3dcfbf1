"""A bucket on this machine."""

from __future__ import annotations

from tests.s3_server import s3 as s3
from tests.s3_server import s3_server as s3_server
