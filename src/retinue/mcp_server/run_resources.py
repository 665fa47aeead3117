"""Runs as resources: the report at `retinue://runs/ID`, its fields and what was done below that."""

from __future__ import annotations

import json
import re

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from retinue.engine.shown import told_with_log
from retinue.errors import ConfigError
from retinue.mcp_server.account import standing_line
from retinue.mcp_server.caller import Caller
from retinue.mcp_server.hosted import HostedRuns
from retinue.store.base import RunFilter, RunRow
from retinue.view import words
from retinue.view.transcript import Transcript

PAGE = 50
MOST_PAGES = 10
"""Pages of runs that are looked through for those of one folder and one caller."""
WIDTH = 110
ADDRESS = re.compile(r"retinue://runs/([A-Za-z0-9_-]{1,64})(/transcript|/report\.json)?")


class RunReadings:
    def __init__(self, hosted: HostedRuns) -> None:
        self._hosted = hosted

    async def list(self, caller: Caller, cursor: str | None) -> ListResourcesResult:
        """The newest runs of this folder that the caller may reach, in pages."""
        before, before_id = _read_cursor(cursor) if cursor else (None, None)
        found: list[Resource] = []
        for _ in range(MOST_PAGES):
            which = RunFilter(roots_only=True, before=before, before_id=before_id, limit=PAGE)
            rows = await self._hosted.retinue.shown.runs(which)
            for row in rows:
                before, before_id = row.created_at, row.run_id
                if await self._hosted.reaches(caller, row):
                    found.append(_listed(row))
                if len(found) == PAGE:
                    return ListResourcesResult(resources=found, next_cursor=f"{before!r}~{before_id}")
            if len(rows) < PAGE:
                break
        return ListResourcesResult(resources=found)

    async def templates(self) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(
                    name="report",
                    uri_template="retinue://runs/{run_id}",
                    description="the report of a run, or how it stands",
                    mime_type="text/markdown",
                ),
                ResourceTemplate(
                    name="fields",
                    uri_template="retinue://runs/{run_id}/report.json",
                    description="the report with its sources, usage and shortfall",
                    mime_type="application/json",
                ),
                ResourceTemplate(
                    name="transcript",
                    uri_template="retinue://runs/{run_id}/transcript",
                    description="what the run did, step by step",
                    mime_type="text/plain",
                ),
            ]
        )

    async def read(self, caller: Caller, uri: str) -> ReadResourceResult:
        match = ADDRESS.fullmatch(uri)
        if match is None:
            raise MCPError(INVALID_PARAMS, f"no resource {uri[:200]!r}: they are retinue://runs/RUN_ID")
        try:
            row = await self._hosted.find(caller, match[1])
        except ConfigError as error:
            raise MCPError(INVALID_PARAMS, f"no resource {uri!r}: {error}") from None
        kind = match[2] or ""
        text = await {"": self._report, "/transcript": self._transcript, "/report.json": self._fields}[kind](
            row
        )
        mime = {"": "text/markdown", "/transcript": "text/plain", "/report.json": "application/json"}[kind]
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=mime, text=text)])

    async def _report(self, row: RunRow) -> str:
        account = await self._hosted.account(row.run_id)
        report = account.report
        if report is None:
            return standing_line(account)
        return report.text or report.error or report.incomplete or ""

    async def _fields(self, row: RunRow) -> str:
        account = await self._hosted.account(row.run_id)
        if account.report is None:
            root = account.story.root
            stands = {"run_id": row.run_id, "status": root.status if root is not None else "pending"}
            return json.dumps({**stands, "text": standing_line(account)}, ensure_ascii=False)
        fields = {**account.report.to_dict(), "children": account.children()}
        return json.dumps(fields, ensure_ascii=False, default=str)

    async def _transcript(self, row: RunRow) -> str:
        shown = await self._hosted.retinue.shown.run(row.run_id) or row
        story, events = await told_with_log(self._hosted.retinue.store, shown)
        lines = Transcript(width=WIDTH, full=True, tree=story).of(events)
        return "\n".join("".join(piece for piece, _ in line).rstrip() for line in lines)


def _listed(row: RunRow) -> Resource:
    task = words.one_line(row.task, 80)
    return Resource(
        uri=f"retinue://runs/{row.run_id}",
        name=row.run_id,
        title=f"{row.agent}: {task}",
        description=f"{row.outcome}, {words.moment(row.created_at)}",
        mime_type="text/markdown",
    )


def _read_cursor(cursor: str) -> tuple[float, str]:
    moment, _, run_id = cursor.partition("~")
    try:
        created = float(moment)
    except ValueError:
        created = float("nan")
    if not 0 <= created <= 1e12 or not run_id or len(run_id) > 64:
        raise MCPError(INVALID_PARAMS, "this cursor was not given out here: begin without one")
    return created, run_id
