"""SPARQL over HTTP: the request, the answer in all the shapes servers give it, and a table of it.

Shared by Wikidata and DBpedia. A query that ran out of time is often a 200 whose JSON breaks off with a
stack trace behind it: that is an error here, never a short result.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from retinue.tools.knowledge import causes
from retinue.tools.knowledge.clean import cut
from retinue.tools.knowledge.items import Item, framed
from retinue.tools.knowledge.wire import SourceResponse

ACCEPT = "application/sparql-results+json, application/n-triples;q=0.5"
ROWS = 100
CELL = 300
_ASKED = "__ask_retval"
"""Virtuoso's only column for an ASK: one row with 1 is yes, no row is no."""
_ADVICE = "Ask for less: fewer joins, a LIMIT, a narrower class."


class RdfTerm(Struct, frozen=True):
    """A value: `typed-literal` and `literal` with a datatype mean the same. In what Virtuoso describes,
    numbers are numbers."""

    type: str
    value: str | int | float | bool

    @property
    def text(self) -> str:
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)


class _Head(Struct, frozen=True):
    vars: list[str] = []


class _Results(Struct, frozen=True):
    bindings: list[dict[str, RdfTerm]] = []


class _Answered(Struct, frozen=True):
    head: _Head = _Head()
    results: _Results | None = None
    boolean: bool | None = None


class QueryResult(Struct, frozen=True, kw_only=True):
    """A result. An ASK has `boolean`, a CONSTRUCT or DESCRIBE has `triples`, a SELECT the rest."""

    names: tuple[str, ...] = ()
    rows: tuple[dict[str, RdfTerm], ...] = ()
    boolean: bool | None = None
    triples: tuple[str, ...] = ()
    partial: str = ""

    @property
    def empty(self) -> bool:
        return self.boolean is None and not self.rows and not self.triples


def parse(answer: SourceResponse, label: str) -> QueryResult:
    """The table in an answer, or the error that the server hid in it."""
    if answer.status >= 400:
        raise rejected(answer, label)
    kind = answer.headers.get("content-type", "").split(";")[0].strip()
    if not answer.text.lstrip().startswith("{"):
        if kind in ("application/n-triples", "text/plain", "text/turtle"):
            return QueryResult(triples=tuple(line for line in answer.text.splitlines() if line.strip()))
        raise causes.down(label, "not a result", said=f"{kind}: {answer.start}", again=False)
    try:
        found = msgspec.json.decode(answer.body, type=_Answered)
    except msgspec.ValidationError as error:
        raise causes.down(label, f"a result in an unknown form, {error}", again=False) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise broken(answer, label) from None
    if found.results is None:
        if found.boolean is None:
            raise causes.down(label, "a result in an unknown form", said=answer.start, again=False)
        return QueryResult(boolean=found.boolean)
    if tuple(name.casefold() for name in found.head.vars) == (_ASKED,):
        return QueryResult(boolean=any(_is_yes(row) for row in found.results.bindings))
    return QueryResult(
        names=tuple(found.head.vars),
        rows=tuple(found.results.bindings),
        partial=_partial(answer, len(found.results.bindings)),
    )


def _is_yes(row: dict[str, RdfTerm]) -> bool:
    return any(term.text not in ("0", "false") for term in row.values())


def broken(answer: SourceResponse, label: str) -> causes.SourceError:
    """What cut JSON means: the reason stands behind the cut."""
    text = answer.text
    if "TimeoutException" in text or "QueryTimeout" in text:
        return causes.SourceError(
            f"{label} gave up on the query: it ran out of time, and its result is incomplete. {_ADVICE}",
            cause="timeout",
        )
    tail = " ".join(text[-2000:].split())
    exception = re.search(r"(?:[\w.]+\.)?(\w+(?:Exception|Error)\b[^\n]{0,200})", text[-5000:])
    reason = exception[1] if exception else re.split(r'[\]\[{}"]', tail)[-1].strip() or tail[-200:]
    return causes.SourceError(
        f"{label} broke off its answer, and the result is incomplete. {_ADVICE}",
        cause="down",
        said=cut(reason, 300),
    )


def rejected(answer: SourceResponse, label: str) -> causes.SourceError:
    """What an error status means; the reason is somewhere in text meant for developers."""
    text = answer.text
    if "TimeoutException" in text or "S1T00" in text or "estimated execution time" in text:
        return causes.SourceError(
            f"{label} gave up on the query: it ran out of time. {_ADVICE}", cause="timeout"
        )
    if answer.status >= 500:
        return causes.down(label, f"status {answer.status}", said=answer.start)
    found = re.search(r"(?:MalformedQueryException|ParseException|QueryException): *([^\n]+)", text)
    message = found[1] if found else text.split("\n\nSPARQL query:")[0]
    return causes.bad_query(label, cut(" ".join(message.split()), 500))


def items(table: QueryResult, query_url: str, host: str) -> list[Item]:
    """Rows as items; a row is cited by the first address in it on the graph's own host, else by the query.

    A query can put any address into a row beside any words, and nobody has read what stands there.
    """
    own = (f"http://{host}/", f"https://{host}/")
    found: list[Item] = []
    for row in table.rows[:ROWS]:
        cells = [(name, row[name]) for name in table.names or tuple(row) if name in row]
        address = next((t.text for _, t in cells if t.type == "uri" and t.text.startswith(own)), None)
        shown = " | ".join(f"{name}: {show(term)}" for name, term in cells)
        found.append(Item(title=shown or "(no values)", url=address or query_url, also=_pages(address or "")))
    return found


def _pages(address: str) -> tuple[str, ...]:
    """The page for people of an address for programs."""
    if "/www.wikidata.org/entity/" in address:
        return (address.replace("/entity/", "/wiki/").replace("http:", "https:"),)
    if "/dbpedia.org/resource/" in address:
        return (address.replace("/resource/", "/page/").replace("http:", "https:"),)
    return ()


def show(term: RdfTerm) -> str:
    """A value as people read it: an entity by its id, a date without its clock at midnight."""
    if term.type == "uri":
        match = re.fullmatch(r"https?://www\.wikidata\.org/(?:entity|prop(?:/\w+)*)/([QPL]\d+)", term.text)
        if match:
            return match[1]
        match = re.fullmatch(r"https?://dbpedia\.org/resource/(.+)", term.text)
        return f"dbr:{unquote(match[1])}" if match else term.text
    return cut(term.text.removesuffix("T00:00:00Z"), CELL)


def render(table: QueryResult, head: str, notes: list[str]) -> str:
    """The whole result as text: a table is shorter than numbered items, and cells line up with names."""
    if table.boolean is not None:
        head = f"{head}\n\n{'yes' if table.boolean else 'no'}"
    blocks: list[str] = []
    if table.rows:
        names = table.names or tuple(table.rows[0])
        lines = [" | ".join(names)]
        for row in table.rows[:ROWS]:
            lines.append(" | ".join(show(row[name]) if name in row else "" for name in names))
        blocks.append("\n".join(lines))
    if table.triples:
        blocks.append("\n".join(cut(line, CELL * 2) for line in table.triples[:ROWS]))
    count = max(len(table.rows), len(table.triples))
    if count > ROWS:
        notes = [*notes, f"{count - ROWS} of {count} rows are not shown; use LIMIT and OFFSET."]
    if table.partial:
        notes = [*notes, table.partial]
    return framed(head, "\n\n".join(blocks), notes)


def _partial(answer: SourceResponse, rows: int) -> str:
    if answer.headers.get("x-sql-state") == "S1TAT":
        return "INCOMPLETE: the server stopped at its time limit, so rows and counts are missing. " + _ADVICE
    most = answer.headers.get("x-sparql-maxrows", "")
    if most.isdecimal() and len(most) < 19 and rows >= int(most):
        return f"INCOMPLETE: the server gives at most {most} rows; page with LIMIT and OFFSET."
    return ""
