"""URLs: what the guard lets through is read the same by those who dial, and is no address of this network."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from urllib.parse import urlsplit

from yarl import URL

from retinue.errors import Refused, ToolError
from retinue.web.guard import Guard
from retinue.web.urls import PORTS, Target, key

SEEDS = (
    b"http://a.example/b?c=d#e",
    b"https://user@127.0.0.1:8080/",
    b"http://[::ffff:10.0.0.1]/%2e%2e/x",
    b"http://0x7f.1/ http://017700000001/ http://2130706433/",
    "http://a。example。/ ſ https://ＬocalHost/\\@b.example".encode(),
    b"http://[64:ff9b::a00:1]:443/?q=%zz|[]",
)
GUARD = Guard()


def check(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    key(text)
    try:
        target = GUARD.check(text)
    except (ToolError, Refused):
        return
    assert GUARD.check(target.url) == target, f"{text!r} is another thing at second reading: {target.url!r}"
    others_read_it_so(target)
    is_public(target)


def others_read_it_so(target: Target) -> None:
    """The standard library, and the one that the HTTP client takes URLs apart with."""
    meant = (target.scheme, target.host, target.port, None)
    plain = urlsplit(target.url)
    dialled = URL(target.url, encoded=True)
    usual = PORTS[target.scheme]
    assert (plain.scheme, plain.hostname, plain.port or usual, plain.username) == meant, target.url
    assert (dialled.scheme, dialled.raw_host, dialled.port, dialled.raw_user) == meant, target.url


def is_public(target: Target) -> None:
    host = target.host
    assert host.isascii()
    if target.address is None:
        with contextlib.suppress(OSError):
            socket.inet_aton(host)  # what the system's resolver takes for an address
            raise AssertionError(f"{host!r} is an address and was taken for a name")
        assert not host.endswith("localhost"), host
        return
    address = ipaddress.ip_address(host)
    mapped = getattr(address, "ipv4_mapped", None)
    seen = mapped or address
    assert seen.is_global, host
    assert not seen.is_multicast, host
