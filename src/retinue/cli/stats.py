"""`retinue stats`: tokens, cost and time, by agent, model, day or outcome."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinue.cli import exits
from retinue.cli import options as o

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.store.base import Totals


def stats(
    by: Annotated[
        Literal["agent", "model", "day", "outcome"], typer.Option("--by", help="What to sum up by.")
    ] = "agent",
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Not older than: 2h, 7d, 2026-11-30.")
    ] = None,
    db: o.Db = None,
    json: o.Json = False,
) -> int:
    """Sum up what runs have used: tokens, money and time.

    \b
    Examples:
      retinue stats
      retinue stats --by day --since 30d
      retinue stats --by outcome
      retinue stats --by model --json
    """
    from retinue.cli.opening import with_retinue
    from retinue.cli.units import since as moment
    from retinue.view.paint import note, out_json

    begin = moment(since, what="--since") if since else None

    async def sums(retinue: Retinue) -> list[Totals]:
        return await retinue.shown.totals(by, since=begin, utc_offset=time.localtime().tm_gmtoff)

    totals = with_retinue(db, sums)
    if json:
        import msgspec

        for total in totals:
            out_json(msgspec.json.encode(total).decode())
    elif totals:
        _print(by, totals)
    else:
        note("no runs yet", "dim")
    return exits.OK


def _print(by: str, totals: list[Totals]) -> None:
    from retinue.view import words
    from retinue.view.paint import note
    from retinue.view.table import TableColumn, print_table

    heads = (
        TableColumn(title=by.upper(), flexible=True),
        TableColumn(title="RUNS", right=True),
        TableColumn(title="TURNS", right=True, rank=4),
        TableColumn(title="TOOLS", right=True, rank=5),
        TableColumn(title="IN", right=True, rank=3),
        TableColumn(title="OUT", right=True, rank=2),
        TableColumn(title="COST", right=True),
        TableColumn(title="TIME", right=True, rank=1),
    )
    rows = [
        [
            (one.key or "?", "bold"),
            (str(one.runs), ""),
            (str(one.turns), ""),
            (str(one.tool_calls), ""),
            (words.tokens(one.input_tokens), ""),
            (words.tokens(one.output_tokens), ""),
            ("?" if one.unpriced == one.runs else words.money(one.cost) + ("+?" if one.unpriced else ""), ""),
            (words.duration(one.duration_ms / 1000), ""),
        ]
        for one in totals
    ]
    print_table(heads, rows, sys.stdout)
    unpriced = sum(one.unpriced for one in totals)
    if unpriced:
        note(f"?  the cost of {words.count(unpriced, 'run')} is not known", "dim")
