"""What the model is shown: the system prompt, the request of each step, and a history that fits.

Called by the loop and by whoever starts a run. Changes nothing but through events.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from retinue import digest, replies, reports
from retinue.claims.report import Claims
from retinue.errors import Fenced, ModelError, RetinueError, StoreError, ToolError, unwind
from retinue.events import HistoryPruned, PromptPart, Purpose, RunStarted
from retinue.fold import KNOWLEDGE_TITLE
from retinue.models.base import Model
from retinue.models.prices import paid_for
from retinue.run import Run, SystemPrompt, storable
from retinue.run_state import RunState
from retinue.settings import ContextSettings
from retinue.sources import Checked, check, joined, with_judged
from retinue.types import (
    AgentSpec,
    AssistantMessage,
    Message,
    ModelEvent,
    ModelRequest,
    Reply,
    Retrying,
    Source,
    ToolSpec,
    Usage,
    UserMessage,
)

log = logging.getLogger("retinue")
FINAL = (
    "You cannot use tools any more ({reason}). Write the report now from what you have found so far. "
    "Say plainly what is missing or uncertain."
)
FORM = "Your final answer must be JSON alone, no other text, that fits this JSON schema:\n"
CHECKED_AT_ONCE = 8_000
"""Bytes of an answer and its sources that are checked at once; more is done in a thread: nobody waits."""
NOTHING_READ = "nothing was read"
MOST_PROBLEMS = 50
MOST_READ = 100
"""Problems of those below, and places in files, that a report hands on."""
FEW_LINES = 4
"""A task of more lines than these brings what it is about with it, as an attachment does."""
SCARCE = 16_000
"""Output tokens: when no more than these are left, the model is told not to write more."""
SUMMARISED_FROM = 60_000
SUMMARISED_EACH = 4_000
"""Characters of dropped turns that a model is shown to sum them up, and of one result in them."""
SUMMARISE = (
    "Summarise the conversation so far for yourself, so that the work can go on from your summary alone: "
    "the task, what was found (keep names, paths, numbers, URLs), what was decided, what is left to do."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reminder:
    """One part of what a model is reminded of before each step. Silent when it has nothing to say."""

    title: str
    tokens: Callable[[ContextSettings], int]
    """The most it may take; 0 keeps it silent."""
    text: Callable[[Run, int], str]
    """What it says, in about so many characters: it is cut to its budget in any case."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A part of a prompt, and the most it may take, where it has a budget."""

    title: str
    text: str
    most: int | None = None

    @property
    def tokens(self) -> int:
        return len(self.text) // 4


# In the order of their importance. What was asked and attached stands first in the history and never leaves
# it; what was done and thought is its newest part. These are what it does not hold, or holds no more.
PROVIDERS = (
    Reminder(
        title="Pending error",
        tokens=lambda budget: budget.error_tokens,
        text=lambda run, _: run.state.last_error,
    ),
    Reminder(
        title="External knowledge",
        tokens=lambda budget: budget.knowledge_tokens,
        text=lambda run, _: _knowledge_that_was_pruned(run),
    ),
    Reminder(
        title="Tasks",
        tokens=lambda budget: budget.task_tokens,
        text=lambda run, most: run.notes("tasks", most),
    ),
    Reminder(
        title="Goals",
        tokens=lambda budget: budget.goal_tokens,
        text=lambda run, most: run.notes("goals", most),
    ),
    Reminder(
        title="Memory",
        tokens=lambda budget: budget.memory_tokens,
        text=lambda run, most: run.notes("memory", most),
    ),
    Reminder(
        title="Vault",
        tokens=lambda budget: budget.vault_tokens,
        text=lambda run, most: run.notes("vault", most),
    ),
)


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


def _knowledge_that_was_pruned(run: Run) -> str:
    known = run.state.knowledge
    if known is None or known in run.state.messages or known in run.state.queued:
        return ""
    return known.text[len(KNOWLEDGE_TITLE) :]


def reminders(run: Run) -> list[Section]:
    """What every provider has to say now."""
    found: list[Section] = []
    for provider in PROVIDERS:
        most = provider.tokens(run.context)
        text = reports.cut(provider.text(run, most * 4).strip(), most * 4) if most else ""
        if text:
            found.append(Section(title=provider.title, text=text, most=most))
    return found


def reminder(run: Run) -> str:
    """What stands at the end of every request, and in no log: it is computed from the log each time."""
    return "\n\n".join(f"## {section.title}\n{section.text}" for section in reminders(run))


def request(run: Run, purpose: Purpose, reason: str) -> ModelRequest:
    run.refresh(run)
    messages = tuple(run.state.messages)
    reminded = reminder(run)
    if reminded:
        messages = (*messages, UserMessage(text=f"<state>\n{reminded}\n</state>"))
    if purpose == "final":
        messages = (*messages, UserMessage(text=FINAL.format(reason=reason)))
    # Some servers take either tools or a form of the answer: whoever is to mend the form needs no tool.
    mends_form = purpose == "correct" and run.state.correcting == "form"
    tools = () if purpose in ("final", "summary") or mends_form else run.shown
    left = run.budget.left("output_tokens")
    asks = run.spec.asks_with
    most = asks.max_tokens
    if (
        left is not None and left < SCARCE
    ):  # the provider's own limit is the better one as long as there is plenty
        most = int(left) if most is None else min(most, int(left))
    schema = run.output_schema if not tools else None
    return ModelRequest(
        system=run.system.text,
        messages=messages,
        tools=tools,
        tool_choice=_choice(run, purpose, asks.tool_choice) if tools else "auto",
        temperature=asks.temperature,
        max_tokens=most,
        schema=schema,
        timeout=_patience(run, asks.timeout),
        effort=asks.effort,
        settings=asks,
    )


def _patience(run: Run, own: float | None = None) -> float | None:
    """Seconds that a call may take: as its agent says, within what the settings say."""
    limit = run.limits.model_timeout
    return own if limit == "auto" else limit if own is None else min(limit, own)


def _choice(run: Run, purpose: Purpose, wanted: str) -> str:
    """Which tool is to be called. Only the first step is held to a call: later ones may answer."""
    if wanted == "none":
        return "none"
    if _must_look(run, purpose) and wanted in ("", "auto", "required"):
        return "required"
    first = purpose == "work" and run.state.step <= 1
    return wanted if first and wanted else "auto"


def _must_look(run: Run, purpose: Purpose) -> bool:
    """Small models like to answer before they look. Only the first step: later ones are theirs to end."""
    return run.spec.look_first and purpose == "work" and run.state.step <= 1


def system_prompt(
    spec: AgentSpec,
    *,
    cwd: str,
    workspace: bool,
    confined: bool = False,
    instructions: str = "",
    fragments: Sequence[str] = (),
    skills: str = "",
    servers: str = "",
) -> SystemPrompt:
    """The agent's own prompt, then what it has to know about where it is.

    `confined`: there is a project, and this agent sees its workspace alone. `skills`: what it is offered.
    `servers`: what MCP servers say of their tools.
    """
    where = ["<env>"]
    if cwd:
        where.append(f"Working folder: {cwd} (paths are relative to it)")
    if confined:
        where.append("Working folder: /home/agent (paths are relative to it; private, gone when you finish)")
        where.append(
            "You reach no file outside it, the project's neither. Files of the project that the person named "
            "are copied into it, under the same path."
        )
    elif workspace:
        where.append("Workspace for files of your own: /home/agent (private, gone when you finish)")
    where += [f"Date: {datetime.now(UTC):%Y-%m-%d}", "</env>"]
    own = [spec.prompt.strip(), *(part.strip() for part in fragments)]
    if spec.output_schema is not None:
        own.append(FORM + json.dumps(spec.output_schema, ensure_ascii=False))
    project = f"<project-instructions>\n{instructions.strip()}\n</project-instructions>"
    parts = {
        "agent": "\n\n".join(part for part in own if part),
        "environment": "\n".join(where),
        "project instructions": project if instructions.strip() else "",
        "skills": skills,
        "MCP servers": servers,
    }
    told = {title: storable(text) for title, text in parts.items() if text}
    return SystemPrompt(
        text="\n\n".join(told.values()),
        parts=tuple(PromptPart(title, len(text)) for title, text in told.items()),
    )


def _system_sections(began: RunStarted) -> list[Section]:
    """The system prompt in its parts; as one where the log is from before these were kept."""
    if not began.parts:
        return [Section(title="agent", text=began.system)]
    found: list[Section] = []
    start = 0
    for part in began.parts:
        found.append(Section(title=part.title, text=began.system[start : start + part.length]))
        start += part.length + len("\n\n")
    return found


def sections(began: RunStarted, tools: Sequence[ToolSpec], budget: ContextSettings) -> list[Section]:
    """The parts of what a model is told at the start of a run."""
    listed = ", ".join(began.tools) or "none"
    schemas = "\n".join(
        f"{tool.name}: {tool.description}\n{json.dumps(tool.schema, ensure_ascii=False)}" for tool in tools
    )
    shown = began.rendered or began.prompt
    first = began.options.first
    parts = [
        *_system_sections(began),
        Section(title="tools", text=f"{listed}\n{schemas}".strip()),
        Section(title="question", text=shown[: began.question or None]),
        Section(
            title="attachments",
            text=shown[began.question :].strip() if began.question else "",
            most=budget.attachment_tokens,
        ),
        Section(
            title="external knowledge",
            text=f"({first} looks the question up first)" if first else "",
            most=budget.knowledge_tokens,
        ),
    ]
    return [section for section in parts if section.text]


def estimate(messages: Sequence[Message]) -> int:
    """Tokens, roughly: four characters each, and a little for every message."""
    return sum(_size(message) for message in messages)


def _size(message: Message) -> int:
    size = len(message.text)
    if isinstance(message, AssistantMessage):
        size += sum(len(call.name) + len(call.arguments) for call in message.calls)
    else:
        size += 6000 * len(message.images)
    return size // 4 + 8


async def prune(run: Run, *, force: bool = False) -> bool:
    """Bring the history below its budget. True if anything was dropped.

    The task and the newest turns stay; a call and its result are never parted.
    """
    settings = run.context
    messages = run.state.messages
    before = estimate(messages) + len(run.system.text) // 4
    if not force and before <= settings.max_tokens * settings.threshold:
        return False
    target = before // 2 if force else int(settings.max_tokens * settings.threshold) // 2
    dropped = droppable(messages, settings.keep_turns if not force else 1, target)
    if dropped <= 0:
        return False
    gone = messages[1 : 1 + dropped]
    most = _room(settings)
    if settings.mode == "summarize":
        then = next(run.summaries, None) if run.summaries is not None else None
        summary, usage = await _summary(run, gone, most) if then is None else (then.summary, then.usage)
    else:
        summary, usage = digest.dropped(gone, run.state.digest, most), Usage()
    run.log.write(
        HistoryPruned,
        dropped=dropped,
        summary=summary,
        tokens_before=before,
        tokens_after=before - estimate(gone) + len(summary) // 4,
        usage=usage,
    )
    return True


def droppable(messages: Sequence[Message], keep_turns: int, target: int) -> int:
    """How many messages after the first can go: whole turns, oldest first, until the rest fits."""
    starts = [i for i, m in enumerate(messages) if isinstance(m, AssistantMessage) and i > 0]
    size = estimate(messages)
    best = 0
    for start in starts[1 : max(0, len(starts) - keep_turns) + 1]:
        size -= estimate(messages[best + 1 : start])
        best = start - 1
        if size <= target:
            break
    return best


def _room(settings: ContextSettings) -> int:
    """Characters of a digest: a quarter of what a history may take."""
    return int(settings.max_tokens * settings.threshold)


async def _summary(run: Run, gone: Sequence[Message], most: int) -> tuple[str, Usage]:
    """What was dropped, in the small model's words; by its form alone if that fails.

    An earlier digest stays word for word as long as there is room: who sums up summaries loses facts.
    """
    earlier = run.state.digest
    kept = next((message.text for message in gone if message is earlier), digest.SUMMARISED)
    fresh = [message for message in gone if message is not earlier]
    shown = digest.dropped(fresh, None, SUMMARISED_FROM, SUMMARISED_EACH)
    asked = ModelRequest(
        system="You summarise conversations of an agent with its tools.",
        messages=(UserMessage(text=f"{shown}\n\n{SUMMARISE}"),),
        timeout=_patience(run),
    )
    with paying(run) as paid:
        try:
            reply = await complete(run, asked, paid)
        except Exception as error:  # also of a program's own model
            if isinstance(error, RetinueError) and not isinstance(error, ModelError):
                raise  # nothing is left to spend, or nothing can be written
            unwind(error)
            return digest.dropped(gone, earlier, most), paid.usage
    summary = f"{kept}\n{reply.message.text.strip()}"
    return digest.shortened(summary, most), reply.usage


@contextmanager
def paying(run: Run, model: Model | None = None) -> Generator[replies.Paid]:
    """What a call of the cheap model takes, for whoever writes it down; if they are stopped, it is here."""
    paid = paid_for((model or run.small()).name)
    try:
        yield paid
    except asyncio.CancelledError:
        run.cut_off(paid.usage)
        raise


def write_off(run: Run, item: ModelEvent, paid: replies.Paid) -> None:
    """A reply that had begun and is asked for again may be charged for all the same. Nobody knows what it
    took, so that a limit of money cannot hold: nothing more is asked then."""
    if isinstance(item, Retrying) and (item.text_shown or item.begun):
        run.cut_off(paid.unseen)
        paid.usage = Usage()
        if paid.unseen.cost is None:
            run.budget.refuse_unpriced(run.id)


async def complete(run: Run, asked: ModelRequest, paid: replies.Paid, model: Model | None = None) -> Reply:
    """One answer of the cheap model, or of another, charged to this run also where it fails.
    `paid`: what it took."""
    run.budget.begin_turn(run.id, unpriced=run.state.unpriced)
    model = model or run.small()
    try:
        return await replies.collected(
            model.name, model.stream(asked), lambda item: write_off(run, item, paid), paid
        )
    finally:
        run.budget.charge_usage(paid.usage)


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
