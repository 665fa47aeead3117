"""What an MCP server has our small model write while a call runs (*sampling*), if `mcp.sampling` is `ask`.

A person sees all of what would be asked and says yes or no, each time. The model sees what the server wrote
and nothing of the run. It counts in the budget and in the cost of the run whose call it is. Called with what
the tools of a run are given, never by the loop.
"""

from __future__ import annotations

import asyncio
import time

from retinue.clock import say
from retinue.engine.inquiries import MOST_ASKED, inquire
from retinue.engine.questions import Questions
from retinue.errors import BudgetExhausted, Refused, ToolError, in_words, unwind
from retinue.events import ModelSampled
from retinue.run import Run
from retinue.run_log import storable
from retinue.small_call import complete, paying
from retinue.tools.base import FormQuestion, SampleRequest, Tool
from retinue.types import AssistantMessage, ModelRequest, Reply, ToolCall, UserMessage

SECONDS = 120.0
"""How long one may take, with all that is tried again."""
MOST = 20_000
"""Characters of what a server wants to have asked: a person is to see all of it."""


async def sample(questions: Questions, run: Run, tool: Tool, call: ToolCall, asked: SampleRequest) -> Reply:
    """What the small model wrote. Raises `ToolError` where nobody agreed, or nothing came of it."""
    shown = _shown(asked.request)
    if len(shown) > MOST:
        raise Refused(f"more than {MOST:,} characters are not asked for the sake of a server")
    question = FormQuestion(
        asker=asked.asker,
        text=f"may your model {run.small().name} write for it, up to {asked.request.max_tokens} tokens?",
        shown=shown,
    )
    said = await inquire(questions, run, tool, call, question)
    if said.action != "accept":
        nobody = f"nobody agreed, or this call has asked {MOST_ASKED} times by now"
        raise Refused(nobody if said.action == "cancel" else "the person said no")
    try:
        run.budget.check(run.id)
    except BudgetExhausted as error:
        unwind(error)
        raise Refused(f"the budget of the run is used up: {error}") from None
    return await _sampled(run, tool, call, asked)


async def _sampled(run: Run, tool: Tool, call: ToolCall, asked: SampleRequest) -> Reply:
    began = time.perf_counter()
    reply, why = None, ""
    with paying(run) as paid:
        try:
            async with asyncio.timeout(SECONDS):
                reply = await complete(run, asked.request, paid)
        except TimeoutError:
            why = f"no answer within {say(SECONDS)} s"
        except Exception as error:  # of a provider, or of a program's own model: the server is told
            why = in_words(error)
            unwind(error)
    await run.log.write(
        ModelSampled,
        call_id=call.id,
        tool=tool.name,
        server=asked.asker,
        text=storable(reply.message.text) if reply is not None else "",
        why=why,
        model=reply.model if reply is not None else run.small().name,
        usage=paid.usage,
        duration_ms=int((time.perf_counter() - began) * 1000),
    )
    if reply is None:
        raise ToolError(f"the model gave no answer: {why}")
    return reply


def _shown(request: ModelRequest) -> str:
    parts = [f"System: {request.system}"] if request.system else []
    for message in request.messages:
        if isinstance(message, UserMessage | AssistantMessage):
            parts.append(f"{'User' if isinstance(message, UserMessage) else 'Assistant'}: {message.text}")
    return "\n\n".join(["It wants to have this asked, and gets the answer:", *parts])
