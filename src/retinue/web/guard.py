"""What may be fetched: which URLs, which ports, and which addresses may really be dialled.

A name can resolve to anything, and to something else a moment later. So the rule is applied twice: to
the URL, for a clear answer, and in `Guard.socket`, which the HTTP client calls with the very address it
is about to connect to. Called by `wire` and `fetch`; it never resolves names itself, and it never lets an
address through because of how it is written.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from retinue.errors import ConfigError, Refused, ToolError
from retinue.web.urls import BadUrl, DisguisedUrl, IPAddress, Target, take_apart

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

USUAL_PORTS = frozenset({80, 443})

# The first match counts, so narrow ranges with a name of their own come first.
_CLOSED_V4 = tuple(
    (ipaddress.IPv4Network(network), what)
    for network, what in (
        ("169.254.169.254/32", "a cloud metadata address"),
        ("169.254.170.2/32", "a cloud metadata address"),
        ("100.100.100.200/32", "a cloud metadata address"),
        ("168.63.129.16/32", "a cloud metadata address"),
        ("192.0.0.192/32", "a cloud metadata address"),
        ("0.0.0.0/8", "an address of this machine"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a shared address of a provider's network"),
        ("127.0.0.0/8", "a loopback address of this machine"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "an address for examples"),
        ("192.88.99.0/24", "a relay address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "an address for tests of networks"),
        ("198.51.100.0/24", "an address for examples"),
        ("203.0.113.0/24", "an address for examples"),
        ("224.0.0.0/4", "a multicast address"),
        ("255.255.255.255/32", "the broadcast address"),
        ("240.0.0.0/4", "a reserved address"),
    )
)
_CLOSED_V6 = tuple(
    (ipaddress.IPv6Network(network), what)
    for network, what in (
        ("::1/128", "the loopback address of this machine"),
        ("::/128", "an address of this machine"),
        ("fd00:ec2::254/128", "a cloud metadata address"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a private address"),
        ("ff00::/8", "a multicast address"),
        ("2001::/32", "a Teredo address, which hides another one"),
        ("2001::/23", "a reserved address"),
        ("2001:db8::/32", "an address for examples"),
        ("2002::/16", "a 6to4 address, which hides another one"),
        ("3fff::/20", "an address for examples"),
    )
)
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_LOCAL_NAMES = ("localhost", "local", "internal", "home.arpa", "lan", "localdomain")


def closed(address: IPAddress) -> str | None:
    """Why an address is not part of the public internet, or None if it is."""
    if isinstance(address, ipaddress.IPv4Address):
        return next((f"{what} ({network})" for network, what in _CLOSED_V4 if address in network), None)
    inner = _embedded(address)
    if inner is not None:
        why = closed(inner)
        return f"{why}, written as {address}" if why else None
    for network, what in _CLOSED_V6:
        if address in network:
            return f"{what} ({network})"
    return None if address in _PUBLIC_V6 else "a reserved address"


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that a connection to this IPv6 address would really reach."""
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _MAPPED or address in _NAT64:
        return low
    # ISATAP: an interface identifier of this form is a tunnel to the IPv4 address in it.
    if (int(address) >> 32) & 0xFDFFFFFF == 0x00005EFE and address in _PUBLIC_V6:
        return low
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRule:
    """One entry of `web.allow_hosts`. `port` None means the usual ones."""

    name: str = ""
    network: Network | None = None
    port: int | None = None

    def has_port(self, port: int) -> bool:
        return port in USUAL_PORTS if self.port is None else port == self.port

    def has_name(self, host: str) -> bool:
        if self.name.startswith("*."):
            return host.endswith(self.name[1:])
        return bool(self.name) and host == self.name

    def has_address(self, address: IPAddress) -> bool:
        return self.network is not None and address in self.network


def parse_rule(text: str) -> HostRule:
    """`host`, `*.host`, `address`, `network/bits`, each with `:port` or without."""
    host, port = text.strip().lower(), None
    head, colon, tail = host.rpartition(":")
    if colon and tail.isdigit() and (host.startswith("[") or ":" not in head):
        host, port = head, int(tail)
    host = host.removeprefix("[").removesuffix("]")
    try:
        return HostRule(network=ipaddress.ip_network(host), port=port)
    except ValueError:
        pass
    try:
        name = take_apart(f"http://{host.removeprefix('*.')}/").host
        if "/" in host or (port is not None and not 0 < port < 65536):
            raise BadUrl("not a host and a port")
    except BadUrl:
        raise ConfigError(
            f"web.allow_hosts: {text!r} is no host, host:port or network",
            fix="write 'wiki.corp', 'wiki.corp:8080', '*.corp' or '10.1.0.0/16'",
        ) from None
    return HostRule(name=("*." if host.startswith("*.") else "") + name, port=port)


@dataclass(kw_only=True, slots=True)
class Dial:
    """What the client is connecting to right now, and why addresses were refused on the way."""

    target: Target
    proxied: bool = False
    refused: list[str] = field(default_factory=list[str])


class RefusedAddress(OSError):
    """Raised where a socket would have been made; the client then tries the next address."""


_dialling: ContextVar[Dial | None] = ContextVar("retinue_dialling", default=None)


class Guard:
    """The rule for URLs and addresses. `allow` is `web.allow_hosts`."""

    def __init__(self, allow: Iterable[str] = (), *, ports: Iterable[int] = USUAL_PORTS) -> None:
        self.ports = frozenset(ports)
        self.rules = tuple(parse_rule(text) for text in allow)
        self._inside: dict[str, bool] = {}
        """Whether a host that a rule lets through was found in a private network when it was dialled."""

    def check(self, url: str) -> Target:
        """Raises `ToolError` for what is no URL, `Refused` for what may not be fetched."""
        try:
            target = take_apart(url)
        except DisguisedUrl as error:
            raise Refused(f"refused: {error}.") from None
        except BadUrl as error:
            raise ToolError(f"bad URL: {error}.") from None
        self._check_port(target)
        if target.address is not None:
            why = self.why_not(target, target.address)
            if why:
                raise self.refusal(target, why)
        elif self._is_local_name(target.host) and not any(r.has_name(target.host) for r in self.rules):
            raise self.refusal(target, f"{target.host} is a name of this machine or its local network")
        return target

    def _check_port(self, target: Target) -> None:
        if target.port in self.ports:
            return
        named = [rule for rule in self.rules if rule.has_name(target.host) or rule.network is not None]
        if not any(rule.has_port(target.port) for rule in named):
            raise self.refusal(target, f"port {target.port} is not 80 or 443")

    def _is_local_name(self, host: str) -> bool:
        return any(host == name or host.endswith("." + name) for name in _LOCAL_NAMES)

    def why_not(self, target: Target, address: IPAddress) -> str | None:
        """Why this address may not be dialled for this target, or None if it may."""
        for rule in self.rules:
            if rule.has_port(target.port) and (rule.has_name(target.host) or rule.has_address(address)):
                return None
        why = closed(address)
        if why is None:
            return None if target.port in self.ports else f"port {target.port} is not 80 or 443"
        if target.address is not None:
            return f"{target.host} is {why}"
        return f"{target.host} resolves to {address}, {why}"

    def _why_not_socket(self, target: Target, host: str, port: int) -> str | None:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return f"{target.host} resolves to {host[:60]!r}, which is no address"
        if port != target.port:
            return f"port {port} is not the port of the URL"
        return self.why_not(target, address)

    def is_inside(self, target: Target) -> bool:
        """Whether an address that may be fetched is none of the public internet: by where it was dialled,
        else by how it is written, where a host that a rule names counts as one."""
        known = self._inside.get(target.authority)
        if known is not None:
            return known
        if target.address is not None:
            return closed(target.address) is not None
        named = any(rule.has_name(target.host) and rule.has_port(target.port) for rule in self.rules)
        return named or self._is_local_name(target.host)

    def _dialled(self, target: Target, host: str) -> None:
        inside = closed(ipaddress.ip_address(host.partition("%")[0])) is not None
        if inside or any(rule.has_name(target.host) for rule in self.rules):
            self._inside[target.authority] = self._inside.get(target.authority, False) or inside

    def refusal(self, target: Target, why: str) -> Refused:
        return Refused(
            f"refused: {shown(target.url)}: {why}. The web tools reach only the public internet; a person "
            f"can add '{target.authority}' to web.allow_hosts if this page may be read."
        )

    def socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Makes the socket for one address, unless this address is refused."""
        family, kind, protocol, _, sockaddr = info
        dial = _dialling.get()
        if dial is None:
            raise RefusedAddress("refused: a connection that no check belongs to")
        if not dial.proxied:
            why = self._why_not_socket(dial.target, str(sockaddr[0]), int(sockaddr[1]))
            if why is not None:
                dial.refused.append(why)
                raise RefusedAddress(why)
            self._dialled(dial.target, str(sockaddr[0]))
        return socket.socket(family, kind, protocol)


@contextmanager
def dialling(target: Target, *, proxied: bool) -> Generator[Dial]:
    """Connections made in here, by any task started in here, belong to this target."""
    dial = Dial(target=target, proxied=proxied)
    token = _dialling.set(dial)
    try:
        yield dial
    finally:
        _dialling.reset(token)


def shown(url: str, most: int = 300) -> str:
    """A URL as it can stand in a message: one line, not endless."""
    text = url if url.isprintable() else ascii(url)[1:-1]
    return text if len(text) <= most else f"{text[:most]}… ({len(url):,} characters)"
