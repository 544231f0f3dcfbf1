"""Makes certificates with the package `cryptography`: ECDSA keys on the curve P-256, SHA-256."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Collection
from typing import Any, NamedTuple

from raystream.errors import ConfigError
from raystream.security.contexts import NAME, Certificates

ISSUER = "raystream authority"


class Authority(NamedTuple):
    """An authority that signs certificates, in PEM. `repr` hides it."""

    certificate: bytes
    """With it others check the certificates that the authority signed."""
    key: bytes
    """With it the authority signs."""

    def __repr__(self) -> str:
        return "Authority(...)"


def authority(days: float) -> Authority:
    """A new authority.

    Args:
        days: how long its certificate is valid.

    Raises:
        ConfigError: the package `cryptography` is not installed.
    """
    x509, key = _library(), _key()
    identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _begun(ISSUER, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(identity, critical=False)
        .sign(key, _sha256())
    )
    return Authority(_pem(certificate), _pem_of_key(key))


def signed(by: Authority, hosts: Collection[str], days: float) -> Certificates:
    """A new certificate, for servers and clients of jobs.

    Args:
        by: the authority that signs it.
        hosts: names and addresses of servers, for clients that check them, such as browsers, curl
            and Ray. raystream's own clients check for the name `NAME`, which is always included.
        days: how long the certificate is valid.

    Raises:
        ConfigError: the package `cryptography` is not installed, or `by` is no authority.
    """
    x509, key = _library(), _key()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        signer: Any = load_pem_private_key(by.key, None)
        identity = x509.load_pem_x509_certificate(by.certificate).extensions
        identity = identity.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise ConfigError(
            f"the authority cannot sign: {error}", hint="`raystream certificates` makes one."
        ) from None
    names = dict.fromkeys([NAME, "localhost", "127.0.0.1", *hosts])
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _begun(NAME, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName([*map(_host, names)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identity), critical=False
        )
        .sign(signer, _sha256())
    )
    return Certificates(by.certificate, _pem(certificate), _pem_of_key(key))


def _library() -> Any:
    try:
        from cryptography import x509
    except ImportError:
        raise ConfigError(
            "certificates are made with the package cryptography, which is not installed",
            hint="pip install 'raystream[tls]', or have others make them and name their folder.",
        ) from None
    return x509


def _begun(name: str, key: Any, days: float) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    subject, issuer = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, ISSUER)
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _sha256() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _pem_of_key(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization as s

    return bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()))


def _usage(*, signs: bool) -> Any:
    """What a key is for: to sign certificates, or to be shown."""
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
