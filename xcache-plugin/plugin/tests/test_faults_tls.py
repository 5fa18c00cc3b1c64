"""An endpoint behind TLS that may not be believed, or never gets as far as that."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from plugin_client import Clients
from plugin_endpoint import BYPASS, Endpoint
from plugin_invariants import require_waited, watched
from plugin_site import Site, another_site

from smartcache.local import xrootd
from smartcache.local.ports import LOOPBACK

pytestmark = pytest.mark.slow

#: A handshake costs a few milliseconds of processor on each side.
DEADLINE_MS = 50
DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority of our own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        own = self._draft(self._name, self._key, 1).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _draft(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
        """Good until ``days`` from now, which may have been."""
        until = datetime.datetime.now(datetime.UTC) + days * DAY
        return x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number(), until - 9 * DAY, until)

    def context(self, host: str = LOOPBACK, days: int = 1) -> ssl.SSLContext:
        """For a server that says it is ``host``."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        signed = self._draft(x509.Name([]), key, days).add_extension(names, critical=True).sign(self._key, hashes.SHA256())
        file = self._folder / f"{host}-{days}.pem"
        secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file.write_bytes(secret + signed.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def endpoint(authority: Authority) -> Iterator[Endpoint]:
    with Endpoint(tls=authority.context()) as one:
        one.outputs = BYPASS  # so that each open waits
        yield one


@pytest.fixture(scope="module")
def cache(origin: xrootd.Xrootd, endpoint: Endpoint, authority: Authority) -> Iterator[Site]:
    with another_site(origin) as site:
        ca_file = site.folder / "ca.pem"
        ca_file.write_bytes(authority.file.read_bytes())
        more = {"deadline_ms": DEADLINE_MS, "breaker_failures": 1_000_000, "ca_file": str(ca_file)}
        site.start(site.model(endpoint.url, stores_little=True, **more))
        site.wait_for_model()
        yield site


def test_the_right_certificate_is_believed(cache: Site, clients: Clients) -> None:
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}) as watch:
        watch.soak(cache.lfns, opens=100)
    require_waited(watch)


@pytest.mark.parametrize("fault", ["another authority", "another host", "expired", "no TLS"])
def test_no_other_is(fault: str, cache: Site, clients: Clients, endpoint: Endpoint, authority: Authority, tmp_path: Path) -> None:
    good = endpoint.tls
    endpoint.tls = {
        "another authority": lambda: Authority(tmp_path, "theirs").context(),
        "another host": lambda: authority.context(host="192.0.2.1"),
        "expired": lambda: authority.context(days=-1),
        "no TLS": lambda: None,
    }[fault]()
    endpoint.order(None)
    asked = len(endpoint.requests)
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"unreachable"}) as watch:
        watch.soak(cache.lfns, opens=100)
    require_waited(watch)
    assert len(endpoint.requests) == asked, "who is not believed is told nothing"
    endpoint.tls = good


def test_a_handshake_that_never_ends(cache: Site, clients: Clients, endpoint: Endpoint) -> None:
    endpoint.silent = True
    endpoint.order(None)
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"deadline"}) as watch:
        watch.soak(cache.lfns, opens=100)
    require_waited(watch)
    endpoint.silent = False
    endpoint.order(None)
    with watched(cache, clients, deadline_ms=DEADLINE_MS, reasons={"model"}) as watch:
        watch.soak(cache.lfns, opens=100)
    require_waited(watch)
