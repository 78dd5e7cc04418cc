"""The webhook's certificates: how they are created, renewed and replaced without a gap.

The API server trusts the authorities in the ``caBundle`` of the webhook's configuration, and it
notices a change with a delay. The replicas of the webhook read their certificate from one Secret,
at different times. So no certificate is replaced in one step. A new authority is *announced* in the
bundle first and signs only after ``overlap_s``; the old one is removed from the bundle
``overlap_s`` after the last certificate that it signed was replaced.

These functions are pure: they compute the next state of the Secret from its state and the time.
Times are seconds since 1970.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BACKDATED_S = 300.0
"""A certificate is valid from some time before its creation, because nodes' clocks differ."""


@dataclass(frozen=True)
class Lifetimes:
    """How long certificates live.

    Attributes:
        authority_s: an authority's life. A year, because its key never leaves the cluster.
        serving_s: a serving certificate's life. A week, so that a leaked key soon expires.
        renew_at: the part of a life after which the next certificate is created. Two thirds leave
            one third for an API server that does not answer.
        overlap_s: how long the old and the new one are both valid. A minute, because the API server
            reads a changed configuration within seconds, and replicas read the Secret every ten
            seconds.
    """

    authority_s: float = 365 * 86_400.0
    serving_s: float = 7 * 86_400.0
    renew_at: float = 2 / 3
    overlap_s: float = 60.0


class Authority(msgspec.Struct, frozen=True):
    """A certificate authority: PEM, the time of its announcement, and its end."""

    certificate: str
    key: str
    announced_at: float
    expires_at: float


class Serving(msgspec.Struct, frozen=True):
    """The listener's certificate: PEM, signed by the authority with that certificate."""

    certificate: str
    key: str
    authority: str
    names: tuple[str, ...]
    made_at: float
    expires_at: float


class Certificates(msgspec.Struct, frozen=True):
    """The content of the Secret. Authorities are in the order of their creation."""

    authorities: tuple[Authority, ...] = ()
    serving: Serving | None = None


def is_whole(certificates: Certificates) -> bool:
    """Whether all certificates are valid PEM and their keys match."""
    pairs: list[Authority | Serving] = [*certificates.authorities]
    if certificates.serving is not None:
        pairs.append(certificates.serving)
    return all(_belongs(pair.certificate, pair.key) for pair in pairs)


def bundle(certificates: Certificates) -> str:
    """The authorities that the API server must trust, as PEM."""
    return "".join(authority.certificate for authority in certificates.authorities)


def step(
    certificates: Certificates, names: Sequence[str], now: float, lifetimes: Lifetimes
) -> Certificates:
    """The next content of the Secret; the same object if nothing is due."""
    authorities = _authorities(certificates, now, lifetimes)
    signer = _signer(authorities, now, lifetimes)
    serving = _serving(certificates.serving, signer, names, now, lifetimes)
    needed = tuple(
        authority
        for authority in authorities
        if authority.announced_at >= signer.announced_at
        or (now < serving.made_at + lifetimes.overlap_s and now < authority.expires_at)
    )
    after = Certificates(needed, serving)
    return certificates if after == certificates else after


def of_another_issuer(certificate: str, key: str, authority: str) -> Serving:
    """A certificate that something else creates and renews.

    Args:
        certificate: PEM; the listener's certificate comes first, and its issuers may follow.
        key: PEM.
        authority: PEM of what the API server must trust.

    Raises:
        ValueError: one of them is no valid PEM, or the key is another certificate's.
    """
    if not _belongs(certificate, key):
        raise ValueError("tls.crt is no certificate, or tls.key is not its key")
    x509.load_pem_x509_certificates(authority.encode())
    read = x509.load_pem_x509_certificate(certificate.encode())
    made_at, expires_at = (
        each.timestamp() for each in (read.not_valid_before_utc, read.not_valid_after_utc)
    )
    return Serving(certificate, key, authority, (), made_at, expires_at)


def _authorities(
    certificates: Certificates, now: float, lifetimes: Lifetimes
) -> tuple[Authority, ...]:
    alive = tuple(a for a in certificates.authorities if _is_valid(a.announced_at, a, now))
    if alive:
        newest = alive[-1]
        if now < newest.announced_at + lifetimes.renew_at * lifetimes.authority_s:
            return alive
    return (*alive, _new_authority(now, lifetimes))


def _signer(authorities: tuple[Authority, ...], now: float, lifetimes: Lifetimes) -> Authority:
    """The newest authority that all API servers trust by now, or else the oldest."""
    known = [a for a in authorities if now >= a.announced_at + lifetimes.overlap_s]
    return known[-1] if known else authorities[0]


def _serving(
    serving: Serving | None,
    signer: Authority,
    names: Sequence[str],
    now: float,
    lifetimes: Lifetimes,
) -> Serving:
    if (
        serving is not None
        and serving.authority == signer.certificate
        and set(serving.names) >= set(names)
        and _is_valid(serving.made_at, serving, now)
        and now < serving.made_at + lifetimes.renew_at * (serving.expires_at - serving.made_at)
    ):
        return serving
    return _new_serving(signer, names, now, lifetimes)


def _is_valid(made_at: float, made: Authority | Serving, now: float) -> bool:
    """Whether a verifier accepts it now; the clock of its creator may have been ahead."""
    return made_at - _BACKDATED_S <= now < made.expires_at


def _new_authority(now: float, lifetimes: Lifetimes) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    # Each authority has its own name, because verifiers find the issuer by its name.
    name = _name(f"hami webhook authority {int(now)} {x509.random_serial_number():x}"[:64])
    expires_at = now + lifetimes.authority_s
    public = key.public_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    certificate = (
        _builder(name, name, public, now, expires_at)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(_pem(certificate), _key_pem(key), now, expires_at)


def _new_serving(
    signer: Authority, names: Sequence[str], now: float, lifetimes: Lifetimes
) -> Serving:
    issuer = x509.load_pem_x509_certificate(signer.certificate.encode())
    issuer_key = serialization.load_pem_private_key(signer.key.encode(), None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise TypeError("an authority must have an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    expires_at = min(now + lifetimes.serving_s, signer.expires_at)
    certificate = (
        _builder(_name("hami webhook"), issuer.subject, key.public_key(), now, expires_at)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return Serving(
        _pem(certificate), _key_pem(key), signer.certificate, tuple(names), now, expires_at
    )


def _belongs(certificate: str, key: str) -> bool:
    try:
        public = x509.load_pem_x509_certificate(certificate.encode()).public_key()
        return serialization.load_pem_private_key(key.encode(), None).public_key() == public
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: float,
    expires_at: float,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_time(now - _BACKDATED_S))
        .not_valid_after(_time(expires_at))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
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


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
