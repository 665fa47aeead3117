"""What goes to a source and what comes back, as the client and the parsers see it.

A `Request` keeps secrets apart from everything else, so that keys of cache entries, errors and sources
can be made of the rest. An `SourceResponse` is what is cached.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TypeVar

import msgspec
from msgspec import Struct

from retinue.tools.knowledge.causes import down

T = TypeVar("T")
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:(?:<\?xml[^>]{0,200}\?>|<!--.{0,1000}?-->)\s*)*<(?:!doctype\s+html|html)\b",
    re.IGNORECASE | re.DOTALL,
)


class SourceResponse(Struct, frozen=True, kw_only=True):
    """A response: `headers` by lower-case name, `body` free of keys, `fetched_at` in epoch seconds."""

    status: int
    headers: dict[str, str]
    body: bytes
    fetched_at: float
    cached: bool = False

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", errors="replace")

    @property
    def start(self) -> str:
        """The beginning of the body on one line, for an error."""
        return " ".join(self.text[:2000].split())[:200]

    @property
    def is_page(self) -> bool:
        """Whether this is a page for people, whatever its type claims. No source answers with one."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return kind in ("text/html", "application/xhtml+xml") or _PAGE.match(self.body[:4096]) is not None

    @property
    def retry_after(self) -> float | None:
        """`Retry-After` in seconds, whether it came as seconds or as a date."""
        value = self.headers.get("retry-after", "").strip()
        if not value:
            return None
        try:
            wait = float(value)
        except ValueError:
            try:
                wait = parsedate_to_datetime(value).timestamp() - self.fetched_at
            except (ValueError, OverflowError):
                return None
        return max(0.0, wait) if math.isfinite(wait) else None

    def json(self, type: type[T], label: str) -> T:
        """The body as JSON of this shape, whatever its content type says."""
        try:
            return msgspec.json.decode(self.body, type=type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            what = f"an answer that is not the JSON it promises, {error.__class__.__name__}"
            raise down(label, what, said=f"{error}: {self.start}", again=False) from None


def _no_pause(_: SourceResponse) -> float | None:
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request. `form` makes it a POST; `handles` are the error statuses its parser reads itself."""

    source: str
    url: str
    params: Mapping[str, str] = field(default_factory=dict[str, str])
    form: Mapping[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    secret_params: Mapping[str, str] = field(default_factory=dict[str, str])
    secret_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    method: str = ""
    """The server's method where each has a limit of its own."""
    handles: frozenset[int] = frozenset()
    timeout: float | None = None
    or_page: bool = False
    """Its parser reads a page for people too, as a sign that there is no such service."""
    pause: Callable[[SourceResponse], float | None] = _no_pause
    """Reads from an answer how long this method must now be left alone."""

    def key(self) -> str:
        """What makes two requests equal. No secret is part of it, not even hashed."""
        parts = [self.source, self.url, sorted(self.params.items()), sorted((self.form or {}).items())]
        return hashlib.sha256(json.dumps([*parts, sorted(self.headers.items())]).encode()).hexdigest()
