"""Authority only shrinks: whatever rules and lists say, no agent does what one above it may not do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue import Retinue
from retinue.events import ChildStarted, RunStarted, ToolReturned
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call
from retinue.tools.base import Tool, tool
from retinue.types import AgentSpec, ModelRequest
from trees import Stage, agent, results, turn

CALLS: list[tuple[str, dict[str, Any] | str]] = [
    (name, {"path": path}) for name in ("look", "Look", "poke", "Poke") for path in ("x/1", "y")
]


def tools() -> list[Tool]:
    @tool(effect="read", aliases=("Look",))
    async def look(path: str) -> str:
        """Look."""
        return "done"

    @tool(effect="write", aliases=("Poke",))
    async def poke(path: str) -> str:
        """Poke."""
        return "done"

    return [look, poke]


def tree(chain: list[AgentSpec], spawned: dict[str, Any]) -> dict[str, Any]:
    """Every agent makes every call, then hands the work on: to the next, and at last to one it makes up."""
    below = [*chain, None]

    def play(request: ModelRequest, level: int) -> Any:
        if turn(request) == 0:
            return CALLS
        following = below[level] if level < len(below) else None
        if turn(request) == 1 and level <= len(chain):
            if following is not None:
                return [(following.name, {"prompt": "go"})]
            return [("spawn_agent", {"prompt": "go", "system_prompt": "PLAY spawned", **spawned})]
        return "ended"

    parts: dict[str, Any] = {"root": lambda request: play(request, 0)}
    for level, spec in enumerate(chain, start=1):
        parts[spec.name] = lambda request, level=level: play(request, level)
    parts["spawned"] = lambda request: play(request, len(chain) + 1)
    return parts


def outcomes(stage: Stage, part: str) -> list[str] | None:
    """How each of its calls went: done, denied, asked for, or not there at all."""
    seen = [request for request in stage.model.of(part) if turn(request) == 1]
    if not seen:
        return None
    kinds = {"done": "done", "denied": "denied", "refused:": "asked", "there": "absent"}
    return [kinds[message.text.split()[0]] for message in results(seen[0])[: len(CALLS)]]


names = st.sampled_from(["root", "a", "kid", "*"])
what = st.sampled_from(["look", "Poke", "Poke(x/**)", "effect:write", "risk:low", "*(x/*)", ""])
rules = st.lists(
    st.one_of(
        what.filter(bool),
        st.builds(lambda name, kind: f"agent:{name} {kind}".strip(), names, what),
    ),
    max_size=3,
).map(tuple)
listed = st.lists(st.sampled_from(["look", "Look", "poke", "Poke", "*", "p*"]), max_size=2).map(tuple)


def registered(name: str) -> st.SearchStrategy[AgentSpec]:
    return st.builds(
        lambda own, taken, deny: agent(
            name,
            tools=None if own is None else (*own, "a", "b", "spawn_agent"),
            disallowed_tools=tuple(pattern for pattern in taken if "*" not in pattern),
            deny=tuple(rule for rule in deny if "agent:" not in rule and rule not in ("*(x/*)", "risk:low")),
        ),
        st.one_of(st.none(), listed),
        listed,
        rules,
    )


@given(
    chain=st.one_of(st.just([]), st.tuples(registered("a")).map(list)),
    root=registered("root"),
    given_rules=st.tuples(rules, rules, rules),
    spawned=st.fixed_dictionaries(
        {"name": st.sampled_from(["kid", "b"])},
        optional={"tools": st.sampled_from([["look"], ["poke"], ["look", "poke"]])},
    ),
    yes=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_no_descendant_does_what_an_ancestor_may_not(
    chain: list[AgentSpec],
    root: AgentSpec,
    given_rules: tuple[tuple[str, ...], ...],
    spawned: dict[str, Any],
    yes: bool,
) -> None:
    allow, ask, deny = given_rules
    stage = Stage(
        tree(chain, spawned),
        agents=[*chain, agent("b")],
        tools=tools(),
        yes=yes,
        approvals__allow=(*allow, "spawn_agent"),
        approvals__ask=ask,
        approvals__deny=deny,
        delegation__policy="nested",
    )
    asyncio.run(stage.run(root))
    above: list[list[str]] = []
    for part in ["root", *(spec.name for spec in chain), "spawned"]:
        went = outcomes(stage, part)
        if went is None:
            return
        for index, how in enumerate(went):
            if how == "done":
                assert all(other[index] in ("done", "asked") for other in above), (part, CALLS[index])
                if any("agent:" in rule for rule in allow):
                    assert part != "spawned" or above[-1][index] == "done", (part, CALLS[index])
                else:
                    assert all(other[index] == "done" for other in above), (part, CALLS[index])
        for index in range(0, len(CALLS), 4):  # two paths under the name, two under the other spelling
            assert went[index : index + 2] == went[index + 2 : index + 4], "another spelling, another verdict"
        above.append(went)


async def test_what_an_agent_is_denied_the_agents_it_makes_are_denied_too() -> None:
    look, poke = tools()
    call = {"name": "kid", "prompt": "p", "system_prompt": "PLAY kid", "tools": ["poke"]}
    stage = Stage(
        {
            "root": [[("poke", {"path": "a"}), ("spawn_agent", call)], "done"],
            "kid": [[("poke", {"path": "a"})], "ok"],
        },
        tools=[look, poke],
        yes=True,
        approvals__deny=("agent:root poke",),
    )
    await stage.run()
    says = "denied by the rule 'agent:root poke': poke will not run. Find another way."
    assert results(stage.model.of("root")[1])[0].text == says
    assert results(stage.model.of("kid")[1])[0].text == says


async def test_a_made_up_agent_gets_nothing_by_its_name() -> None:
    look, poke = tools()

    def stage_of(name: str) -> Stage:
        call = {"name": name, "prompt": "p", "system_prompt": "PLAY kid", "tools": ["poke"]}
        return Stage(
            {
                "root": [[("spawn_agent", call)], [("worker", {"prompt": "p"})], "done"],
                "kid": [[("poke", {"path": "a"})], "ok"],
                "worker": [[("poke", {"path": "a"})], "ok"],
            },
            agents=[agent("worker")],
            tools=[look, poke],
            approvals__allow=("spawn_agent", "agent:worker poke", "agent:other poke"),
        )

    stage = stage_of("Worker")
    await stage.run()
    assert results(stage.model.of("root")[1])[0].text == (
        "the name 'Worker' is that of a registered agent: ask that agent by its own tool, or choose another name"
    )
    assert sum(isinstance(e, ChildStarted) for e in await stage.log()) == 1, "the registered one alone"
    assert results(stage.model.of("worker")[1])[0].text == "done", "who it was meant for has it"
    stage = stage_of("other")
    await stage.run()
    assert results(stage.model.of("kid")[1])[0].text.startswith("refused: write needs a person's approval")


async def outcome_of(folder: Path, name: str, *calls: Any, **changed: Any) -> tuple[set[str], list[str]]:
    """What an agent of this folder is shown, and what it reads when it makes these calls."""
    made = 0

    def play(request: ModelRequest) -> Any:
        nonlocal made
        if f"You are {name}." not in request.system:
            return "a child ran"
        made += 1
        return calls[made - 1] if made <= len(calls) else "done"

    model = ScriptedModel([play] * (len(calls) * 2 + 1))
    async with Retinue(
        model=model, db=MemoryStore(), environ={}, cwd=folder, yes=True, settings=changed
    ) as r:
        report = await r.run(name, "go")
        events = await r.store.events(report.run_id, run_id=report.run_id)
    shown = next(set(e.tools) for e in events if isinstance(e, RunStarted))
    return shown, [e.text for e in events if isinstance(e, ToolReturned)]


def write_agent(folder: Path, name: str, *fields: str) -> None:
    agents = folder / ".retinue/agents"
    agents.mkdir(parents=True, exist_ok=True)
    head = "\n".join(("---", f"name: {name}", "description: for this test alone", *fields, "---"))
    (agents / f"{name}.md").write_text(f"{head}\nYou are {name}.\n")


async def test_an_agent_that_must_not_delegate_cannot_by_any_way(tmp_path: Path) -> None:
    write_agent(tmp_path, "loner", "disallowedTools: Task")
    shown, texts = await outcome_of(
        tmp_path,
        "loner",
        call("code-search", query="q"),
        call("spawn_agent", name="x", prompt="p"),
        call("delegate_task", agent_id="planner", prompt="p"),
        call("background", operation="start", agent_id="planner", prompt="p"),
    )
    assert shown.isdisjoint({"code-search", "planner", "spawn_agent", "parallel_tasks", "background"})
    assert [text.split(" here.")[0] for text in texts] == [
        f"there is no tool '{name}'" for name in ("code-search", "spawn_agent", "delegate_task", "background")
    ]


async def test_delegation_that_is_switched_off_is_refused_where_it_is_called(tmp_path: Path) -> None:
    write_agent(tmp_path, "boss")
    calls = call("planner", task="p"), call("spawn_agent", name="x", prompt="p")
    shown, texts = await outcome_of(tmp_path, "boss", *calls, **{"delegation.enabled": False})
    assert shown.isdisjoint({"planner", "spawn_agent"})
    assert set(texts) == {
        "not started: sub-agents are switched off (delegation.enabled = false). Do the work yourself."
    }


@pytest.mark.parametrize(
    ("fields", "shown", "runs"),
    [
        ("tools: View, Grep", {"view", "grep"}, True),
        ("tools: view", {"view"}, True),
        ("tools: Read", {"read"}, True),
        ("disallowedTools: View", set[str](), False),
        ("disallowedTools: read", set[str](), False),
        ("disallowedTools: Read(f*)", {"read"}, False),
        ("deny: [view]", {"read"}, False),
    ],
)
async def test_reading_has_two_names_and_is_one_tool_to_lists_and_rules(
    tmp_path: Path, fields: str, shown: set[str], runs: bool
) -> None:
    write_agent(tmp_path, "reader", fields)
    (tmp_path / "f.txt").write_text("the text of it")
    seen, texts = await outcome_of(
        tmp_path, "reader", call("read", path="f.txt"), call("view", path="f.txt"), call("View", path="f.txt")
    )
    assert seen & {"read", "view", "grep"} >= shown
    assert ("view" in seen, "read" in seen) == ("view" in shown, "read" in shown)
    assert ["the text of it" in text for text in texts] == [runs] * 3


async def test_a_rule_about_reading_holds_under_every_name_of_it(tmp_path: Path) -> None:
    write_agent(tmp_path, "reader")
    (tmp_path / "secret.txt").write_text("SECRET")
    names = ("read", "Read", "view", "View")
    _, texts = await outcome_of(
        tmp_path,
        "reader",
        *(call(name, path="secret.txt") for name in names),
        **{"approvals.deny": ["read(secret*)"]},
    )
    assert [text.split(":")[0] for text in texts] == ["denied by the rule 'read(secret*)'"] * 4


async def test_tools_for_a_child_may_be_named_by_their_other_spelling() -> None:
    look, poke = tools()
    made = {"label": "l", "task_prompt": "t", "allowed_tools": ["Look", "look"]}
    part = "You do one delegated task. Work through it with your tools, then answer."
    stage = Stage(
        {"root": [[("subagent", made)], "done"], part: lambda request: "found"},
        tools=[look, poke],
        yes=True,
        delegation__tools=["subagent"],
    )
    await stage.run()
    child = next(e for e in await stage.log() if isinstance(e, RunStarted) and e.depth == 1)
    assert (child.spec.tools, child.tools) == (("look",), ("look",))
