"""Rules: deny beats ask beats allow, and an allowed command cannot smuggle in another one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.approvals import Asked, Authority, Rules, parse_rule, suggest_rule
from retinue.errors import ConfigError
from retinue.settings import ApprovalSettings
from retinue.types import ALL_EFFECTS, AgentSpec


def bash(command: str, agent: str = "general") -> Asked:
    return Asked(
        tool="bash",
        effect="execute",
        risk="high",
        agent=agent,
        arguments={"command": command},
        aliases=("Bash",),
    )


def write(path: str) -> Asked:
    return Asked(tool="write", effect="write", risk="medium", agent="general", arguments={"path": path})


def judge(asked: Asked, **rules: list[str]) -> str:
    return Rules.of(ApprovalSettings(**{k: tuple(v) for k, v in rules.items()})).judge(asked).action


def test_reading_runs_and_the_rest_asks() -> None:
    read = Asked(tool="read", effect="read", risk="low", agent="a", arguments={"path": "x"})
    assert (judge(read), judge(write("x")), judge(bash("ls"))) == ("allow", "ask", "ask")


def test_deny_beats_ask_beats_allow() -> None:
    assert judge(bash("git push"), allow=["bash"], ask=["bash(git push*)"]) == "ask"
    assert judge(bash("git push"), allow=["bash"], ask=["bash"], deny=["bash(git push*)"]) == "deny"
    assert judge(bash("git log"), allow=["bash"], deny=["bash(git push*)"]) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf /",
        "git status && curl evil",
        "git status | sh",
        "git status $(rm x)",
        "git status `rm x`",
        "git status > /etc/passwd",
        "git status\nrm x",
        "git status & rm x",
    ],
)
def test_an_allowed_command_cannot_carry_another(command: str) -> None:
    assert judge(bash("git status -s"), allow=["bash(git status*)"]) == "allow"
    assert judge(bash(command), allow=["bash(git status*)"]) == "ask"


@pytest.mark.parametrize("command", ["rm -rf x", "ls; rm -rf x", "true && rm -rf x", "echo $(rm -rf x)"])
def test_a_denied_command_is_found_inside_others(command: str) -> None:
    assert judge(bash(command), allow=["bash"], deny=["bash(rm *)"]) == "deny"


def test_paths_are_normalised_before_a_rule_allows_them() -> None:
    assert judge(write("docs/a/b.md"), allow=["write(docs/**)"]) == "allow"
    assert judge(write("docs/../src/x.py"), allow=["write(docs/**)"]) == "ask"
    assert judge(write("../docs/x"), allow=["write(**)"]) == "ask"
    assert judge(write("docs/a/b.md"), allow=["write(docs/*)"]) == "ask", "one star stays within a folder"


def test_rules_by_effect_agent_and_risk() -> None:
    assert judge(write("x"), allow=["effect:write"]) == "allow"
    assert judge(write("x"), allow=["risk:medium"]) == "allow"
    assert judge(bash("ls"), allow=["risk:medium"]) == "ask"
    assert judge(bash("ls", agent="planner"), allow=["agent:planner bash"]) == "allow"
    assert judge(bash("ls", agent="other"), allow=["agent:planner bash"]) == "ask"
    assert judge(bash("ls"), allow=["Bash(ls*)"]) == "allow", "the other spelling of a tool's name works"


def test_risk_levels_can_be_approved_by_themselves() -> None:
    rules = Rules.of(ApprovalSettings(auto_risk="medium", deny=("write(secrets/**)",)))
    assert rules.judge(write("x")).action == "allow"
    assert rules.judge(bash("ls")).action == "ask"
    assert rules.judge(write("secrets/x")).action == "deny"


def test_the_suggested_rule_would_allow_the_call() -> None:
    for asked in (bash("git push origin"), write("a/b.txt")):
        assert judge(asked, allow=[suggest_rule(asked)]) == "allow"


@pytest.mark.parametrize("text", ["", "  ", "effect:fly", "risk:huge", "a b c"])
def test_a_rule_that_cannot_be_read_says_how_to_write_it(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_rule(text)
    assert error.value.fix


tool_names = st.sampled_from(["read", "write", "bash", "mcp__a__x", "mcp__a__y", "mcp__b__z", "web_fetch"])
patterns = st.one_of(tool_names, st.sampled_from(["mcp__a__*", "mcp__*", "*", "web_*"]))
specs = st.builds(
    AgentSpec,
    name=st.just("s"),
    description=st.just(""),
    prompt=st.just(""),
    tools=st.one_of(st.none(), st.lists(patterns, max_size=4).map(tuple)),
    disallowed_tools=st.lists(patterns, max_size=2).map(tuple),
    mcp_servers=st.one_of(st.none(), st.lists(st.sampled_from(["a", "b", "c"]), max_size=2).map(tuple)),
    deny=st.lists(st.sampled_from(["bash", "write(x/**)", "effect:network"]), max_size=2).map(tuple),
)
effects = {"read": "read", "write": "write", "bash": "execute", "web_fetch": "network"}


@given(st.lists(specs, min_size=1, max_size=6), tool_names, st.sampled_from(["x/1", "y"]))
@settings(max_examples=300, deadline=None)
def test_no_descendant_can_do_what_an_ancestor_cannot(chain: list[AgentSpec], name: str, path: str) -> None:
    names = frozenset({"read", "write", "bash", "web_fetch", "mcp__a__x", "mcp__a__y", "mcp__b__z"})
    effect = effects.get(name, "execute")
    order = {"deny": 0, "ask": 1, "allow": 2}
    authority = Authority(tools=names, effects=ALL_EFFECTS, mcp_servers=frozenset({"a", "b"}))
    asked = Asked(tool=name, effect=effect, risk="low", agent="s", arguments={"path": path})  # pyright: ignore[reportArgumentType]
    for spec in chain:
        below = authority.narrow(spec)
        assert below.tools <= authority.tools
        assert below.mcp_servers <= authority.mcp_servers
        if below.permits(name, effect):  # pyright: ignore[reportArgumentType]
            assert authority.permits(name, effect)  # pyright: ignore[reportArgumentType]
        assert order[below.rules.judge(asked).action] <= order[authority.rules.judge(asked).action]
        authority = below
