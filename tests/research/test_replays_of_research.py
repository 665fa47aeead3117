"""Research replays: its report is held against the same pages again, also those that were too long to show."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.world import PlantedWeb, Thing, Writer, things
from retinue import Retinue
from retinue.testing import ScriptedModel, record, replay_file

PADDING = "".join(
    f"<p>Bend {n} of the river is quiet and wide, with reeds on its banks.</p>" for n in range(900)
)
TOLD = things(3)
TRUE = "\n\n".join(f"{thing.sentences[0][:-1]} {{{n}}}." for n, thing in enumerate(TOLD, start=1))
FALSE = 'He said "an invented quotation that is in no page" {1}.\n\nThe Harrow Tower is 60 metres high {1}.'


def page(thing: Thing, *, long: bool) -> str:
    return thing.page.replace("</h1>", f"</h1>{PADDING}" if long else "</h1>")


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(("body", "problems"), [(TRUE, 0), (FALSE, 2)])
async def test_what_is_wrong_with_a_report_is_found_again_by_a_replay(
    tmp_path: Path, long: bool, body: str, problems: int
) -> None:
    pages = {thing.path: page(thing, long=long) for thing in TOLD}
    async with PlantedWeb(pages) as site:
        writer = Writer(urls=[site.url(thing.path) for thing in TOLD], body=body)
        async with Retinue(
            model=ScriptedModel(writer),
            db=str(tmp_path / "a.db"),
            cwd=tmp_path,
            environ={},
            settings=site.settings,
        ) as retinue:
            report = await retinue.run("research", {"question": "Tell me."})
            await record(retinue, report.run_id, tmp_path / "tree.jsonl", files=tmp_path / "tree")
    assert len(report.problems) == problems
    async with Retinue(model="offline", db=str(tmp_path / "a.db"), cwd=tmp_path, environ={}) as retinue:
        assert (await retinue.replay(report.run_id)).diff == ""
    assert (await replay_file(tmp_path / "tree.jsonl", files=tmp_path / "tree")).diff == ""
