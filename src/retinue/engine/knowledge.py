"""External knowledge first: before a root's first step, the knowledge agent looks the question up.

Its report enters the root's conversation as one section, with its sources. If it fails, or takes longer
than `knowledge.timeout`, the root goes on without it, lacks nothing for that, and its report says so. A whole
answer that rests on nothing private is kept for a while, so the same question does not cost twice. Where a
rule denies the agent, or asks about it, nothing is looked up.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from retinue.delegate import ChildRequest
from retinue.engine.tools_shown import agent_call
from retinue.errors import Fenced, StoreError, ToolError, in_words
from retinue.events import KNOWLEDGE_FIRST as CALL
from retinue.events import AccessDenied, AnyEvent, ChildStarted, Knowledge, MessageReceived, RunStarted
from retinue.fold import KNOWLEDGE_TITLE
from retinue.reports import cut_with_notice, frame, verified
from retinue.run import Run
from retinue.settings import Settings
from retinue.store.base import Store
from retinue.types import AgentSpec, Report, Source

if TYPE_CHECKING:
    from retinue.engine.children import Children

log = logging.getLogger("retinue")


class _Section(Struct, frozen=True, kw_only=True):
    """What enters the conversation, and what it rests on: the main agent may cite it."""

    text: str
    sources: tuple[Source, ...] = ()
    knowledge: Knowledge | None = None


def first_agent(spec: AgentSpec, question: str, settings: Settings) -> str | None:
    """The knowledge agent, if it is to look this question up before an agent begins."""
    agent = settings.knowledge.agent
    if not settings.knowledge.first or spec.name != settings.default_agent or agent == spec.name:
        return None
    from retinue.tools.knowledge.trigger import needs_knowledge

    return agent if needs_knowledge(question) else None


async def knowledge_first(children: Children, run: Run, spec: AgentSpec) -> None:
    """Does nothing the second time, so a run that is resumed does not ask again."""
    if CALL in run.state.seen_messages or run.state.turns or run.state.started is None:
        return
    # Nobody is asked before a run's first step: what a rule asks about is left to its model.
    verdict = run.authority.rules.judge(agent_call(spec.name, run.spec.name, run.path[:-1]))
    if verdict.by_rule and verdict.action != "allow":
        run.log.write(AccessDenied, what=spec.name, detail=verdict.why, call_id=CALL)
        return
    question = run.state.started.prompt
    settings, store = children.tree.config.settings, children.tree.config.store
    key = _key(spec, settings, run.state.started)
    kept = await store.cached(CALL, key)
    if kept is not None:
        section = msgspec.msgpack.decode(kept[0], type=_Section)
    else:
        report = await _look_up(children, run, spec, question)
        if report is None or not _usable(report):
            return
        text = cut_with_notice(report.text, settings.context.knowledge_tokens * 4, f"run {report.run_id}")
        section = _Section(
            text=f"{KNOWLEDGE_TITLE}{spec.name} looked this up before you began:\n{frame(report, text)}",
            sources=verified(report),
            knowledge=Knowledge(run_id=report.run_id, agent=spec.name, turns=report.turns, text=text),
        )
        # What rests on private data is for this run alone: no other one would know that it has read some.
        if settings.knowledge.cache_ttl > 0 and not report.incomplete and not run.state.reads():
            await store.cache(CALL, key, msgspec.msgpack.encode(section), settings.knowledge.cache_ttl)
    run.log.write(
        MessageReceived,
        text=section.text,
        sender="system",
        message_id=CALL,
        sources=section.sources,
        about="knowledge",
        knowledge=section.knowledge,
    )


async def keep_recorded(store: Store, spec: AgentSpec, settings: Settings, log: Iterable[AnyEvent]) -> None:
    """Before a root is replayed: what it had from the cache and not from a child of its own."""
    began, section = None, None
    for event in log:
        if isinstance(event, RunStarted):
            began = event
        elif isinstance(event, ChildStarted) and event.call_id == CALL:
            return
        elif isinstance(event, MessageReceived) and event.message_id == CALL:
            section = _Section(text=event.text, sources=event.sources, knowledge=event.knowledge)
    if section is not None and began is not None:
        await store.cache(CALL, _key(spec, settings, began), msgspec.msgpack.encode(section), 3600)


def _usable(report: Report) -> bool:
    """Whether there is something to go on. Unfinished work is, if it rests on what was really read: hits of a
    search are not."""
    read = any(not source.listed for source in verified(report))
    return report.ok and bool(report.text.strip()) and (not report.incomplete or read)


def _key(spec: AgentSpec, settings: Settings, began: RunStarted) -> str:
    """All that an answer depends on. The name of an agent says little: each project may have its own."""
    whole = ["public", spec, msgspec.to_builtins(settings.knowledge), began.model, began.prompt]
    return hashlib.sha256(msgspec.json.encode(whole)).hexdigest()


async def _look_up(children: Children, run: Run, spec: AgentSpec, question: str) -> Report | None:
    spec = msgspec.structs.replace(spec, timeout=children.tree.config.settings.knowledge.timeout)
    try:
        child = await children.start(
            run.id, ChildRequest(spec=spec, prompt=question, call_id=CALL, label="external knowledge")
        )
        return await children.wait(run.id, child)
    except ToolError:
        return None
    except (Fenced, StoreError):
        raise
    except Exception as error:  # its model is not to be had, or it cannot be built
        log.warning("%s: %s could not look this up first: %s", run.id, spec.name, in_words(error))
        return None
