"""Who may: roles, tokens, sessions, and whether a request really comes from where it says.

On a loopback address without tokens whoever can reach the server is its owner, so there the Host header must
name this very machine: otherwise a web page could reach it through a name of its own (DNS rebinding). Any
other address needs tokens. A change must come from this server's own page or from no page at all.

Decides and compares; `guard` asks these questions for every request. Knows no routes.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args
from urllib.parse import urlsplit

from retinue.errors import ConfigError
from retinue.server.errors import ApiError
from retinue.server.sessions import Sessions

Role = Literal["watch", "ask", "approve", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
SHORTEST_SECRET = 16
_PORTS = {"http": "80", "https": "443"}


def covers(role: Role, needed: Role) -> bool:
    """Roles are a ladder: each may do what those before it may."""
    return ROLES.index(role) >= ROLES.index(needed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Whoever sent a request."""

    name: str
    role: Role
    credential: str = field(default="", repr=False, compare=False)
    """The digest of the token that let them in: one of the same name made later is another's."""
    session: str = field(default="", repr=False, compare=False)
    """The digest of the session's cookie, for who came with one."""

    def may(self, needed: Role) -> bool:
        return covers(self.role, needed)

    def require(self, needed: Role, what: str = "this", *, fix: str = "") -> None:
        if not self.may(needed):
            raise ApiError(
                403,
                "forbidden",
                f"{what} needs the role {needed}; this token has {self.role}",
                fix=fix or "ask whoever runs the server for another token",
                details={"role": self.role, "needs": needed},
            )


OWNER = Identity(name="person", role="admin")
"""Whoever sits at the machine, where no tokens are asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """A token as it is kept: never the secret itself."""

    name: str
    role: Role
    digest: str

    @classmethod
    def of(cls, name: str, role: Role, secret: str) -> Token:
        if len(secret) < SHORTEST_SECRET:
            raise ConfigError(
                f"the token of {name!r} has {len(secret)} characters, at least {SHORTEST_SECRET} are needed",
                fix="leave it out, and a good one is made",
            )
        return cls(name=name, role=role, digest=digest(secret))


def digest(secret: str) -> str:
    # A secret of 256 random bits needs no salt and no slow hash.
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def new_secret() -> str:
    return "rtn_" + secrets.token_urlsafe(32)


def parse_grant(text: str) -> tuple[str, Role]:
    """`NAME:ROLE`, as on the command line."""
    name, _, role = text.partition(":")
    if not name.strip() or role not in ROLES:
        raise ConfigError(
            f"{text!r} is not NAME:ROLE", fix=f"for example alice:approve; roles: {', '.join(ROLES)}"
        )
    return name.strip(), role


class Access:
    """Tokens, sessions and hosts of one server. Without tokens everyone who gets here is the owner."""

    def __init__(
        self,
        tokens: Iterable[Token] = (),
        *,
        hosts: Iterable[str] = (),
        reread: Callable[[], Iterable[Token] | None] | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        """`reread` gives the tokens anew, or None if they are what they were: a revoked one ends at once."""
        self.sessions = sessions or Sessions()
        self._tokens = {token.name: token for token in tokens}
        self._reread = reread
        self.hosts = frozenset(host.lower() for host in hosts)
        self.open = not self._tokens
        """Whether no tokens are asked for. Fixed: a server whose last token is revoked lets nobody in."""
        if self.hosts and self.open:
            raise ConfigError(
                "a server that goes by other names than localhost needs a token",
                fix="add --token NAME:ROLE",
            )

    @property
    def tokens(self) -> Mapping[str, Token]:
        found = self._reread() if self._reread is not None and not self.open else None
        if found is not None:
            self._tokens = {token.name: token for token in found}
        return self._tokens

    def knows(self, identity: Identity) -> bool:
        """Whether somebody who came in earlier would still be let in, with the same role."""
        if self.open:
            return True
        token = self.tokens.get(identity.name)
        if token is None or (token.role, token.digest) != (identity.role, identity.credential):
            return False
        return not identity.session or self.sessions.get(identity.session) is not None

    def identify(self, authorization: str | None, cookie: str | None) -> Identity | None:
        """Who this is; None for nobody known. A header that is there counts, and the cookie does not then."""
        if self.open:
            return OWNER
        if authorization is not None:
            kind, _, secret = authorization.partition(" ")
            return self.by_secret(secret.strip()) if kind.lower() == "bearer" else None
        return self.by_session(cookie) if cookie else None

    def by_secret(self, secret: str) -> Identity | None:
        given, found = digest(secret), None
        for token in self.tokens.values():  # all of them, so that the time says nothing
            if hmac.compare_digest(token.digest, given):
                found = Identity(name=token.name, role=token.role, credential=token.digest)
        return found

    def session(self, identity: Identity, now: float | None = None) -> str:
        """A cookie for a browser: it tells nothing of the token, and ends with it."""
        return self.sessions.begin(identity.name, identity.credential, now)

    def by_session(self, cookie: str, now: float | None = None) -> Identity | None:
        tokens = self.tokens
        found = self.sessions.find(cookie, {name: token.digest for name, token in tokens.items()}, now)
        token = tokens.get(found.name) if found is not None else None
        if found is None or token is None:
            return None
        return Identity(name=token.name, role=token.role, credential=token.digest, session=found.digest)

    # -- where a request comes from --------------------------------------------

    def check_host(self, host: str | None, port: int | None) -> None:
        """Raises `ApiError` for a Host header that does not name this server."""
        name, given_port = split_host(host or "")
        if self._known(name) and (not self.open or port is None or (given_port or 80) == port):
            return
        raise ApiError(
            421,
            "wrong_host",
            f"the Host header {(host or '')[:100]!r} does not name this server",
            fix="use its own address and port, or start it with --allow-host NAME and a token",
        )

    def _known(self, name: str) -> bool:
        if name in ("localhost", "127.0.0.1", "::1") or name in self.hosts:
            return True
        if self.open:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name == socket.gethostname().lower()
        return True


def split_host(host: str) -> tuple[str, int | None]:
    """Name and port of a Host header; an empty name for one that cannot be read."""
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port
    except ValueError:
        return "", None
    if not name or parts.username is not None or parts.path or parts.query or parts.fragment:
        return "", None
    return name.lower().rstrip("."), port


def check_origin(headers: Mapping[str, str], *, changes: bool, by_cookie: bool = False) -> None:
    """Raises `ApiError` for a request that another site's page has sent.

    A browser says where a change comes from. One that comes with a cookie and does not say is refused.
    """
    site = headers.get("sec-fetch-site")
    if site in ("cross-site", "same-site"):
        raise _foreign(f"the browser says that it comes from another site ({site})")
    origin = headers.get("origin")
    if changes and by_cookie and origin is None and site is None:
        raise _foreign(
            "a change with a cookie must say where it comes from",
            fix="send Origin with the address of this server, or a token with Authorization: Bearer",
        )
    if not changes or origin is None:
        return
    if not same_origin(origin, headers.get("host", "")):
        raise _foreign(f"it comes from {origin[:100]!r}")


def same_origin(origin: str, host: str) -> bool:
    """Whether an Origin is this Host. The scheme is not compared: a proxy may have taken off the TLS."""
    scheme, _, place = origin.partition("://")
    if scheme not in _PORTS or not place:
        return False
    default = int(_PORTS[scheme])
    name, port = split_host(place)
    own_name, own_port = split_host(host)
    return bool(name) and name == own_name and (port or default) == (own_port or default)


def _foreign(why: str, *, fix: str = "use the page of this server, or no browser") -> ApiError:
    return ApiError(403, "wrong_origin", f"refused: {why}", fix=fix)


def check_form(headers: Mapping[str, str]) -> None:
    """A change has to be JSON or carry a header of its own: no form of another site can send either."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and "x-retinue" not in headers:
        raise ApiError(
            415,
            "not_json",
            f"a change cannot be sent as {kind[:60] or 'nothing'!r}",
            fix="send 'Content-Type: application/json', or the header 'X-Retinue: 1' with an empty body",
        )
