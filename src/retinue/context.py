"""What the model is shown: the system prompt, and the request of each step.

Called by the loop and by whoever starts a run. Changes nothing but through events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from retinue import reports
from retinue.events import PromptPart, Purpose, RunStarted
from retinue.fold import KNOWLEDGE_TITLE
from retinue.run import Run, SystemPrompt
from retinue.run_log import storable
from retinue.settings import ContextSettings
from retinue.small_call import patience
from retinue.types import AgentSpec, ModelRequest, ToolSpec, UserMessage

FINAL = (
    "You cannot use tools any more ({reason}). Write the report now from what you have found so far. "
    "Say plainly what is missing or uncertain."
)
FORM = "Your final answer must be JSON alone, no other text, that fits this JSON schema:\n"
SCARCE = 16_000
"""Output tokens: when no more than these are left, the model is told not to write more."""


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
        timeout=patience(run, asks.timeout),
        effort=asks.effort,
        settings=asks,
    )


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
