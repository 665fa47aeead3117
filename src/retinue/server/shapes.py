"""From Retinue's own structs to what the API shows. Pure, but for rendering Markdown."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from retinue.events import ApprovalRequested
from retinue.server import markdown
from retinue.server.models import (
    ApprovalOut,
    ClaimOut,
    ReportOut,
    RunOut,
    ShortfallOut,
    SourceOut,
    Total,
    UncoveredOut,
    UsageOut,
)
from retinue.store.base import RunRow
from retinue.types import Report, Source

_OWN = tuple(name for name in RunOut.model_fields if name in RunRow.__struct_fields__)


def run(row: RunRow) -> RunOut:
    own = {name: getattr(row, name) for name in _OWN}
    return RunOut(
        **own,
        metadata=row.metadata,
        total=total(row),
        shortfall=ShortfallOut(**msgspec.structs.asdict(row.shortfall)),
    )


def total(row: RunRow) -> Total:
    """What a run and everything below it used."""
    return Total(
        runs=row.tree_runs,
        turns=row.tree_turns,
        tool_calls=row.tree_tool_calls,
        input_tokens=row.tree_input_tokens,
        output_tokens=row.tree_output_tokens,
        cost=row.tree_cost,
        waiting=row.waiting,
    )


async def report(one: Report) -> ReportOut:
    usage = UsageOut(**one.usage.to_dict())
    return ReportOut(
        run_id=one.run_id,
        status=one.status,
        text=one.text,
        html=await markdown.render(one.text),
        agent=one.agent,
        format=one.format,
        label=one.label,
        depth=one.depth,
        turns=one.turns,
        tool_calls=one.tool_calls,
        failed_calls=one.failed_calls,
        usage=usage,
        duration_ms=one.duration_ms,
        sources=[_source(each) for each in one.sources],
        problems=list(one.problems),
        problems_of_sources=one.problems_of_sources,
        claims=[ClaimOut(**msgspec.to_builtins(each)) for each in one.claims],
        uncited=one.uncited,
        uncited_at=list(one.uncited_at),
        files=list(one.files),
        incomplete=one.incomplete,
        error=one.error,
        data=one.data,
        model=one.model,
        effort=one.effort,
        ended_by=one.ended_by,
        outcome=one.outcome,
        shortfall=ShortfallOut(**msgspec.structs.asdict(one.shortfall)),
        read=[_source(each) for each in one.read],
        at_work=one.at_work,
    )


def _source(one: Source) -> SourceOut:
    return SourceOut(**{name: getattr(one, name) for name in SourceOut.model_fields})


def approval(asked: ApprovalRequested) -> ApprovalOut:
    return ApprovalOut(
        approval_id=asked.approval_id,
        run_id=asked.run_id,
        root_id=asked.root_id,
        depth=asked.depth,
        at=asked.at,
        path=list(asked.path),
        tool=asked.tool,
        effect=asked.effect,
        risk=asked.risk,
        reason=asked.reason,
        arguments=asked.arguments,
        preview=asked.preview,
        is_diff=is_diff(asked.preview),
        call_id=asked.call_id,
        answer_by=asked.answer_by,
        rule=asked.rule,
        answers=list(asked.answers),
        form=asked.form,
        uncovered=None if asked.uncovered is None else UncoveredOut(**structs.asdict(asked.uncovered)),
    )


def is_diff(text: str) -> bool:
    return text.startswith("--- ") and "\n+++ " in text and "\n@@ " in text


def plain(value: Any) -> Any:
    """A struct as JSON values."""
    return msgspec.json.decode(msgspec.json.encode(value))  # `to_builtins` leaves tuples as they are
