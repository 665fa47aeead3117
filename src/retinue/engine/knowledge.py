"""External knowledge first: before a root's first step, the knowledge agent looks the question up.

Its report enters the root's conversation as one section. If it fails or takes too long, the root goes on
without it. An answer is kept for a while, so the same question does not cost twice.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from retinue.delegate import ChildRequest
from retinue.errors import ToolError
from retinue.events import MessageReceived
from retinue.reports import cut_with_notice, frame
from retinue.run import Run
from retinue.types import AgentSpec, Report

if TYPE_CHECKING:
    from retinue.engine.local import Workflow

CALL = "knowledge-first"
TITLE = "## External Knowledge"


async def knowledge_first(workflow: Workflow, run: Run, spec: AgentSpec) -> None:
    """Does nothing the second time, so a run that is resumed does not ask again."""
    if CALL in run.state.seen_messages or run.state.turns or run.state.started is None:
        return
    question = run.state.started.prompt
    settings, store = workflow.kit.settings, workflow.kit.store
    key = hashlib.sha256(f"{spec.name}\0{question}".encode()).hexdigest()
    kept = await store.cached(CALL, key)
    if kept is not None:
        section = kept[0].decode()
    else:
        report = await _look_up(workflow, run, spec, question)
        if report is None or not report.ok or not report.text.strip():
            return
        text = cut_with_notice(report.text, settings.limits.report_bytes, f"run {report.run_id}")
        section = f"{TITLE}\n{spec.name} looked this up before you began:\n{frame(report, text)}"
        await store.cache(CALL, key, section.encode(), settings.knowledge.cache_ttl)
    run.log.write(MessageReceived, text=section, sender="system", message_id=CALL)


async def _look_up(workflow: Workflow, run: Run, spec: AgentSpec, question: str) -> Report | None:
    try:
        child = await workflow.start(
            run.id, ChildRequest(spec=spec, prompt=question, call_id=CALL, label="external knowledge")
        )
        return await workflow.wait(run.id, child)
    except ToolError:
        return None
