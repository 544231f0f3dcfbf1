"""TLS as Python's `ssl` wants it: version 1.3, and both sides show a certificate.

Who connects does not ask for the name of a host: processes of a job come and go with addresses that
nobody knows before. It asks for the name `NAME`, which only certificates of jobs are made out to,
so that another certificate of the same authority, such as a company's, is not enough.
"""

from __future__ import annotations

import os
import ssl
from typing import Any, NamedTuple

NAME = "raystream"
"""The name that the certificate of every server of a job is made out to."""


class Certificates(NamedTuple):
    """What a process shows, and what it asks of others, in PEM. Its text shows nothing of it."""

    authority: bytes
    """By whom the certificates of others are to be signed."""
    certificate: bytes
    """What it shows, with those between it and the authority."""
    key: bytes
    """The key of that, without a password."""

    def __repr__(self) -> str:
        return "Certificates(...)"


def connecting(certificates: Certificates) -> ssl.SSLContext:
    """For those who connect; with the server's name `NAME`."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, certificates)


def accepting(certificates: Certificates, *, clients: bool = True) -> ssl.SSLContext:
    """For those who accept.

    Args:
        clients: whether those who connect have to show a certificate, too.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificates)
    context.verify_mode = ssl.CERT_REQUIRED if clients else ssl.CERT_NONE
    context.num_tickets = 0  # nobody comes back to go on with a session
    return context


def _context(protocol: int, certificates: Certificates) -> ssl.SSLContext:
    context: Any = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=certificates.authority.decode("ascii"))
    # `ssl` reads a key from a file only. This one is in memory, and gone before anybody looks.
    file = os.memfd_create("raystream-tls")
    try:
        with open(file, "wb", closefd=False) as written:
            written.write(certificates.certificate + b"\n" + certificates.key)
        context.load_cert_chain(f"/proc/self/fd/{file}", password="")
    finally:
        os.close(file)
    return context
