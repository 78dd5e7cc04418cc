"""The keys of a test cluster: one authority that is valid for a day, and its certificates.

A certificate determines the client's identity: the common name is the user, the organisation the
group (Kubernetes' X.509 client authentication).
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates into a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("hami-test-ca", ())
        self._certificate = (
            self._unsigned(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        groups: Sequence[str] = (),
        hosts: Sequence[str] = (),
        file: str | None = None,
    ) -> Identity:
        """A certificate for this user and these groups, and as a server for these hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        )
        unsigned = self._unsigned(_name(name, groups), key).add_extension(usage, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_general(host) for host in hosts])
            unsigned = unsigned.add_extension(names, critical=False)
        signed = unsigned.sign(self._key, hashes.SHA256())
        stem = file or name.replace(":", "-")
        identity = Identity(self._folder / f"{stem}.crt", self._folder / f"{stem}.key")
        identity.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        _write_key(identity.key, key)
        return identity

    def signing_key(self) -> Identity:
        """The key that service account tokens are signed with; no certificate, its public half."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        identity = Identity(self._folder / "tokens.pub", self._folder / "tokens.key")
        identity.certificate.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        _write_key(identity.key, key)
        return identity

    def _unsigned(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            # An hour back, for clocks that differ.
            .not_valid_before(now - _DAY / 24)
            .not_valid_after(now + _DAY)
        )


def _name(common: str, groups: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
