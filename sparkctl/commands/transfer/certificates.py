"""Certificates for one transfer: each end gets a key of its own and the other's certificate, and accepts no further one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Certificate:
    """A self-signed certificate and its key, both PEM."""

    certificate: str
    key: str


def make_certificate() -> Certificate:
    """Return a new one. It is valid whatever a node's clock says: it lives as long as the two programs that get it."""
    from datetime import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sparkctl transfer")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(1970, 1, 1))
        .not_valid_after(datetime(9999, 12, 31))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Certificate(certificate.public_bytes(Encoding.PEM).decode(), private.decode())


def make_certificate_pair() -> tuple[dict[str, str], dict[str, str]]:
    """Return what each of two ends is told: its certificate, its key, and the other's certificate."""
    one, other = make_certificate(), make_certificate()
    return (
        {"certificate": one.certificate, "key": one.key, "peer": other.certificate},
        {"certificate": other.certificate, "key": other.key, "peer": one.certificate},
    )
