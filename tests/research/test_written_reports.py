"""What the program leaves out of a report, and where what it wrote is not the answer."""

from __future__ import annotations

from pathlib import Path

from retinue import AgentSpec, Retinue
from retinue.research.pages import FetchedPage, table_of
from retinue.research.report import written
from retinue.testing import ScriptedModel, call
from retinue.types import Source

PAGE = "https://a.example/1"
TABLE = table_of(
    [
        FetchedPage(
            key=PAGE,
            text="The tower is 300 m high.",
            title="Tower",
            source=Source(url=PAGE, verified=True),
            aliases=(PAGE,),
        )
    ]
)


def test_what_stands_behind_the_writers_own_list_of_sources_stays_in_the_report() -> None:
    body = (
        "The tower is 300 m high [1].\n\n## Sources\n\n- my own list\n\n### Books\n\n- a book\n\n"
        "## Conclusion\n\nThe tower is 300 m high [1].\n\n## References\n\n- once more"
    )
    text = written("X", body, TABLE, None).text
    assert "## Conclusion\n\nThe tower is 300 m high [1]." in text
    assert not any(gone in text for gone in ("my own list", "a book", "once more", "## References"))


async def test_where_an_answer_has_to_fit_a_schema_a_written_report_does_not_stand_for_it(
    tmp_path: Path,
) -> None:
    spec = AgentSpec(
        name="looker",
        description="looks",
        prompt="You look.",
        tools=["research_report"],
        output_schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    )
    model = ScriptedModel([call("research_report", title="T", body="Nothing was found."), '{"a": 1}'])
    async with Retinue(
        model=model, agents=[spec], db="memory:", cwd=tmp_path, environ={}, yes=True
    ) as retinue:
        report = await retinue.run("looker", "q")
    assert (report.text, report.incomplete) == ('{"a": 1}', None)
