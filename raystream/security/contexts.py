"""TLS contexts of Python's `ssl`: TLS 1.3, and both sides show a certificate.

A client does not check the name of the server's host, because nobody knows the addresses of a job's
processes in advance. It checks for the name `NAME` instead, to which the certificates of jobs are
issued. So another certificate of the same authority, such as a company's, is not accepted.
"""

from __future__ import annotations

import os
import ssl
from typing import Any, NamedTuple

NAME = "raystream"
"""The name to which the certificate of every server of a job is issued."""


class Certificates(NamedTuple):
    """What a process shows, and what others have to show, in PEM. `repr` hides it."""

    authority: bytes
    """The certificate of the authority that has to sign the certificates of others."""
    certificate: bytes
    """The certificate that the process shows, followed by intermediate certificates if any."""
    key: bytes
    """The key of the certificate, without a password."""

    def __repr__(self) -> str:
        return "Certificates(...)"


def connecting(certificates: Certificates) -> ssl.SSLContext:
    """The context of a client. Its user has to ask for the server's name `NAME`."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, certificates)


def accepting(certificates: Certificates) -> ssl.SSLContext:
    """The context of a server, to which clients have to show a certificate."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificates)
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # no client resumes a session
    return context


def _context(protocol: int, certificates: Certificates) -> ssl.SSLContext:
    context: Any = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=certificates.authority.decode("ascii"))
    # `ssl` reads a key only from a file. This file is in memory, and is closed when it was read.
    file = os.memfd_create("raystream-tls")
    try:
        with open(file, "wb", closefd=False) as written:
            written.write(certificates.certificate + b"\n" + certificates.key)
        context.load_cert_chain(f"/proc/self/fd/{file}", password="")
    finally:
        os.close(file)
    return context
