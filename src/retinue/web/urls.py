"""URLs as text: taking one apart strictly, putting it together again, and telling whether two are the same.

`guard` takes apart what is about to be fetched, `search` and `sources` compare. Nothing here resolves a
name or opens a connection, and nothing here trusts what a lenient parser would make of an odd URL.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote_to_bytes, urljoin

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Scheme = Literal["http", "https"]

MOST_CHARACTERS = 8000
PORTS = {"http": 80, "https": 443}
_TRACKING = re.compile(
    r"(?:utm_\w+|gclid|gbraid|wbraid|dclid|fbclid|msclkid|yclid|twclid|igshid|mc_[ce]id|_hs(?:enc|mi)|ref_src|srsltid)",
    re.IGNORECASE,
)
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*")
_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.DOTALL)
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class BadUrl(ValueError):
    """Not a URL that can be fetched; the text says what is wrong with it."""


class DisguisedUrl(BadUrl):
    """A URL that a person and a program would read differently."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One thing to fetch. `host` is ASCII, lower case, without brackets; `address` is set for a literal."""

    scheme: Scheme
    host: str
    port: int
    rest: str
    address: IPAddress | None

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        return self.origin + self.rest


def take_apart(text: str) -> Target:
    """Raises `BadUrl`. The fragment is dropped: it is never sent."""
    text = text.strip().removeprefix("<").removesuffix(">")
    if not text:
        raise BadUrl("the URL is empty")
    if len(text) > MOST_CHARACTERS:
        raise BadUrl(f"the URL has {len(text):,} characters, {MOST_CHARACTERS:,} are allowed")
    if any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029" for c in text):
        raise DisguisedUrl("the URL contains control characters")
    scheme, colon, rest = text.partition("://")
    if not colon:
        raise BadUrl(_without_scheme(text))
    scheme = scheme.lower()
    if scheme != "http" and scheme != "https":
        raise BadUrl(f"the scheme {scheme[:20]!r} is not supported: only http and https are fetched")
    authority, path = _split_authority(rest)
    host, port = _split_port(authority, PORTS[scheme])
    host, address = _host(host)
    return Target(scheme=scheme, host=host, port=port, rest=_path(path), address=address)


def _without_scheme(text: str) -> str:
    scheme = re.match(r"([a-z][a-z0-9+.-]*):", text, re.IGNORECASE)
    if scheme and not re.match(r"[^/]*:\d+(?:/|$)", text):
        return f"the scheme {scheme[1][:20].lower()!r} is not supported: only http and https are fetched"
    return f"the URL has no scheme; write it in full, like https://{text.lstrip('/')[:100]}"


def _split_authority(rest: str) -> tuple[str, str]:
    end = min((at for at in (rest.find(c) for c in "/?#") if at >= 0), default=len(rest))
    authority, path = rest[:end], rest[end:]
    # A browser reads a backslash as a slash, other parsers as part of the user name or host.
    if "\\" in authority:
        raise DisguisedUrl("the URL has a backslash where its host should be")
    if "@" in authority:
        raise DisguisedUrl("the URL has a user name or password in front of its host; none is ever sent")
    if "%" in authority:
        raise DisguisedUrl("the host of the URL is percent-encoded; write it plainly")
    if any(c.isspace() for c in authority):
        raise DisguisedUrl("the host of the URL contains a space")
    return authority, path


def _split_port(authority: str, default: int) -> tuple[str, int]:
    if authority.startswith("["):
        host, bracket, port = authority.partition("]")
        host += bracket
        if not bracket or (port and not port.startswith(":")):
            raise BadUrl("the URL has an unfinished IPv6 address")
        port = port[1:]
    else:
        host, _, port = authority.partition(":")
    if not port:
        return host, default
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise BadUrl(f"{port[:20]!r} is not a port")
    return host, int(port)


def _host(host: str) -> tuple[str, IPAddress | None]:
    if not host:
        raise BadUrl("the URL has no host")
    if host.startswith("["):
        try:
            address = ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise BadUrl(f"{host[:60]} is not an IPv6 address") from None
        return str(address), address
    if len(host) > 253:
        raise BadUrl(f"{host[:80]!r} is not a host name")
    name = _ascii(host).lower()
    if name.endswith("."):
        name = name[:-1]
    if _IN_NUMBER.fullmatch(name):
        return _ipv4(name)
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise BadUrl(f"{host[:80]!r} is not a host name")
    return name, None


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    import idna  # comes with the HTTP client; only needed for names outside ASCII

    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise BadUrl(f"{host[:80]!r} is not a host name") from None


def _ipv4(name: str) -> tuple[str, IPAddress]:
    """A host that ends in a number is an address, whatever its form: operating systems read it as one."""
    try:
        return name, ipaddress.IPv4Address(name)
    except ValueError:
        pass
    try:
        meant = str(ipaddress.IPv4Address(socket.inet_aton(name)))
    except (OSError, UnicodeError):
        raise BadUrl(f"{name[:60]!r} is not a host name or address") from None
    raise DisguisedUrl(f"{name[:60]} is another way to write the address {meant}; write it plainly")


def _path(path: str) -> str:
    path = path.partition("#")[0]
    path, mark, query = path.partition("?")
    try:
        path = _quoted(path.replace("\\", "/"), "/:@!$&'()*+,;=~%")
        query = _quoted(query, "/:@!$&'()*+,;=~%?[]|")
    except UnicodeEncodeError:
        raise BadUrl("the URL contains characters that are none") from None
    return (_no_dots(path) or "/") + mark + query


def _quoted(text: str, safe: str) -> str:
    # Bytes that are no text, as some servers send them in a redirect, keep their value.
    return _STRAY_PERCENT.sub("%25", quote(text, safe=safe, errors="surrogateescape"))


def _no_dots(path: str) -> str:
    if "/." not in path and "/%2e" not in path.lower():
        return path
    out: list[str] = []
    parts = path.split("/")[1:]
    for number, part in enumerate(parts):
        plain = re.sub("%2e", ".", part, flags=re.IGNORECASE)
        last = number == len(parts) - 1
        if plain == "..":
            out = out[:-1]
            if last:
                out.append("")
        elif plain != ".":
            out.append(part)
        elif last:
            out.append("")
    return "/" + "/".join(out)


def join(base: str, reference: str) -> str:
    """Where a `Location` or a link leads. The result is as untrusted as the reference."""
    try:
        return urljoin(base, reference.strip())
    except ValueError:
        raise BadUrl(f"{reference[:100]!r} is not a URL") from None


def key(url: str) -> str:
    """What two spellings of the same page have in common, for comparing and never for fetching.

    Scheme, case of the host, default port, trailing slash, fragment, tracking parameters and the way of
    percent-encoding make no difference. Never raises: text that is no URL is its own key.
    """
    text = url.strip().removeprefix("<").removesuffix(">")
    scheme, colon, rest = text.partition("://")
    if not colon or scheme.lower() not in PORTS:
        return text
    rest = rest.partition("#")[0]
    end = min((at for at in (rest.find(c) for c in "/?") if at >= 0), default=len(rest))
    host, path = rest[:end], rest[end:]
    path, _, query = path.partition("?")
    host = _comparable_host(host.rpartition("@")[2], PORTS[scheme.lower()])
    kept = [part for part in query.split("&") if part and not _TRACKING.fullmatch(part.partition("=")[0])]
    path = _same_encoding(path).rstrip("/")
    return f"//{host}{path}" + (f"?{_same_encoding('&'.join(kept))}" if kept else "")


def _comparable_host(host: str, default: int) -> str:
    name, _, port = host.partition(":") if not host.startswith("[") else (host, "", "")
    if not name.isascii() and len(name) <= 253:
        with contextlib.suppress(BadUrl):
            name = _ascii(name)
    name = name.lower().rstrip(".")
    return name if not port or port in ("80", "443", str(default)) else f"{name}:{port}"


def _same_encoding(text: str) -> str:
    """Each byte in its one form: plain if it never needs encoding, else %XX in upper case."""
    if "%" not in text and text.isascii():
        return text
    out: list[str] = []
    for piece in re.split(r"(%[0-9A-Fa-f]{2}|[^\x21-\x7e]+)", text):
        if piece.startswith("%") and len(piece) == 3:
            byte = unquote_to_bytes(piece)[0]
            out.append(chr(byte) if byte in _UNRESERVED else piece.upper())
        elif piece and not (piece.isascii() and piece.isprintable() and " " not in piece):
            out.append(quote(piece.encode("utf-8", "replace")))
        else:
            out.append(piece)
    return "".join(out)
