"""What a report says beside its text: its sources, what is wrong with them, what was read, what is missing.

Called by `ending`, by `engine/report_check`, and for runs that nobody works on any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from retinue import digest
from retinue.claims.report import Claims
from retinue.errors import Fenced, StoreError, ToolError
from retinue.run import Run
from retinue.run_state import RunState
from retinue.sources import Checked, check, joined, with_judged
from retinue.types import AssistantMessage, Source

log = logging.getLogger("retinue")
CHECKED_AT_ONCE = 8_000
"""Bytes of an answer and its sources that are checked at once; more is done in a thread: nobody waits."""
NOTHING_READ = "nothing was read"
MOST_PROBLEMS = 50
MOST_READ = 100
"""Problems of those below, and places in files, that a report hands on."""
FEW_LINES = 4
"""A task of more lines than these brings what it is about with it, as an attachment does."""


def unknown(state: RunState) -> tuple[str, ...]:
    """What a report says of knowledge that was looked up first and could not be used."""
    if state.unknown is None:
        return ()
    found = f"{state.unknown.agent} found nothing that can be used, so this is answered without it"
    return (f"external knowledge: {found} (run {state.unknown.child_id})",)


def all_problems(state: RunState, checked: Checked) -> tuple[str, ...]:
    """What is wrong with the citations of a report, and with those of the reports that it rests on."""
    own = (each.text for each in checked.problems)
    return (*own, *checked.claims.unknown, *state.problems[:MOST_PROBLEMS], *unknown(state))


def partial(run: Run) -> str:
    """The work so far of a run that did not get to its report. What no guard has seen is not shown."""
    if run.guards is not None and run.guards.holds:
        return ""
    unheard = [(report.agent, report.text) for report in run.unheard(run) if report.text.strip()]
    return digest.so_far(run.state, "".join(run.streamed).strip(), unheard)


def read_nothing(run: Run) -> bool:
    """Whether an answer that must rest on what was read rests on nothing."""
    began = run.state.started
    if not run.spec.must_read or began is None:
        return False
    brought = began.rendered or began.images or began.prompt.count("\n") > FEW_LINES
    read = (source for source in run.state.sources if not source.listed)
    return not brought and not any(source.url or source.lines for source in read)


def why_incomplete(state: RunState, why: str | None) -> str | None:
    """Why there is no more in a report, and what was said to its run that no model has read any more."""
    if not state.unread:
        return why
    count = "1 message was" if state.unread == 1 else f"{state.unread} messages were"
    return "; ".join(part for part in (why, f"{count} not read") if part)


async def check_sources(run: Run, text: str, *, strict: bool = False, judge: bool = False) -> Checked:
    """What an answer cites and quotes, held against what this run and its children fetched and read.

    A fault of the check is no fault of the answer: then nothing is known about its sources. `judge`: a model
    decides on what the program cannot, if the settings name one.
    """
    try:
        checked = await _checked(run, text, strict=strict)
        claims = await run.judge_claims(run, checked.claims) if judge else checked.claims
        return checked if claims is checked.claims else with_judged(checked, claims)
    except (Fenced, StoreError):
        raise
    except Exception as error:
        log.warning("the sources of a report could not be checked: %r", error)
        return Checked(text_sources=(), problems=(), claims=Claims(fault=type(error).__name__))


async def _checked(run: Run, text: str, *, strict: bool) -> Checked:
    state = run.state
    size = sum(len(shown) for shown in state.source_texts.values())

    below: Mapping[str, str] = {}
    if state.children and _cites_pages(text):
        below = await run.pages_below(run)
        size += sum(len(page) for page in below.values())

    def look_up(source: Source) -> str | None:
        if source.url and source.url in below:  # and not what a child says of it
            return below[source.url]
        for path in (source.saved_as, source.path):
            if path:
                with suppress(ToolError):
                    return run.files.read_bytes(path).decode("utf-8", "replace")
        return state.source_texts.get(source.url or "")

    for path in {path for source in state.sources for path in (source.saved_as, source.path) if path}:
        with suppress(ToolError):
            size += run.files.stat(path).st_size
    told = [message.text for message in state.messages if not isinstance(message, AssistantMessage)]
    more = {"known": told[:1], "unreadable": tuple(state.unreadable)}
    if size + len(text) <= CHECKED_AT_ONCE:
        return check(text, state.sources, look_up, **more, strict=strict)
    return await asyncio.to_thread(check, text, tuple(state.sources), look_up, **more, strict=strict)


def _cites_pages(text: str) -> bool:
    return "://" in text


def all_sources(run: Run, checked: Checked) -> tuple[Source, ...]:
    """The cited ones first, as they were cited; then the pages that were fetched and not cited."""
    found = list(checked.text_sources)
    urls = {url for source in found for url in (source.url, *source.aliases)}  # one page, once
    for source in sorted(run.state.sources, key=lambda source: source.listed):
        if source.url and source.url not in urls:
            urls.update((source.url, *source.aliases))
            found.append(source)
    return tuple(found)


def read_lines(state: RunState) -> tuple[Source, ...]:
    """The places in files that were read, by a run or below it: what follows on itself is one place."""
    spans: dict[tuple[str, bool], list[tuple[int, int]]] = {}
    whole: dict[str, None] = {}
    for source in state.sources:
        if source.path and not source.url:
            if source.lines is None:
                whole[source.path] = None
            else:
                spans.setdefault((source.path, source.listed), []).append(source.lines)
    places = [Source(path=path) for path in whole]
    for (path, listed), found in spans.items():
        if path not in whole:
            places += [Source(path=path, lines=lines, listed=listed) for lines in joined(found)]
    return tuple(places[-MOST_READ:])
