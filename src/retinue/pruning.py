"""A history that fits: which turns are dropped, and what stays of them.

Called by `loop` before a step, and by `modelcall` where a provider says that there is too much.
"""

from __future__ import annotations

from collections.abc import Sequence

from retinue import digest
from retinue.errors import ModelError, RetinueError, unwind
from retinue.events import HistoryPruned
from retinue.run import Run
from retinue.settings import ContextSettings
from retinue.small_call import complete, patience, paying
from retinue.types import AssistantMessage, Message, ModelRequest, Usage, UserMessage

SUMMARISED_FROM = 60_000
SUMMARISED_EACH = 4_000
"""Characters of dropped turns that a model is shown to sum them up, and of one result in them."""
SUMMARISE = (
    "Summarise the conversation so far for yourself, so that the work can go on from your summary alone: "
    "the task, what was found (keep names, paths, numbers, URLs), what was decided, what is left to do."
)


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
        timeout=patience(run),
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
