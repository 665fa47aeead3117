"""Options that several commands share, each written down once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def _told_cwd(value: Path | None) -> Path | None:
    """What is named to be typed next is for the same folder."""
    from retinue.view.commands import given_cwd

    given_cwd(None if value is None else str(value))
    return value


def _told_db(value: str | None) -> str | None:
    from retinue.view.commands import given_db

    given_db(value)
    return value


Cwd = Annotated[
    Path | None,
    typer.Option(
        "--cwd", metavar="DIR", help="Work in this folder instead of the current one.", callback=_told_cwd
    ),
]
Db = Annotated[
    str | None,
    typer.Option(
        "--db", metavar="URL", help="The database: sqlite:///path or postgresql://…", callback=_told_db
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RunId = Annotated[
    str, typer.Argument(metavar="ID", help="A run's id, the beginning of one, or 'last'.", show_default=False)
]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME", help="provider:model, a server's address, or 'offline'."),
]
ModelChain = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        help="provider:model, an address, or 'offline'; repeated: the next if one fails for good.",
    ),
]
SmallModel = Annotated[
    str | None,
    typer.Option("--small-model", metavar="NAME", help="A cheaper model for helpers and summaries."),
]
Effort = Annotated[
    Literal["low", "medium", "high"] | None,
    typer.Option("--effort", help="How hard the models think, where they can be told."),
]
MaxTurns = Annotated[
    int | None, typer.Option("--max-turns", metavar="N", min=1, help="Model calls the agent may make.")
]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="How long it may take: 90, 90s, 10m, 1h.")
]
MaxCost = Annotated[
    float | None,
    typer.Option("--max-cost", metavar="USD", help="US dollars the whole tree may cost, more than 0."),
]
Policy = Annotated[
    Literal["flat", "nested"] | None,
    typer.Option("--policy", help="flat: only the root delegates. nested: children may too."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve all that no rule denies or asks about.")]
Sandbox = Annotated[
    bool,
    typer.Option("--sandbox", help="Run commands in the sandbox: they write in the project only (Linux)."),
]
WaitApprovals = Annotated[
    bool,
    typer.Option(
        "--wait-approvals",
        help="Without a terminal: wait for 'retinue approvals answer' instead of refusing.",
    ),
]
WaitLimits = Annotated[
    bool,
    typer.Option("--wait-limits", help="Wait until a limit of the provider resets, instead of ending there."),
]
ReportJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON, and nothing else.")]
Messages = Annotated[
    bool, typer.Option("--messages", help="With --json: every conversation as well, of all agents.")
]
Events = Annotated[bool, typer.Option("--events", help="Print every event as a line of JSON.")]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="MODULE:FUNCTION",
        help="A function of yours as a tool, or 'file.py:function'; repeatable.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress and no summary, only the answer.")
]
Attach = Annotated[
    list[Path] | None,
    typer.Option("--attach", "-a", metavar="FILE", help="A picture, text, PDF or spreadsheet; repeatable."),
]
Input = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="KEY=VALUE", help="A further input of the agent; repeatable."),
]
StrictSources = Annotated[
    bool, typer.Option("--strict-sources", help="Exit with 3 if a source was never read, or does not say it.")
]
Sources = Annotated[
    bool, typer.Option("--sources", help="Show for each cited sentence what its source says to it.")
]
ShowPrompt = Annotated[
    bool, typer.Option("--show-prompt", help="Show on stderr what the model is told at the start.")
]
Label = Annotated[
    str, typer.Option("--label", metavar="TEXT", help="A name for this run in lists.", show_default=False)
]
