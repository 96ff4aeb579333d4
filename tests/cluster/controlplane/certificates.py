"""A throw-away certificate authority and what it signs, as files in one folder.

Subjects follow the Kubernetes documentation, "PKI certificates and requirements".
"""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 30
"""A control plane that was left running for longer has to be started again."""

CLOCK_SKEW = dt.timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyPair:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    """The certificate."""
    key: Path
    """Its private key, readable by this user only."""


AUTHORITY_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "projection-test-ca")])


class Authority:
    """Signs certificates; its own certificate and key are `ca.crt` and `ca.key` in the folder."""

    def __init__(self, folder: Path) -> None:
        """Make the authority in `folder`, or take the one that is there."""
        self._folder = folder
        self.files = KeyPair(certificate=folder / "ca.crt", key=folder / "ca.key")
        if self.files.key.exists():
            loaded = serialization.load_pem_private_key(self.files.key.read_bytes(), password=None)
            assert isinstance(loaded, ec.EllipticCurvePrivateKey)
            self._key = loaded
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(AUTHORITY_NAME, AUTHORITY_NAME, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        _write(folder, "ca", builder.sign(self._key, hashes.SHA256()), self._key)

    def client(self, file_name: str, common_name: str, organization: str | None = None) -> KeyPair:
        """Sign a client certificate; Kubernetes reads the user from CN and the group from O."""
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization is not None:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        return self._sign(file_name, x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def server(self, file_name: str, names: list[str], addresses: list[str]) -> KeyPair:
        """Sign a server certificate for DNS names and IP addresses."""
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        return self._sign(file_name, subject, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def _sign(
        self, file_name: str, subject: x509.Name, usage: x509.ObjectIdentifier, alternatives: list[x509.GeneralName]
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, AUTHORITY_NAME, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return _write(self._folder, file_name, builder.sign(self._key, hashes.SHA256()), key)


def write_signing_key(folder: Path, file_name: str) -> KeyPair:
    """Make the key pair that signs service account tokens; its "certificate" is the bare public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    pair = KeyPair(certificate=folder / f"{file_name}.pub", key=folder / f"{file_name}.key")
    pair.certificate.write_bytes(public)
    _write_key(pair.key, key)
    return pair


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
    )


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    pair = KeyPair(certificate=folder / f"{name}.crt", key=folder / f"{name}.key")
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(pair.key, key)
    return pair


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
