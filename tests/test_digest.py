"""What is kept of work that is cut short or dropped from the history: the findings, in few words."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from retinue import digest
from retinue.digest import DigestLine, fitted, gist
from retinue.engine.workflow import Root
from retinue.errors import ModelError, ToolError
from retinue.events import HistoryPruned, MessageReceived, RunFinished
from retinue.store.memory import MemoryStore
from retinue.tools.base import tool
from trees import Stage, agent, never, reply, told, turn

NAMES = ("Odalys", "Bello", "Quirin", "Zdenka", "Ximena")
FILLER = "This paragraph goes on about nothing in particular and says so at some length. "


@tool(effect="read")
async def look(what: str) -> str:
    """Look.

    Args:
        what: at what
    """
    known = {"harbour": "The harbour master is called Odalys Brandt. ", "ledger": "Entry 7741 is forged. "}
    return FILLER * 12 + known.get(what, "") + FILLER * 12


@tool(effect="read")
async def gone(what: str) -> str:
    """Look where nothing is.

    Args:
        what: at what
    """
    raise ToolError(f"no such {what}")


# -- a report that is cut short


async def test_a_run_cut_short_reports_what_its_tools_found_and_not_that_it_meant_to_look() -> None:
    calls = [("look", {"what": "harbour"})]
    stage = Stage(
        {"root": [reply("Let me look.", calls), ModelError("the model is gone", kind="overloaded")]},
        tools=[look],
    )
    report = await stage.run()
    assert report.status == "error"
    assert "Odalys Brandt" in report.text
    assert "Let me look." not in report.text


async def test_what_a_run_said_that_it_found_stays_beside_what_its_tools_found() -> None:
    said = "The master is not in the register of 1871, so I look at the harbour itself."
    calls = [("look", {"what": "harbour"})]
    stage = Stage({"root": [reply(said, calls), ModelError("gone", kind="overloaded")]}, tools=[look])
    text = (await stage.run()).text
    assert "register of 1871" in text
    assert "Odalys Brandt" in text


async def test_a_root_cut_short_reports_what_its_children_reported_and_no_metrics() -> None:
    tasks = [{"agent_id": "child", "prompt": "a"}, {"agent_id": "child", "prompt": "b"}]

    def child(request: Any) -> str:
        return f"{FILLER} The answer to {told(request)[0]} is 4{told(request)[0]}4."

    one = ("delegate_task", {"operation": "delegate", "agent_id": "child", "prompt": "s"})
    stage = Stage(
        {
            "root": [[one, ("parallel_tasks", {"tasks": tasks})], ModelError("gone", kind="overloaded")],
            "child": child,
        },
        agents=[agent("child")],
        delegation__tools=["delegate_task", "parallel_tasks"],
    )
    text = (await stage.run()).text
    for each in "sab":
        assert f"The answer to {each} is 4{each}4." in text
    assert "duration_ms" not in text
    assert "success" not in text
    assert "Do not follow instructions" not in text, "the frame is for the model that reads on"


async def test_the_findings_of_a_child_whose_budget_ended_reach_its_parent() -> None:
    stage = Stage(
        {
            "root": [[("child", {"prompt": "x"})], "done"],
            "child": [reply("Let me look.", [("look", {"what": "ledger"})], cost=1.0), "never asked"],
        },
        tools=[look],
        agents=[agent("child", tools=("look",))],
        limits__max_cost=0.5,
    )
    await stage.run()
    ended = await _child(stage)
    assert ended.ended_by == "budget"
    assert "Entry 7741 is forged." in ended.text


@pytest.mark.parametrize(
    ("limit", "says"),
    [({"limits__max_cost": 0.5}, "$0.500"), ({"limits__tree_output_tokens": 1}, "limits.tree_output_tokens")],
)
async def test_a_budget_that_ends_before_anything_was_found_leaves_a_report_of_what_was_done(
    limit: dict[str, Any], says: str
) -> None:
    parts = {"root": [reply("", [("gone", {"what": "ledger"})], cost=1.0), "never asked"]}
    report = await Stage(parts, tools=[gone], **limit).run()
    assert (report.ended_by, report.incomplete is not None) == ("budget", True)
    assert says in report.text
    assert "Model calls answered: 1" in report.text
    assert "gone" in report.text
    assert "no such ledger" in report.text


async def test_time_that_ends_before_anything_was_found_is_said_too() -> None:
    report = await Stage({"root": lambda request: never()}).run(agent("root", timeout=0.2))
    assert report.ended_by == "timeout"
    assert (
        report.text
        == f"There is no answer, and nothing was found: {report.error}. No model call was answered."
    )


async def _child(stage: Stage) -> Any:
    (found,) = [e.report for e in await stage.log() if isinstance(e, RunFinished) and e.depth == 1]
    return found


async def test_a_second_turn_cut_short_does_not_report_the_answer_to_the_first() -> None:
    store = MemoryStore()
    first = Stage({"root": ["The answer to the first question."]}, store=store)
    await first.run()
    calls = [("look", {"what": "ledger"})]
    parts = {
        "root": lambda request: (
            reply("Hm.", calls) if turn(request) == 1 else ModelError("gone", kind="overloaded")
        )
    }
    second = Stage(parts, store=store, root_id=first.root_id, tools=[look])
    task = await second.resume("and the ledger?")
    text = (await task).text
    assert "Entry 7741" in text
    assert "first question" not in text


# -- a history that is pruned


FACTS = {
    "said by the person": "the code word of the night is HELIOTROPE",
    "said by the model": "I noted that gate 19 is the one that was left open.",
    "in a result": "Odalys Brandt",
}


def planted(turns: int, seen: list[list[str]]) -> Any:
    def play(request: Any) -> Any:
        step = len(seen)
        seen.append([m.text for m in request.messages])
        if step == 0:
            return reply(FACTS["said by the model"], [("look", {"what": "harbour"})])
        return [("look", {"what": f"place {step}"})] if step < turns else "done"

    return play


async def _long_run(turns: int, **settings: Any) -> tuple[Stage, list[list[str]], int]:
    seen: list[list[str]] = []
    stage = Stage({"root": planted(turns, seen)}, tools=[look], context__max_tokens=3000, **settings)
    await stage.workflow.start_root(Root(spec=agent("root", max_turns=turns + 2), prompt="the task"))
    live = stage.workflow.tree.live[stage.root_id]
    live.run.log.write(MessageReceived, text=f"By the way, {FACTS['said by the person']}.", sender="person")
    await live.task
    return stage, seen, sum(isinstance(e, HistoryPruned) for e in await stage.log())


async def test_facts_of_the_first_turn_survive_ten_prunings_and_more() -> None:
    stage, seen, prunings = await _long_run(60)
    assert prunings >= 10
    last = "\n".join(seen[-1])
    for where, fact in FACTS.items():
        assert fact in last, where
    assert max(sum(map(len, texts)) for texts in seen) // 4 < 3000 * 1.5, "and the history stays bounded"
    assert last.count("[Earlier turns") == 1, "one digest, and none inside another"
    digests = [e.summary for e in await stage.log() if isinstance(e, HistoryPruned)]
    assert max(map(len, digests)) <= 3000 * 0.8, "a quarter of what triggers pruning, four characters a token"


async def test_the_newest_of_the_dropped_turns_are_in_the_digest_as_well() -> None:
    _, seen, _ = await _long_run(60)
    assert "place 45" in "\n".join(seen[-1])


async def test_a_summary_of_the_model_keeps_the_summaries_before_it() -> None:
    asked: list[str] = []

    def small(request: Any) -> str:
        asked.append(told(request)[0])
        return f"Summary {len(asked)}: nothing new." if len(asked) > 1 else "Summary 1: gate 19 is open."

    stage = Stage(
        {"root": planted(60, seen := []), "You summarise conversations of an agent with its tools.": small},
        tools=[look],
        context__max_tokens=3000,
        context__mode="summarize",
    )
    await stage.run(agent("root", max_turns=62))
    assert len(asked) >= 10
    assert "gate 19 is open" in "\n".join(seen[-1])
    assert "Odalys Brandt" in asked[0], "it is shown what was found and not a clipped line of it"


async def test_where_the_small_model_fails_in_any_way_the_digest_is_made_without_it() -> None:
    stage = Stage(
        {
            "root": planted(20, seen := []),
            "You summarise conversations of an agent with its tools.": lambda request: ValueError("a bug"),
        },
        tools=[look],
        context__max_tokens=3000,
        context__mode="summarize",
    )
    report = await stage.run(agent("root", max_turns=22))
    assert (report.text, report.error) == ("done", None)
    assert FACTS["said by the model"] in "\n".join(seen[-1])


# -- the words that are kept


def test_a_gist_keeps_what_is_telling_and_fits() -> None:
    text = FILLER * 10 + "The invoice 2291-B of Quillfeather Ltd was paid twice. " + FILLER * 10
    short = gist(text, 160)
    assert len(short) <= 160
    assert "The invoice 2291-B of Quillfeather Ltd was paid twice." in short


def test_a_gist_of_a_short_text_is_the_text() -> None:
    assert gist("a\n b", 10) == "a b"
    assert gist("", 10) == ""


def test_a_gist_of_what_has_no_sentence_is_its_beginning() -> None:
    assert gist("x" * 500, 20) == "x" * 19 + "…"
    assert len(gist(json.dumps({"a": list(range(500))}), 50)) <= 50


@pytest.mark.parametrize(
    "unit", ["abcdefgh", "a_", "a.", "a-", "a,", "/", ".", "-", "1", "A", "A.", "é", "http://"]
)
def test_a_gist_of_one_endless_word_is_made_in_one_pass_over_it(unit: str) -> None:
    endless = "part 1 " + unit * (500_000 // len(unit))  # pass upon pass over so much would take hours
    assert gist(endless, 50) == endless[:49] + "…"


def test_telling_is_what_is_named_numbered_or_addressed() -> None:
    said = "See (https://a.test/x?y=1), docs/plan.md or `set_up` of /etc, config.toml: NASA, version 1.2.3, well-known Ada."
    assert digest.telling(said) == {
        "https://a.test/x?y=1),",
        "docs/plan.md",
        "set_up",
        "/etc",
        "config.toml",
        "NASA",
        "1.2.3",
        "Ada",
    }
    assert digest.telling("Nothing of that kind is said here, or well-known; and so on.") == set()


def test_of_many_lines_those_go_whose_names_and_numbers_stand_in_others_too() -> None:
    lines = [
        digest.DigestLine(head="", text=f"read the same old table_of_things again {'x' * 80}")
        for _ in range(6_000)
    ]
    lines[4_000] = digest.DigestLine(head="", text=f"the invoice 2291 was paid twice {'x' * 80}")
    lines[123] = digest.DigestLine(head="", text=f"be brief {'x' * 80}", told=True)
    shown = digest.fitted(lines, 1_000)  # counting all anew for each that goes would take hours
    assert len("\n".join(shown)) <= 1_000
    assert shown[-1] == digest.LEFT_OUT
    assert any("2291" in line for line in shown)
    assert any("be brief" in line for line in shown)
    assert len(shown) == 10, "as many as there is room for"


def test_of_two_lines_that_tell_the_same_one_stays() -> None:
    said = [f"gate {number} is open {'x' * 90}" for number in range(10) for _ in "ab"]
    shown = digest.fitted([digest.DigestLine(head="", text=text) for text in said], 1_090)
    assert sorted(line.split()[2] for line in shown[:-1]) == [str(number) for number in range(10)]


def test_what_a_child_found_stays_beside_many_messages_and_those_that_are_all_but_the_same_go_first() -> None:
    told = [
        DigestLine(
            head=digest.TOLD, text=f"Q{n}: and what about the weather and other things?", told=True, weight=2
        )
        for n in range(60)
    ]
    facts = [f"the customer of case {n} is called {name}" for n, name in enumerate(NAMES)]
    said = [DigestLine(head=digest.TOLD, text=fact, told=True, weight=2) for fact in facts]
    found = DigestLine(head="tech(x) ⇒ ", text="the serial is ZX-99-GAMMA", weight=2)
    kept = fitted([*told[:30], found, *said, *told[30:]], 1000)
    assert any("ZX-99-GAMMA" in line for line in kept)
    assert [name for name in NAMES if not any(name in line for line in kept)] == []
    alike = [line for line in kept if "weather" in line]
    assert alike[0].endswith(f"(and {60 - len(alike)} like it)")
    again = digest.shortened("\n".join([digest.DROPPED, *kept]), 700)
    assert "ZX-99-GAMMA" in again, "nor is it lost at the next pruning"
    assert (
        sum(1 + int(n) for n in re.findall(r"weather.*\(and (\d+) like it\)", again))
        + again.count("things?\n")
        >= 60
    )


def test_of_what_was_told_and_what_was_found_each_has_half_where_there_is_too_much_of_both() -> None:
    lines = [
        DigestLine(
            head=head,
            text=f"{name} lives in {other} Street with {third} and a very long list of other people",
            told=told,
        )
        for n, (name, other) in enumerate(itertools.permutations(NAMES, 2))
        for third in [NAMES[n % len(NAMES)]]
        for head, told in ((digest.TOLD, True), ("bash(x) → ", False))
    ]
    kept = fitted(lines, 3000)[:-1]
    sizes = [
        sum(len(line) for line in kept if line.startswith(f"- {digest.TOLD}") == told)
        for told in (True, False)
    ]
    assert min(sizes) > 1000
