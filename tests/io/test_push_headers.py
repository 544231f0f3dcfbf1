"""What is in the headers of a request may be anything: it is refused in words."""

from __future__ import annotations

import http.client
from contextlib import closing

import pytest

from tests.io.test_push import TOKEN, running


@pytest.mark.parametrize(
    ("headers", "status", "why"),
    [
        ({"Authorization": b"Bearer \xff\xfe"}, 401, "show the token"),
        ({"Raystream-Sender": b"a\xff", "Raystream-Sequence": b"1"}, 400, "is no text"),
        ({"Raystream-Sender": b"a", "Raystream-Sequence": "\u0661".encode()}, 400, "whole number"),
    ],
)
def test_headers_that_are_no_text_are_refused(
    headers: dict[str, bytes], status: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running() as job, closing(http.client.HTTPConnection("127.0.0.1", job.port)) as asked:
        shown = {"Authorization": f"Bearer {TOKEN}".encode(), **headers}
        asked.request("POST", "/push", b'{"time": 1}', shown)
        answer = asked.getresponse()
        assert answer.status == status and why in answer.read().decode()
    assert not caplog.records and job.found == []
