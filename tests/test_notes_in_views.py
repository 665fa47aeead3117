"""What happens to a run beside words and calls is told alike at the terminal, in exports and by the API."""

from __future__ import annotations

from html import unescape

import pytest

from retinue import Retinue
from retinue.events import (
    AnyEvent,
    CallCut,
    GuardSpoke,
    HistoryPruned,
    LimitReached,
    RunFinished,
    RunResumed,
    RunStarted,
    StepRetried,
)
from retinue.server.transcript import parts
from retinue.story import Story
from retinue.testing import ScriptedModel
from retinue.types import AgentSpec, Claim, ClaimDifference, Report, Usage
from retinue.view.answer import problem_lines, summary
from retinue.view.live import PlainView
from retinue.view.page import page
from retinue.view.transcript import Transcript, event_line

WHERE = {"run_id": "r", "root_id": "r", "parent_id": None, "depth": 0, "at": 5.0}
BEGAN = RunStarted(
    **{**WHERE, "at": 1.0},
    seq=1,
    spec=AgentSpec(name="talker", description="t", prompt="You talk."),
    prompt="go",
    system="You talk.",
    model="a:x,b:y",
)
NOTED: list[tuple[AnyEvent, str]] = [
    (
        StepRetried(**WHERE, seq=2, step=1, reason="it is away", attempt=1, wait=0, model="b:y", begun=True),
        "b:y is asked instead: it is away; a reply had begun, which may be charged for",
    ),
    (
        StepRetried(**WHERE, seq=2, step=1, reason="overloaded", attempt=1, wait=0),
        "asked again (try 2): overloaded",
    ),
    (
        GuardSpoke(**WHERE, seq=2, side="output", decision="correct", guard="polite", why="no greeting"),
        "the output guard polite sends the answer back: no greeting",
    ),
    (
        GuardSpoke(**WHERE, seq=2, side="input", decision="stop", guard="polite", why="it swears"),
        "the input guard polite stops the run: it swears",
    ),
    (
        CallCut(**WHERE, seq=2, step=1, usage=Usage(cost=None)),
        "a model call was cut off after it had begun: what it cost is not known",
    ),
    (
        HistoryPruned(**WHERE, seq=2, dropped=1, summary="s", tokens_before=900, tokens_after=80),
        "history shortened: 1 message left out, 900 to 80 tokens",
    ),
    (LimitReached(**WHERE, seq=2, step=1, model="a:x", reason="quota", until=99.0), ": quota"),
    (RunResumed(**WHERE, seq=2, reason="the process ended"), ": the process ended"),
]


@pytest.mark.parametrize(("event", "told"), NOTED, ids=lambda each: type(each).__name__)
async def test_every_view_tells_of_it_in_the_same_words(event: AnyEvent, told: str) -> None:
    log: list[AnyEvent] = [BEGAN, event]
    story = Story()
    for each in log:
        story.apply(each)
    lines = Transcript(width=200, tree=story).of(log)
    assert any(told in "".join(text for text, _ in line) for line in lines)
    assert told in unescape(page(log))
    assert any(told in part.text for part in await parts(log, story))


def test_a_guard_that_lets_a_text_pass_is_no_news() -> None:
    passed = GuardSpoke(**WHERE, seq=2, side="input", decision="pass")
    assert "guard" not in page([BEGAN, passed])


def test_an_event_in_a_line_tells_what_a_guard_did() -> None:
    stopped = GuardSpoke(**WHERE, seq=2, side="input", decision="stop", guard="polite", why="it swears")
    line = "".join(text for text, _ in event_line(stopped, "talker"))
    assert "the input guard polite stops the run: it swears" in line


def test_an_exported_page_has_each_claim_with_its_verdict_and_what_is_wrong_with_sources() -> None:
    differs = ClaimDifference(kind="number", claim="12", source="21")
    claim = Claim(
        text="It has 12 wheels [1].",
        verdict="contradicted",
        differences=(differs,),
        source="http://192.0.2.1/",
        passage="It has 21 <b>wheels</b>.",
    )
    report = Report(
        run_id="r",
        agent="talker",
        status="completed",
        text="It has 12 wheels [1].",
        claims=(claim,),
        problems=("one is wrong",),
    )
    shown = page([BEGAN, RunFinished(**WHERE, seq=2, report=report)])
    for told in ("claims: 1 contradicted", "number: 12; there: 21", "21 &lt;b&gt;wheels", "✗ one is wrong"):
        assert told in shown


@pytest.mark.parametrize(("event", "said"), NOTED)
async def test_a_run_that_is_watched_is_told_of_in_the_same_words(
    event: AnyEvent, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it is worth a line while the run works."""
    async with PlainView() as view:
        view.show(BEGAN)
        view.show(event)
    told = capsys.readouterr().err
    if isinstance(event, StepRetried | LimitReached):
        assert said in told


async def test_what_stands_beside_a_source_is_not_told_again_and_everything_else_is() -> None:
    """By a field of the report: the words of both may differ."""
    cites = "It is in a.py:3 and at https://docs.example.org/x, and “nobody wrote these seven words here”."
    async with Retinue(model=ScriptedModel([cites]), project=False) as retinue:
        report = await retinue.run(AgentSpec(name="a", description="d", prompt="p"), "where?")
    assert len(report.problems) == 3
    told = "\n".join(text for line in problem_lines(report, 200) for text, _ in line)
    assert told.startswith("✗ “nobody wrote")
    assert "never" not in told
    shown = "\n".join("".join(text for text, _ in line) for line in summary(report))
    assert shown.count("never read") == shown.count("never fetched") == 1
