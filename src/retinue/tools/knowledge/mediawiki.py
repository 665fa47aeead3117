"""What every MediaWiki API answer has in common: errors with status 200, warnings, pages in two shapes.

Shared by Wikipedia and Wikidata.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from msgspec import Struct

from retinue.tools.knowledge import causes
from retinue.tools.knowledge.clean import line
from retinue.tools.knowledge.wire import SourceResponse

T = TypeVar("T")


class _Error(Struct, frozen=True):
    """`info` in the old error format, `text` in the new ones."""

    code: str = "unknown"
    info: str = ""
    text: str = ""


class _Failed(Struct, frozen=True):
    error: _Error | None = None
    errors: list[_Error] = []


class WikiPage(Struct, frozen=True):
    """`missing` and `invalid` are true in the newer format and "" in the older one; None if not there."""

    title: str = ""
    missing: bool | str | None = None
    invalid: bool | str | None = None
    invalidreason: str = ""
    extract: str | None = None
    fullurl: str = ""
    canonicalurl: str = ""
    touched: str = ""
    pageprops: dict[str, Any] = {}


class _Query(Struct, frozen=True):
    pages: list[WikiPage] | dict[str, WikiPage]

    @property
    def first(self) -> WikiPage | None:
        """The page asked for; a list or, in the older format, keyed by number."""
        pages = list(self.pages.values()) if isinstance(self.pages, dict) else self.pages
        return pages[0] if pages else None


class PagesReply(Struct, frozen=True):
    query: _Query


def decode(answer: SourceResponse, type: type[T], label: str) -> T:
    """The answer in this shape, or the error in it: MediaWiki reports nearly all of them with status 200."""
    failed = answer.json(_Failed, label)
    error = failed.error or (failed.errors[0] if failed.errors else None)
    if error is None:
        return answer.json(type, label)
    said = line(error.info or error.text) or error.code
    if error.code in ("maxlag", "ratelimited"):
        raise causes.rate_limited(label, answer.retry_after)
    if error.code in ("readonly", "internal_api_error_DBQueryError") or error.code.startswith("internal_api"):
        raise causes.down(label, said=said)
    raise causes.bad_query(label, f"{said} [{error.code}]")


def warnings(found: Any) -> list[str]:
    """What the wiki warns about, by module, in the old format or the new."""
    texts: list[str] = []
    if isinstance(found, dict):
        for module in cast("dict[str, Any]", found).values():
            if isinstance(module, dict):
                said = cast("dict[str, Any]", module)
                texts.append(line(str(said.get("warnings") or said.get("*") or "")))
    elif isinstance(found, list):
        for entry in cast("list[Any]", found):
            if isinstance(entry, dict):
                said = cast("dict[str, Any]", entry)
                texts.append(line(str(said.get("text") or said.get("*") or said.get("code") or "")))
    return [text for text in texts if text]
