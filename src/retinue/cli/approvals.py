"""`retinue approvals`: questions that wait for a person, answered from elsewhere or after a restart."""

from __future__ import annotations

import asyncio
import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinue.cli import exits
from retinue.cli import options as o
from retinue.cli.root import new_group

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.events import ApprovalRequested, Decision

app = new_group(
    "Questions that wait for a person.",
    (
        "approvals list",
        "approvals answer r1m7 approve",
        'approvals answer r1m7 reject --reason "use the staging database"',
        "approvals kept",
    ),
)
LOOKS = 30
"""How often to look whether an answer was taken, a tenth of a second apart."""
DECISIONS: dict[str, Decision] = {
    "approve": "approve",
    "approve-run": "approve_run",
    "approve-tool": "approve_tool",
    "approve-always": "approve_always",
    "reject": "reject",
}


@app.command("list")
def list_approvals(db: o.Db = None, json: o.Json = False) -> int:
    """List what waits for an answer, oldest first.

    \b
    Examples:
      retinue approvals list
      retinue approvals list --json | jq -r .approval_id
    """
    from retinue.cli.opening import with_retinue
    from retinue.view.commands import command
    from retinue.view.paint import note, out_json

    async def waiting(retinue: Retinue) -> tuple[list[ApprovalRequested], set[str]]:
        found = await retinue.approvals()
        sent = [each for each in found if await retinue.store.signal(each.root_id, each.approval_id)]
        return found, {each.approval_id for each in sent}

    found, answered = with_retinue(db, waiting)
    if json:
        from retinue.events import encode

        for asked in found:
            out_json(encode(asked).decode())
        return exits.OK
    for asked in found:
        _print(asked)
        if asked.approval_id in answered:
            note(
                f"  answered; it counts when the run is resumed: {command(f'runs resume {asked.root_id}')}",
                "yellow",
            )
    if not found:
        note("nothing waits for an answer", "dim")
    return exits.OK


def _print(asked: ApprovalRequested) -> None:
    from retinue.view.paint import columns, put
    from retinue.view.question import RISK_STYLE, content
    from retinue.view.words import ago, one_line

    body = content(asked, (columns(sys.stdout) if sys.stdout.isatty() else 10_000) - 4)
    more = len(body) - 8
    put(
        [
            [(asked.approval_id, "bold")],
            [
                ("  ", ""),
                (" › ".join(map(one_line, asked.path)), ""),
                (f" wants to use {asked.tool}", ""),
                (f"  risk {asked.risk}", RISK_STYLE[asked.risk]),
                (f"  {ago(asked.at)}", "dim"),
            ],
            *([[("  rule: ", "dim"), (one_line(asked.rule), "")]] if asked.rule else []),
            *([("    ", ""), *line] for line in (body[:8] if more > 0 else body)),
            *([[(f"    … {more} more lines: --json shows all", "dim")]] if more > 0 else []),
            [("", "")],
        ],
        sys.stdout,
    )


@app.command("answer")
def answer_approval(
    approval: Annotated[
        str, typer.Argument(metavar="ID", help="Its id, or the beginning of one.", show_default=False)
    ],
    decision: Annotated[
        Literal["approve", "approve-run", "approve-tool", "approve-always", "reject"],
        typer.Argument(help="What you say.", show_default=False),
    ],
    reason: Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="The agent is told.")] = "",
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="Run it with these arguments instead.")
    ] = None,
    db: o.Db = None,
) -> int:
    """Answer a question. The first answer wins; a later one is told so (exit code 4).

    "approve" is for this one call. "approve-run" is also for what its rule covers in the rest of the run,
    "approve-tool" for every further call of the tool in it, "approve-always" for what the rule covers from
    now on in this folder; 'retinue approvals list' shows the rule. Each also answers what waits already.

    \b
    Examples:
      retinue approvals answer r1m7 approve
      retinue approvals answer r1m7 reject --reason "use the staging database"
      retinue approvals answer r1m7 approve --arguments '{"command": "make test"}'
    """
    from retinue.cli.opening import with_retinue

    _check(decision, arguments)

    async def answer(retinue: Retinue) -> int:
        from retinue.view.commands import command
        from retinue.view.paint import note

        asked = await _find(retinue, approval)
        if asked is None:
            note(f"retinue: {approval} was answered before", "yellow")
            return exits.REFUSED
        _fit(retinue, asked, arguments)
        said = DECISIONS[decision]
        given = await retinue.answer(asked.approval_id, said, reason=reason, arguments=arguments)
        if not given:
            note(f"retinue: {asked.approval_id} was answered before", "yellow")
            return exits.REFUSED
        if said == "approve_always":
            note(f"allowed in that folder from now on: {asked.rule}", "dim")
        if given.also:
            note(f"approved too: {len(given.also)} waiting of {asked.tool}", "dim")
        if await _taken(retinue, asked.root_id, asked.approval_id):
            note(f"{decision}: {asked.tool}. The run goes on.", "dim")
        else:
            note(
                f"{decision}: {asked.tool}. No process took it yet; it counts when the run is resumed: "
                f"{command(f'runs resume {asked.root_id}')}",
                "yellow",
            )
        return exits.OK

    return with_retinue(db, answer)


@app.command("kept")
def list_kept(json: o.Json = False) -> int:
    """List the rules that were approved always, with the folder that each counts in.

    \b
    Examples:
      retinue approvals kept
      retinue approvals kept --json | jq -r .rule
    """
    from retinue import settings
    from retinue.reading import real_path
    from retinue.view.paint import note, out, out_json
    from retinue.view.words import one_line

    kept = settings.read_user_file().kept
    for entry in kept.entries:
        here = kept.of_folder(Path(entry.folder)) == entry.rules
        for rule in entry.rules:
            if json:
                out_json(json_format.dumps({"folder": entry.folder, "rule": rule, "counts": here}))
            else:
                gone = "" if here else "  (that folder is gone; another one of its name is asked about)"
                out(f"{one_line(rule)}  in {one_line(real_path(entry.folder))}{gone}")
    if not kept.entries and not json:
        note("no rule is kept", "dim")
    return exits.OK


@app.command("forget")
def forget_kept(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="As 'kept' shows it.", show_default=False)],
    cwd: o.Cwd = None,
) -> int:
    """Ask again about what a rule covers that was approved always in this folder.

    \b
    Examples:
      retinue approvals forget "bash(make test)"
      retinue approvals forget "bash(make test)" --cwd ~/work/shop
    """
    from retinue import settings
    from retinue.errors import ConfigError
    from retinue.settings.toml_file import forget_rule
    from retinue.view.paint import note

    folder = (cwd or Path()).absolute()
    if not forget_rule(folder, rule):
        known = settings.read_user_file().kept.of_folder(folder)
        raise ConfigError(
            f"no rule {rule!r} is kept for {folder}",
            fix=settings.similar(rule, known) or "'retinue approvals kept' lists them",
        )
    note(f"{rule} is asked about again in {folder}", "green")
    return exits.OK


async def _taken(retinue: Retinue, root_id: str, approval_id: str) -> bool:
    """Whether the process that runs it takes the answer soon."""
    for _ in range(LOOKS):
        if not any(one.approval_id == approval_id for one in await retinue.store.waiting(root_id)):
            return True
        await asyncio.sleep(0.1)  # another process writes it: there is nothing to await
    return False


def _check(decision: str, arguments: str | None) -> None:
    from retinue.errors import ConfigError

    if arguments is None:
        return
    if decision == "reject":
        raise ConfigError("--arguments goes with approve or approve-run, not with reject")
    try:
        value = json_format.loads(arguments)
    except ValueError as error:
        raise ConfigError(f"--arguments is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError("--arguments must be one JSON object", fix='for example \'{"command": "ls"}\'')


async def _answered(retinue: Retinue, text: str) -> bool:
    """Whether an answer to this question, or to one that begins so, was given before."""
    from retinue.cli.opening import beginning_with

    roots = {row.root_id for row in await beginning_with(retinue.store, text.partition(":")[0])}
    signals = [signal for root_id in roots for signal in await retinue.store.signals(root_id)]
    return any(signal.kind == "answer" and signal.key.startswith(text) for signal in signals)


def _fit(retinue: Retinue, asked: ApprovalRequested, arguments: str | None) -> None:
    """Arguments that the tool cannot take would use the question up for nothing."""
    from retinue.errors import ConfigError, ToolError

    tool = retinue.tools.get(asked.tool)
    if arguments is None or tool is None:
        return
    try:
        tool.parse(arguments)
    except ToolError as error:
        raise ConfigError(str(error), fix="the question is still open: answer again") from None


async def _find(retinue: Retinue, text: str) -> ApprovalRequested | None:
    """The waiting question a person means; None if it was answered before."""
    from retinue.errors import ConfigError

    waiting = await retinue.approvals()
    found = [asked for asked in waiting if asked.approval_id == text] or [
        asked for asked in waiting if asked.approval_id.startswith(text)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f"{text!r} is the beginning of {len(found)} waiting questions", fix="write more of the id"
        )
    if await _answered(retinue, text):
        return None
    raise ConfigError(f"no question {text!r} waits for an answer", fix="'retinue approvals list' shows them")
