"""Who is logged in on the page: a random id in a cookie, and what a server remembers of it.

A server keeps a digest of the id, never the id, so that nobody who reads the file can make a cookie; the
digest of a token is no part of it either. A session ends when it is logged out, with its time, and with its
token; it outlives a restart. Servers of one user share the file: what ends on one of them has ended on all
within a second. Used by `security.Access`; knows no requests.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from retinue.errors import ConfigError
from retinue.file_lock import locked
from retinue.server import kept_file

SECONDS = 30 * 86400
MOST_OF_A_NAME, MOST = 20, 2000
"""Sessions that one token may have, and all together. The oldest ends when there is one more."""
WHAT = "sessions"
log = logging.getLogger("retinue.server")


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """What is remembered of one: no part of it lets anybody in."""

    digest: str
    name: str
    """Whose token began it."""
    bound: str
    """Tells, together with the cookie, whether the token is still the same."""
    until: float


class Sessions:
    """The sessions of one server, or of all that share a file. Without a file they end with the process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._changed = kept_file.FileChanges(path) if path is not None else None
        self._held = _read(path)
        self._told = False

    def begin(self, name: str, credential: str, now: float | None = None) -> str:
        """A new session of a token. Returns the cookie; it is nowhere else."""
        now = time.time() if now is None else now
        cookie = secrets.token_urlsafe(32)
        made = Session(
            digest=digest(cookie), name=name, bound=_bound(cookie, credential), until=now + SECONDS
        )

        def add(held: dict[str, Session]) -> None:
            for ended in [one.digest for one in held.values() if one.until < now]:
                del held[ended]
            same = [one.digest for one in held.values() if one.name == name]
            for oldest in same[: max(0, len(same) + 1 - MOST_OF_A_NAME)]:
                del held[oldest]
            for oldest in list(held)[: max(0, len(held) + 1 - MOST)]:
                del held[oldest]
            held[made.digest] = made

        self._change(add)
        return cookie

    def find(self, cookie: str, credentials: Mapping[str, str], now: float | None = None) -> Session | None:
        """The session of a cookie, if it goes on. `credentials` are those of the tokens by name."""
        found = self.get(digest(cookie), now)
        credential = credentials.get(found.name) if found is not None else None
        if found is None or credential is None:
            return None
        same = hmac.compare_digest(found.bound, _bound(cookie, credential))
        return found if same else None

    def get(self, digest: str, now: float | None = None) -> Session | None:
        with self._lock:
            if self._changed is not None and self._changed():
                self._held = _read(self._path)
            found = self._held.get(digest)
        return found if found is not None and found.until >= (time.time() if now is None else now) else None

    def end(self, cookie: str) -> None:
        """Log out: from now on the cookie is nobody's, wherever it was copied to."""
        gone = digest(cookie)
        if self.get(gone) is not None and not self._change(lambda held: held.pop(gone, None)):
            self._take_out(gone)

    def _take_out(self, gone: str) -> None:
        """Log out where the file cannot be replaced: it would bring the session back with the next start."""
        if self._path is None:
            return
        try:
            with contextlib.ExitStack() as held:
                with contextlib.suppress(ConfigError):  # a full disk may have no room for the lock either
                    held.enter_context(locked(self._path))
                kept_file.blank_out(self._path, gone)
        except ConfigError as error:
            log.warning("%s; a session that was logged out would be valid again after a restart", error)

    def _change(self, change: Callable[[dict[str, Session]], object]) -> bool:
        """Whether it is in the file as well, if there is one."""
        with self._lock:
            change(self._held)
            if self._path is None:
                return True
            try:
                with locked(self._path):
                    kept = _read(self._path)
                    change(kept)
                    kept_file.write(self._path, WHAT, [asdict(one) for one in kept.values()])
                self._held = kept
            except ConfigError as error:
                if not self._told:
                    log.warning("%s; whoever logs in has to do so again after a restart", error)
                self._told = True
                return False
            return True


def forget(path: Path, names: Iterable[str]) -> None:
    """Take the sessions of these tokens out of a file: their tokens are gone."""
    gone = set(names)
    with locked(path):
        held = _read(path)
        left = [asdict(one) for one in held.values() if one.name not in gone]
        if len(left) < len(held):
            kept_file.write(path, WHAT, left)


def _read(path: Path | None) -> dict[str, Session]:
    """What a file holds. What cannot be read lets nobody in, and is made anew with the next log-in."""
    if path is None:
        return {}
    try:
        rows = kept_file.read(path, WHAT)
        found = [_row(row) for row in rows]
    except (ConfigError, ValueError, KeyError, TypeError) as error:
        log.warning(
            "the sessions of %s cannot be read: %s; whoever was logged in has to log in again", path, error
        )
        return {}
    return {one.digest: one for one in found}


def _row(row: dict[str, Any]) -> Session:
    return Session(
        digest=str(row["digest"]), name=str(row["name"]), bound=str(row["bound"]), until=float(row["until"])
    )


def digest(cookie: str) -> str:
    # 256 random bits need no salt and no slow hash.
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


def _bound(cookie: str, credential: str) -> str:
    return hmac.new(cookie.encode("utf-8", "replace"), credential.encode(), hashlib.sha256).hexdigest()
