"""What a program hands in, looked over when it is: tools, agents, attachments. Called by the app alone.

A mistake is told at once and with what to write: an agent that names a tool which nobody has would work
without it, and nobody would know why. Agents of files are read by `agents`, which does the same for them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from pathlib import Path

from retinue.agents.toolnames import NAME, RESERVED
from retinue.attachments import Attachment, attach, attach_bytes, attach_image
from retinue.authority.rules import parse_rule
from retinue.builtin_tools import BUILT_IN
from retinue.errors import ConfigError
from retinue.parameters import listed, shown
from retinue.tools.base import Tool, as_tool
from retinue.tools.schemas import schema_fault
from retinue.tools.sheets import Workbook
from retinue.types import (
    AgentSpec,
    AssistantMessage,
    Image,
    Limits,
    Message,
    ToolMessage,
    ToolNames,
    UserMessage,
)


def check_approve(approve: object) -> None:
    if approve is not None and not callable(approve):
        raise ConfigError(
            f"approve is {type(approve).__name__}, not a function",
            fix="give a function of a question that returns an Answer, or yes=True to approve everything",
        )


def one_of(what: str, given: object, *needs: str) -> None:
    """Raise for an object that is neither text nor None nor has what is needed."""
    if given is None or isinstance(given, str) or all(hasattr(given, name) for name in needs):
        return
    raise TypeError(
        f"{what} is {type(given).__name__}: give a name, or an object with {' and '.join(map(repr, needs))}"
    )


def workbooks_of(files: Iterable[Attachment]) -> tuple[Workbook, ...]:
    return tuple(each.workbook for each in files if each.workbook is not None)


def own_history(given: object) -> tuple[Message, ...]:
    """What was said before, elsewhere. A log with anything else in it could never be read again."""
    found = listed("history", given, "messages, or what 'from_openai' returns")
    for place, each in enumerate(found):
        if not isinstance(each, UserMessage | AssistantMessage | ToolMessage):
            raise TypeError(
                f"message {place} of the history is {shown(each)}: give UserMessage, AssistantMessage and "
                "ToolMessage; for messages of other libraries from_openai(messages) or "
                "from_anthropic(messages) of retinue.histories"
            )
        for image in () if isinstance(each, AssistantMessage) else each.images:
            image.checked()
    return found


async def own_attachments(given: object, cwd: Path, project: Path | None) -> list[Attachment]:
    """What is attached, read where it is given as a path: from `cwd`, as the program's other paths. A file of
    the `project` has to be in there really."""
    found: list[Attachment] = []
    for each in listed("attachments", given, "paths, pictures, or of what 'attach' returns"):
        if isinstance(each, str) and each.startswith(("https://", "http://")):
            found.append(attach_image(Image.from_url(each)))
        elif isinstance(each, str | Path):
            found.append(await attach(cwd / each, project=project))
        elif isinstance(each, bytes):
            found.append(await attach_bytes("picture", each))
        elif isinstance(each, Image):
            found.append(attach_image(each))
        elif isinstance(each, Attachment):
            found.append(each)
        else:
            raise TypeError(
                f"attachments holds {shown(each)}: give a path, an Image, or what 'attach' returns"
            )
    return found


def with_inner(given: object) -> tuple[AgentSpec, ...]:
    """The program's own agents, with those that are tools of one of them."""
    named = listed("agents", given, "AgentSpec")
    for spec in named:
        if not isinstance(spec, AgentSpec):
            raise TypeError(f"{spec!r} is no agent: give an AgentSpec")
    agents = [*named]
    for spec in named:
        for each in _given_to(spec):
            if isinstance(each, AgentSpec) and each not in agents:
                agents.append(each)
    return tuple(agents)


def _given_to(spec: AgentSpec) -> tuple[object, ...]:
    return spec.tools.given if isinstance(spec.tools, ToolNames) else ()


def own_tools(given: object, agents: Iterable[AgentSpec] = ()) -> tuple[Tool, ...]:
    """The program's own tools, each by a name of its own; those that were given to its agents among them."""
    every = [*listed("tools", given, "functions or tools")]
    for spec in agents:
        for each in _given_to(spec):
            if not isinstance(each, AgentSpec) and not any(each is other for other in every):
                every.append(each)
    tools = tuple(map(as_tool, every))
    names: set[str] = set()
    for tool in tools:
        if tool.name in names:
            raise ConfigError(
                f"two tools are named {tool.name!r}", fix="give one of them another: '@tool(name=…)'"
            )
        if tool.name in BUILT_IN:
            raise ConfigError(
                f"{tool.name!r} is a tool of Retinue's own", fix="give yours another name: '@tool(name=…)'"
            )
        names.add(tool.name)
    return tools


def own_agents(
    agents: tuple[AgentSpec, ...], tools: Collection[str], others: Callable[[], Collection[str]]
) -> tuple[AgentSpec, ...]:
    """The program's own agents. `others` are the agents of files, which are only looked for if need be."""
    names: set[str] = set()
    for spec in agents:
        if spec.name in names:
            raise ConfigError(f"two agents are named {spec.name!r}", fix="give one of them another name")
        names.add(spec.name)
    for spec in agents:
        check_agent(spec, {*tools, *names}, tools, others)
    return agents


def check_agent(
    spec: AgentSpec, known: Collection[str], tools: Collection[str], others: Callable[[], Collection[str]]
) -> None:
    """Raise for a name that cannot be used, a tool that nobody has, anything else that means nothing."""
    if not NAME.fullmatch(spec.name):
        raise ConfigError(
            f"the name {spec.name[:80]!r} cannot be used: letters, digits, '-', '_' and '.', at most 64",
            fix=f"for example {re.sub(r'[^A-Za-z0-9]+', '-', spec.name).strip('-')[:64] or 'my-agent'!r}",
        )
    if spec.name in RESERVED or spec.name in tools:
        raise ConfigError(f"{spec.name!r} is the name of a tool", fix="give the agent another name")
    for field in ("tools", "disallowed_tools", "shown"):
        for name in getattr(spec, field) or ():
            _check_tool(name, f"{field} of {spec.name}", known, others)
    for rule in spec.deny:
        parse_rule(rule)
        if rule.count("(") != rule.count(")"):
            raise ConfigError(f"cannot read the rule {rule!r}", fix="write it like 'bash(git status*)'")
    for field in ("input_schema", "output_schema"):
        schema = getattr(spec, field)
        fault = None if schema is None else schema_fault(schema)
        if fault is not None:
            raise ConfigError(f"{field} of {spec.name} is no usable JSON schema: {fault}")
    for field in ("max_turns", "max_tokens", "timeout"):
        check_limit(f"{field} of {spec.name}", getattr(spec, field))
    check_limits(spec.limits, f" of {spec.name}")


def check_limits(limits: Limits, whose: str = "") -> None:
    """Raise for a limit that nothing can be done within. No children at all is one to work with."""
    for field in limits.__struct_fields__:
        check_limit(f"limits.{field}{whose}", getattr(limits, field), none_at_all=field == "children")


def check_limit(what: str, number: float | None, *, none_at_all: bool = False) -> None:
    if number is None or 0 < number < math.inf or (none_at_all and number == 0):
        return
    least = "0 or more" if none_at_all else "more than 0"
    raise ConfigError(f"{what} is {number}", fix=f"give {least}, or None for no limit")


def _check_tool(name: str, where: str, known: Collection[str], others: Callable[[], Collection[str]]) -> None:
    if name in known or name in RESERVED or name.startswith("mcp__"):
        return
    if any(name in built_in.aliases for built_in in BUILT_IN.values()):
        return
    if any(sign in name for sign in "*?["):
        return
    found = others()
    if name in found:
        return
    near = get_close_matches(name, [*known, *found, *RESERVED], 1)
    raise ConfigError(
        f"there is no tool and no agent {name!r} ({where})",
        fix=f"did you mean {near[0]!r}?" if near else "give it to Retinue(tools=…) or Retinue(agents=…)",
    )
