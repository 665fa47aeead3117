"""Rules: deny beats ask beats allow, and an allowed command cannot smuggle in another one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.approvals import Authority, Rules
from retinue.authority.rules import Asked, parse_rule, suggest_rule
from retinue.errors import ConfigError
from retinue.settings import ApprovalSettings
from retinue.types import AgentSpec
from retinue.workspace import Files


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


def judge(asked: Asked, allow: Sequence[str] = (), ask: Sequence[str] = (), deny: Sequence[str] = ()) -> str:
    return (
        Rules.of(ApprovalSettings(allow=tuple(allow), ask=tuple(ask), deny=tuple(deny))).judge(asked).action
    )


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


def url(address: str) -> Asked:
    return Asked(tool="web_fetch", effect="network", risk="low", agent="a", arguments={"url": address})


@pytest.mark.parametrize(
    "spelled",
    [
        "secrets/key",
        "./secrets//key",
        "x/../secrets/key",
        "{project}/secrets/key",
        "link/key",
        "{project}/link/key",
        "secrets",
        "secrets/",
        "link",
        "door",
    ],
)
def test_a_denied_path_is_denied_however_it_is_spelled(tmp_path: Path, spelled: str) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("k")
    (tmp_path / "link").symlink_to("secrets")
    (tmp_path / "door").symlink_to("secrets/key")
    files = Files(project=tmp_path, workspace=None)
    path = spelled.format(project=tmp_path)
    for name in ("path", "file_path", "target", "source"):
        asked = Asked(tool="read", effect="read", risk="low", agent="a", arguments={name: path}, files=files)
        assert judge(asked, deny=["*(secrets/**)"]) == "deny"
        assert judge(asked, deny=[f"*({tmp_path}/secrets/**)"]) == "deny"
        assert judge(asked, deny=["*(other/**)"]) == "allow"


def test_every_path_of_a_call_counts(tmp_path: Path) -> None:
    asked = Asked(
        tool="mcp__fs__move",
        effect="write",
        risk="medium",
        agent="a",
        arguments={"source": "docs/a", "destination": "src/a", "paths": ["docs/b", "docs/c"]},
        files=Files(project=tmp_path, workspace=None),
    )
    assert judge(asked, allow=["*(docs/**)"]) == "ask", "one of them is elsewhere"
    assert judge(asked, allow=["*(**)"]) == "allow"
    assert judge(asked, allow=["*"], deny=["*(docs/c)"]) == "deny"


def test_a_link_does_not_lead_out_of_what_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "docs/inside").symlink_to("../src")
    files = Files(project=tmp_path, workspace=None)

    def asked(path: str) -> Asked:
        return Asked(
            tool="write", effect="write", risk="medium", agent="a", arguments={"path": path}, files=files
        )

    assert judge(asked("docs/new.md"), allow=["write(docs/**)"]) == "allow"
    assert judge(asked(f"{tmp_path}/docs/new.md"), allow=["write(docs/**)"]) == "allow"
    assert judge(asked("docs/inside/x.py"), allow=["write(docs/**)"]) == "ask"
    assert judge(asked("docs/inside/x.py"), allow=["write(**)"]) == "allow"
    absolute = asked(f"{tmp_path}/docs/new.md")
    assert suggest_rule(absolute) == "write(docs/new.md)"


@pytest.mark.parametrize(
    "address", ["http://x.org", "http://x.org/", "http://x.org/a/b?c=d#e", "HTTP://X.org/a"]
)
def test_a_rule_about_addresses_covers_all_that_is_below(address: str) -> None:
    assert judge(url(address), deny=["web_fetch(http://*)"]) == "deny"
    assert judge(url(address), deny=["web_fetch(http://x.org/**)"]) == "deny"
    assert judge(url(address), deny=["web_fetch(http://X.ORG*)"]) == "deny"
    assert judge(url(address), deny=["web_fetch(https://*)", "web_fetch(http://y.org*)"]) == "allow"


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.com:443/x",
        "https://evil.com./x",
        "<https://evil.com/x>",
        "https://ｅvil.com/x",
        "https://evil.com?x",
        "https://evil.com\\x",
        "https://me:pw@evil.com/x",
        "https://EVIL.com/a/../x",
        "https://evil.com/%78",
        " https://evil.com/x ",
    ],
)
def test_a_denied_address_is_denied_however_it_is_spelled(address: str) -> None:
    for host in ("evil.com", "evil.com:443", "EVIL.com.", "*evil.com"):
        assert judge(url(address), deny=[f"web_fetch(https://{host}/**)"]) == "deny", host
        assert judge(url(address), deny=["web_fetch(https://evil.co/**)"]) == "allow"
        assert judge(url(address), ask=[f"web_fetch(https://{host}/*x*)"]) == "ask", host


@pytest.mark.parametrize("name", ["bücher.example", "BÜCHER.example", "xn--bcher-kva.example"])
def test_a_host_outside_ascii_is_one_host_in_a_rule_too(name: str) -> None:
    for ruled in ("bücher.example", "xn--bcher-kva.example"):
        assert judge(url(f"https://{name}/x"), deny=[f"web_fetch(https://{ruled}/**)"]) == "deny"


@pytest.mark.parametrize(
    ("address", "verdict"),
    [
        ("https://x.org/docs/a", "allow"),
        ("https://x.org/docs/a b?c=d", "allow"),
        ("https://x.org/docs/../secret", "ask"),
        ("https://x.org/docs/%2e%2e/secret", "ask"),
    ],
)
def test_an_allowed_folder_of_a_site_cannot_be_left_by_dots(address: str, verdict: str) -> None:
    asked = Asked(tool="send", effect="execute", risk="high", agent="a", arguments={"url": address})
    assert judge(asked, allow=["send(https://x.org/docs/**)"]) == verdict


@pytest.mark.parametrize(
    "address",
    [
        "https://x.org",
        "https://x.org/",
        "https://x.org:443/a",
        "https://x.org/a b",
        "http://x.org:8080/?q=1",
        "ftp://x/y",
    ],
)
def test_the_rule_that_is_suggested_for_an_address_allows_it(address: str) -> None:
    asked = Asked(tool="send", effect="execute", risk="high", agent="a", arguments={"url": address})
    assert judge(asked, allow=[suggest_rule(asked) or ""]) == "allow"


@pytest.mark.parametrize(
    ("address", "verdict"),
    [
        ("https://docs.x.org/a/b", "allow"),
        ("https://DOCS.x.org/a", "allow"),
        ("https://evil.net/a.x.org/", "ask"),
        ("https://evil.net?a.x.org/", "ask"),
        ("https://a@evil.net#.x.org/", "ask"),
        ("https://docs.x.org@evil.net/a", "ask"),
    ],
)
def test_an_allowed_host_cannot_be_left(address: str, verdict: str) -> None:
    asked = Asked(tool="send", effect="execute", risk="high", agent="a", arguments={"url": address})
    assert judge(asked, allow=["send(https://*.x.org/*)"]) == verdict


def test_who_denies_a_risk_or_asks_at_it_means_what_is_above_too() -> None:
    rules = {
        "deny": Rules.of(ApprovalSettings(deny=("risk:medium",)), allow_all=True),
        "ask": Rules.of(ApprovalSettings(ask=("risk:medium",)), allow_all=True),
    }
    read = Asked(tool="read", effect="read", risk="low", agent="a", arguments={"path": "x"})
    for name, judged in rules.items():
        verdicts = [judged.judge(asked).action for asked in (read, write("x"), bash("ls"))]
        assert verdicts == ["allow", name, name]


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
        assert judge(asked, allow=[suggest_rule(asked) or ""]) == "allow"


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "**"},
        {"path": "docs/*.md"},
        {"path": "a?c"},
        {"url": "https://*/x"},
        {"paths": ["a", "b"]},
        {"command": "echo " + "x" * 200},
    ],
)
def test_no_rule_is_suggested_that_would_allow_more_than_the_call(arguments: dict[str, Any]) -> None:
    """A model may call a file `**`: a person who follows the message must not allow every file by it."""
    asked = Asked(tool="change", effect="write", risk="medium", agent="general", arguments=arguments)
    assert suggest_rule(asked) is None


SHAPES = [
    "/",
    "//",
    "/.",
    "/..",
    ".",
    "..",
    "../",
    "../x",
    "./",
    "~",
    "~/",
    "a/..",
    "a/../..",
    "docs",
    "docs/",
    "docs/.",
    "docs/./",
    "**",
    "*",
    "a*",
    "a?",
    "a?c",
    "[ab]",
    "{a,b}",
    "a\\*",
    "a)",
    "a)b(",
    "()",
    "/etc",
    "/etc/",
    "/home/agent",
    "/home/agent/",
    "/home/agent/x",
    "file:///etc",
    "https://a.b",
    "https://a.b/",
    "https://a.b/*",
    "https://*/",
    "://",
    "://x",
]
BLANKS = ["", " ", "\t", "\n", "\u00a0", "\u3000", "\u200b", "\ufeff", "\u2028", "\u202e"]
OTHERS = [
    "zz",
    "docs/zz",
    "docs",
    "a",
    "/etc/zz",
    "/home/agent/zz",
    "https://c.d/e",
    "https://a.b/zz",
    "src/a/b.py",
    "ab",
    "abc",
]


@pytest.mark.parametrize("name", ["path", "paths", "file_path", "url", "target", "destination"])
def test_a_suggested_rule_means_the_call_and_no_other_whatever_its_path_looks_like(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    files = Files(tmp_path, None)

    def asked(value: Any) -> Asked:
        return Asked(
            tool="change", effect="write", risk="medium", agent="a", arguments={name: value}, files=files
        )

    odd: list[Any] = [
        f"{a}{shape}{b}" for shape in ("", "/", ".", "x", "docs") for a in BLANKS for b in BLANKS
    ]
    for value in (*SHAPES, *odd, [], [""], ["a", " "], [["a"]], 5, True, {"a": 1}):
        rule = suggest_rule(asked(value))
        if rule is None:
            continue
        assert rule.startswith("change("), value
        assert judge(asked(value), allow=[rule]) == "allow", value
        for other in OTHERS:
            same = isinstance(value, str) and os.path.normpath(value) == other
            assert same or judge(asked(other), allow=[rule]) == "ask", (value, rule, other)


def test_an_address_with_a_question_is_suggested_as_it_is() -> None:
    asked = Asked(
        tool="post", effect="write", risk="medium", agent="a", arguments={"url": "https://a.b/c?d=e"}
    )
    assert suggest_rule(asked) == "post(https://a.b/c?d=e)"
    assert judge(asked, allow=["post(https://a.b/c?d=e)"]) == "allow"


@given(st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip))
@settings(deadline=None)
def test_the_suggested_rule_for_a_command_allows_that_command_and_no_longer_one(command: str) -> None:
    asked = bash(command)
    rule = suggest_rule(asked)
    if rule is not None:
        assert judge(asked, allow=[rule]) == "allow"
        assert judge(bash(f"{command.strip()} /etc"), allow=[rule]) == "ask"


@pytest.mark.parametrize("command", ["rm *.py", 'python -c "print([1, 2])"', "ls a?.txt", "make && git push"])
def test_the_suggested_rule_takes_signs_for_what_they_are(command: str) -> None:
    rule = suggest_rule(bash(command))
    assert rule is not None
    assert judge(bash(command), allow=[rule]) == "allow"
    assert judge(
        bash(command.replace("*", "-rf x").replace("?", "b").replace("[1, 2]", "1")), allow=[rule]
    ) == ("allow" if "&&" in command else "ask")


@pytest.mark.parametrize("text", ["", "  ", "effect:fly", "risk:huge", "a b c"])
def test_a_rule_that_cannot_be_read_says_how_to_write_it(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_rule(text)
    assert error.value.fix


tool_names = st.sampled_from(["read", "write", "bash", "mcp__a__x", "mcp__a__y", "mcp__b__z", "web_fetch"])
patterns = st.one_of(tool_names, st.sampled_from(["mcp__a__*", "mcp__*", "*", "web_*"]))
agents = st.sampled_from(["boss", "worker", "kid"])
specs = st.builds(
    AgentSpec,
    name=agents,
    description=st.just(""),
    prompt=st.just(""),
    tools=st.one_of(st.none(), st.lists(patterns, max_size=4).map(tuple)),
    disallowed_tools=st.lists(patterns, max_size=2).map(tuple),
    mcp_servers=st.one_of(st.none(), st.lists(st.sampled_from(["a", "b", "c"]), max_size=2).map(tuple)),
    deny=st.lists(st.sampled_from(["bash", "write(x/**)", "effect:network"]), max_size=2).map(tuple),
    lifecycle=st.sampled_from(["permanent", "temporary"]),
)
effects = {"read": "read", "write": "write", "bash": "execute", "web_fetch": "network"}
written = st.one_of(
    st.sampled_from(["bash", "Bash", "write(x/**)", "effect:network", "*(x/*)", "risk:low"]),
    st.builds(
        lambda agent, what: f"agent:{agent} {what}", agents, st.sampled_from(["bash", "Bash", "*", "write"])
    ),
)
lists = st.lists(written, max_size=2).map(tuple)
at_the_root = st.builds(ApprovalSettings, allow=lists, ask=lists, deny=lists)


@given(at_the_root, st.lists(specs, min_size=1, max_size=6), tool_names, st.sampled_from(["x/1", "y"]))
@settings(max_examples=300, deadline=None)
def test_no_descendant_can_do_what_an_ancestor_cannot(
    rules: ApprovalSettings, chain: list[AgentSpec], name: str, path: str
) -> None:
    names = frozenset({"read", "write", "bash", "web_fetch", "mcp__a__x", "mcp__a__y", "mcp__b__z"})
    effect: Any = effects.get(name, "execute")
    order = {"deny": 0, "ask": 1, "allow": 2}
    authority = Authority(tools=names, mcp_servers=frozenset({"a", "b"}), rules=Rules.of(rules))
    above: tuple[str, ...] = ()
    judged: list[int] = []
    for spec in chain:
        below = authority.narrow(spec)
        assert below.tools <= authority.tools
        assert below.mcp_servers <= authority.mcp_servers
        assert not below.permits(name, effect) or authority.permits(name, effect)
        asked = Asked(
            tool=name,
            effect=effect,
            risk="low",
            agent=spec.name,
            arguments={"path": path},
            aliases=(name.capitalize(),),
            above=above,
            temporary=spec.lifecycle == "temporary",
        )
        judged.append(order[below.rules.judge(asked).action])
        if 0 in judged[:-1]:
            assert judged[-1] == 0, "what one above is denied is denied"
        by_name = spec.lifecycle == "permanent" and any("agent:" in rule for rule in rules.allow)
        if judged[:-1] and not by_name:
            assert judged[-1] <= judged[-2], "only a person's rule about a registered agent gives it more"
        authority, above = below, (*above, spec.name)


@pytest.mark.parametrize(
    ("command", "other"),
    [
        (r"sh -c echo\ \*", "sh -c 'echo [x];touch F; echo ]'"),
        (r"python3 -c print\(2\*3\)", "python3 -c 'print(2[0] if 0 else 1);import os #]3)'"),
        (r"find . -name \*.pyc -delete", "find . -name '[a-z].pyc' -delete"),
        (r"rm -rf docs/\*", "rm -rf 'docs/[x]'"),
        (r"echo \?", "echo '[x]'"),
        (r"echo \[x]", "echo '[[]x]'"),
    ],
)
def test_no_rule_is_offered_where_a_sign_behind_a_backslash_would_become_a_star(
    command: str, other: str
) -> None:
    def asked(text: str) -> Asked:
        return Asked(tool="bash", effect="execute", risk="high", agent="a", arguments={"command": text})

    rule = suggest_rule(asked(command))
    assert rule is None or judge(asked(other), allow=[rule]) != "allow"
    assert rule is None
