"""Which results of a search are wanted: of one site, or dated within two days.

Called by `web_search`. The site goes into the query, as search engines know it, and whatever comes back is
looked over here: not every backend heeds it. A date is only known where a backend gives one; a result without
one is kept and counted, so that nobody takes it for a dated one.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from retinue.errors import ToolError

if TYPE_CHECKING:
    from retinue.web.search import QueryAnswered, Result

_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedResults:
    site: str = ""
    after: datetime.date | None = None
    before: datetime.date | None = None

    def query(self, query: str) -> str:
        return f"{query} site:{self.site}" if self.site else query

    def of(self, answer: QueryAnswered) -> tuple[QueryAnswered, str]:
        """The answer with what is wanted alone, and a line about what is left out or has no date."""
        kept = tuple(result for result in answer.results if self._of_site(result) and self._in_time(result))
        dated = self.after is not None or self.before is not None
        undated = sum(_day(result) is None for result in kept) if dated else 0
        gone = len(answer.results) - len(kept)
        said = [f"{gone} left out: of another site or time"] if gone else []
        said += [f"{undated} of these have no date"] if undated else []
        return replace(answer, results=kept), f"\n({'; '.join(said)})" if said else ""

    def _of_site(self, result: Result) -> bool:
        host = (urlsplit(result.url).hostname or "").lower()
        return not self.site or host == self.site or host.endswith(f".{self.site}")

    def _in_time(self, result: Result) -> bool:
        day = _day(result)
        if day is None:
            return True
        return (self.after is None or day >= self.after) and (self.before is None or day <= self.before)


def wanted_results(site: str, after: str, before: str) -> WantedResults:
    """Raises `ToolError` for what is no host or no day."""
    host = site.strip().lower()
    host = (urlsplit(host).hostname or "") if "://" in host else host.partition("/")[0]
    if site.strip() and not _HOST.fullmatch(host):
        raise ToolError(f"site is {site[:100]!r}: give a host, like example.org", not_run="bad_arguments")
    first, last = _given("after", after), _given("before", before)
    if first is not None and last is not None and first > last:
        raise ToolError(f"after {after} is later than before {before}", not_run="bad_arguments")
    return WantedResults(site=host, after=first, before=last)


def _given(name: str, text: str) -> datetime.date | None:
    if not text.strip():
        return None
    try:
        return datetime.date.fromisoformat(text.strip())
    except ValueError:
        raise ToolError(
            f"{name} is {text[:40]!r}: give a day, like 2024-01-31", not_run="bad_arguments"
        ) from None


def _day(result: Result) -> datetime.date | None:
    found = _DAY.match(result.date)
    try:
        return datetime.date.fromisoformat(found[0]) if found else None
    except ValueError:
        return None
