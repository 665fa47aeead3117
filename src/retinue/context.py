"""What the model is shown: the system prompt, the request of each step, and a history that fits.

Called by the loop and by whoever starts a run. Changes nothing but through events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from retinue.errors import ModelError, ToolError
from retinue.events import HistoryPruned, Purpose, RunStarted
from retinue.reports import cut
from retinue.run import Run
from retinue.sources import Checked, check
from retinue.types import (
    AgentSpec,
    AssistantMessage,
    Message,
    ModelRequest,
    Reply,
    Source,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)

FINAL = (
    "You cannot use tools any more ({reason}). Write the report now from what you have found so far. "
    "Say plainly what is missing or uncertain."
)
SCARCE = 16_000
"""Output tokens: when no more than these are left, the model is told not to write more."""
SUMMARISE = (
    "Summarise the conversation so far for yourself, so that the work can go on from your summary alone: "
    "the task, what was found (keep names, paths, numbers, URLs), what was decided, what is left to do."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """One part of what a model is reminded of before each step. Silent when it has nothing to say."""

    title: str
    tokens: int
    """The most it may take."""
    text: Callable[[Run], str]


# In the order of their importance. What was asked, attached, looked up, done and thought is in the history
# itself; these are what the history does not hold, or not in one place.
PROVIDERS = (
    Provider(title="Pending error", tokens=400, text=lambda run: run.state.last_error),
    Provider(title="Tasks", tokens=600, text=lambda run: run.notes("tasks")),
    Provider(title="Goals", tokens=300, text=lambda run: run.notes("goals")),
    Provider(title="Memory", tokens=800, text=lambda run: run.notes("memory")),
    Provider(title="Vault", tokens=400, text=lambda run: run.notes("vault")),
)


def reminder(run: Run) -> str:
    """What stands at the end of every request, and in no log: it is computed from the log each time."""
    parts: list[str] = []
    for provider in PROVIDERS:
        text = provider.text(run).strip()
        if text:
            parts.append(f"## {provider.title}\n{cut(text, provider.tokens * 4)}")
    return "\n\n".join(parts)


def request(run: Run, purpose: Purpose, reason: str) -> ModelRequest:
    messages = tuple(run.state.messages)
    reminded = reminder(run)
    if reminded:
        messages = (*messages, UserMessage(text=f"<state>\n{reminded}\n</state>"))
    if purpose == "final":
        messages = (*messages, UserMessage(text=FINAL.format(reason=reason)))
    tools = () if purpose in ("final", "summary") else run.shown
    left = run.budget.left("output_tokens")
    most = run.spec.max_tokens
    if (
        left is not None and left < SCARCE
    ):  # the provider's own limit is the better one as long as there is plenty
        most = int(left) if most is None else min(most, int(left))
    schema = run.spec.output_schema if purpose == "correct" or not tools else None
    return ModelRequest(
        system=run.system,
        messages=messages,
        tools=tools,
        temperature=run.spec.temperature,
        max_tokens=most,
        schema=schema,
        timeout=run.limits.model_timeout,
    )


def system_prompt(
    spec: AgentSpec, *, cwd: str, workspace: bool, instructions: str = "", fragments: Sequence[str] = ()
) -> str:
    """The agent's own prompt, then what it has to know about where it is."""
    where = ["<env>"]
    if cwd:
        where.append(f"Working folder: {cwd} (paths are relative to it)")
    if workspace:
        where.append("Workspace for files of your own: /home/agent (private, gone when you finish)")
    where += [f"Date: {datetime.now(UTC):%Y-%m-%d}", "</env>"]
    parts = [spec.prompt.strip(), *(part.strip() for part in fragments if part.strip()), "\n".join(where)]
    if instructions.strip():
        parts.append(f"<project-instructions>\n{instructions.strip()}\n</project-instructions>")
    return "\n\n".join(part for part in parts if part)


def sections(began: RunStarted, tools: Sequence[ToolSpec]) -> list[tuple[str, str]]:
    """The parts of what a model is told at the start of a run, each with its title."""
    prompt, _, rest = began.system.partition("\n\n<env>")
    env, _, instructions = rest.partition("</env>")
    listed = ", ".join(began.tools) or "none"
    schemas = "\n".join(f"{tool.name}: {tool.description}\n{tool.schema}" for tool in tools)
    question, _, attached = (began.rendered or began.prompt).partition("\n\n<attachment ")
    parts = [
        ("agent", prompt),
        ("environment", f"<env>{env}</env>" if rest else ""),
        ("project instructions", instructions.strip()),
        ("tools", f"{listed}\n{schemas}".strip()),
        ("question", question),
        ("attachments", f"<attachment {attached}" if attached else ""),
    ]
    return [(title, text) for title, text in parts if text]


def estimate(messages: Sequence[Message]) -> int:
    """Tokens, roughly: four characters each, and a little for every message."""
    return sum(_size(message) for message in messages)


def _size(message: Message) -> int:
    size = len(message.text)
    if isinstance(message, AssistantMessage):
        size += sum(len(call.name) + len(call.arguments) for call in message.calls)
    elif isinstance(message, UserMessage):
        size += 6000 * len(message.images)
    return size // 4 + 8


async def prune(run: Run, *, force: bool = False) -> bool:
    """Bring the history below its budget. True if anything was dropped.

    The task and the newest turns stay; a call and its result are never parted.
    """
    settings = run.context
    messages = run.state.messages
    before = estimate(messages) + len(run.system) // 4
    if not force and before <= settings.max_tokens * settings.threshold:
        return False
    target = before // 2 if force else int(settings.max_tokens * settings.threshold) // 2
    dropped = _droppable(messages, settings.keep_turns if not force else 1, target)
    if dropped <= 0:
        return False
    gone = messages[1 : 1 + dropped]
    summary, usage = await _summary(run, gone) if settings.mode == "summarize" else (_outline(gone), Usage())
    run.log.write(
        HistoryPruned,
        dropped=dropped,
        summary=summary,
        tokens_before=before,
        tokens_after=before - estimate(gone) + len(summary) // 4,
        usage=usage,
    )
    return True


def _droppable(messages: Sequence[Message], keep_turns: int, target: int) -> int:
    """How many messages after the first can go: whole turns, oldest first, until the rest fits."""
    starts = [i for i, m in enumerate(messages) if isinstance(m, AssistantMessage) and i > 0]
    size = estimate(messages)
    best = 0
    for start in starts[1 : max(0, len(starts) - keep_turns) + 1]:
        best = start - 1
        if size - estimate(messages[1:start]) <= target:
            break
    return best


def _outline(gone: Sequence[Message]) -> str:
    """What was dropped, without a model: the calls that were made and how long their results were."""
    lines = ["[Earlier turns were dropped to save space. What was done in them:]"]
    results = {m.call_id: m for m in gone if isinstance(m, ToolMessage)}
    for message in gone:
        if isinstance(message, AssistantMessage):
            if message.text.strip():
                lines.append(f"- you said: {_clip(message.text, 300)}")
            for call in message.calls:
                result = results.get(call.id)
                tail = f" → {_clip(result.text, 160)}" if result else ""
                lines.append(f"- {call.name}({_clip(call.arguments, 120)}){tail}")
        elif isinstance(message, UserMessage):
            lines.append(f"- you were told: {_clip(message.text, 300)}")
    return "\n".join(lines)


async def _summary(run: Run, gone: Sequence[Message]) -> tuple[str, Usage]:
    """What was dropped, in the small model's words; its outline if that fails."""
    asked = ModelRequest(
        system="You summarise conversations of an agent with its tools.",
        messages=(UserMessage(text=f"{_outline(gone)}\n\n{SUMMARISE}"),),
        timeout=run.limits.model_timeout,
    )
    try:
        reply = await complete(run, asked)
    except ModelError:
        return _outline(gone), Usage()
    return f"[Earlier turns, summarised to save space:]\n{reply.message.text}", reply.usage


async def complete(run: Run, asked: ModelRequest) -> Reply:
    """One answer of the cheap model, charged to this run."""
    run.budget.begin_turn(run.id)
    reply: Reply | None = None
    stream = run.small().stream(asked)
    async with aclosing(stream):
        async for item in stream:
            if isinstance(item, Reply):
                reply = item
    if reply is None:
        raise ModelError("the model ended its stream without a reply", kind="protocol")
    run.budget.charge_usage(reply.usage)
    return reply


def _clip(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def partial(run: Run) -> str:
    """The work so far of a run that did not get to its report."""
    streamed = "".join(run.streamed).strip()
    said = run.state.last_text.strip()
    if streamed or said:
        return "\n\n".join(part for part in (said, streamed) if part)
    done = [m for m in run.state.messages if isinstance(m, ToolMessage) and not m.is_error]
    done += [m for m in run.state.results.values() if not m.is_error]
    if not done:
        return ""
    lines = [f"- {m.name}: {_clip(m.text, 400)}" for m in done[-8:]]
    return "No answer was written. Results so far:\n" + "\n".join(lines)


def check_sources(run: Run, text: str) -> Checked:
    """What an answer cites and quotes, held against what this run and its children fetched and read."""
    state = run.state

    def look_up(source: Source) -> str | None:
        for path in (source.saved_as, source.path):
            if path:
                with suppress(ToolError):
                    return run.files.read_bytes(path).decode("utf-8", "replace")
        return state.source_texts.get(source.url or "")

    told = [message.text for message in state.messages if not isinstance(message, AssistantMessage)]
    return check(text, state.sources, look_up, known=told[:1])


def all_sources(run: Run, checked: Checked) -> tuple[Source, ...]:
    """The cited ones first, as they were cited; then the pages that were fetched and not cited."""
    found = list(checked.text_sources)
    urls = {source.url for source in found}
    for source in run.state.sources:
        if source.url and source.url not in urls:
            urls.add(source.url)
            found.append(source)
    return tuple(found)
