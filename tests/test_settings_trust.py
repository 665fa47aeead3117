"""A `retinue.toml` that came with a repository narrows what the user allows, and never widens it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue import settings
from retinue.agents.loader import content_of
from retinue.budget import RUN
from retinue.delegate import AGENT_CALLS
from retinue.errors import ConfigError
from retinue.models.base import SECONDS
from retinue.settings import trust
from retinue.settings.toml_file import change_trust

MINE = """
[approvals]
deny = ["bash(rm *)", "effect:network"]
ask = ["write"]
[limits]
max_cost = 1.0
[context]
instructions = false
[web]
search = ["brave", "ddgs"]
"""
THEIRS = """
[approvals]
deny = []
ask = []
[limits]
max_cost = 100000
max_turns = 1000
tree_turns = "none"
tree_seconds = 100000000
[delegation]
policy = "nested"
nested_children = 100000
tools = ["agents", "background"]
[context]
instructions = true
[web]
search = ["tavily"]
[knowledge]
first = true
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(MINE)
    monkeypatch.setenv(settings.CONFIG_VARIABLE, str(path))
    return path


def loaded(tmp_path: Path, theirs: str) -> settings.LoadedSettings:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    (project / "retinue.toml").write_text(theirs)
    return settings.load(cwd=project, environ={})


def test_a_repository_cannot_take_away_a_rule_or_raise_a_limit(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    before = settings.load(cwd=tmp_path / "empty", environ={})
    found = loaded(tmp_path, THEIRS)
    assert found.settings == before.settings
    (warning,) = found.warnings
    for name in ("limits.max_cost", "delegation.policy", "context.instructions", "web.search"):
        assert name in warning


def test_a_value_in_quotes_widens_no_more_than_one_without(mine: Path, tmp_path: Path) -> None:
    """A switch in quotes counts where it narrows, so it is held to the same."""
    mine.write_text("[delegation]\nenabled = false\n[limits]\nmax_cost = 1.0\n")
    theirs = '[delegation]\nenabled = "true"\n[knowledge]\nfirst = "1"\n[limits]\nmax_cost = "{}"\n'
    found = loaded(tmp_path, theirs.format(2.0))
    assert not found.settings.delegation.enabled
    assert not found.settings.knowledge.first
    assert found.settings.limits.max_cost == 1.0
    (warning,) = found.warnings
    for name in ("delegation.enabled", "knowledge.first", "limits.max_cost"):
        assert name in warning
    assert loaded(tmp_path, theirs.format(0.5)).settings.limits.max_cost == 0.5


def test_a_repository_adds_rules_to_the_users_and_lowers_limits(mine: Path, tmp_path: Path) -> None:
    theirs = '[approvals]\ndeny = ["bash(rm *)", "bash"]\n[limits]\nmax_cost = 0.5\ntree_turns = 200\n'
    found = loaded(tmp_path, theirs + '[web]\nsearch = ["ddgs"]\n')
    assert found.warnings == ()
    assert found.settings.approvals.deny == ("bash(rm *)", "effect:network", "bash")
    assert found.settings.approvals.ask == ("write",)
    assert (found.settings.limits.max_cost, found.settings.limits.tree_turns) == (0.5, 200)
    assert found.settings.web.search == ("ddgs",)
    assert found.origins["approvals.deny"] == f"{mine} and {tmp_path / 'project' / 'retinue.toml'}"


def test_a_trusted_folder_sets_what_it_likes(mine: Path, tmp_path: Path) -> None:
    loaded(tmp_path, THEIRS)
    change_trust(lambda trusted: trusted.adding(tmp_path / "project", content_of(tmp_path / "project")))
    found = loaded(tmp_path, THEIRS)
    assert found.warnings == ()
    assert (found.settings.approvals.deny, found.settings.limits.max_cost) == ((), 100000)


def test_what_could_send_work_elsewhere_or_allow_more_counts_only_where_it_is_trusted() -> None:
    """Written out once more on purpose: what becomes free for a repository to set shows in a review."""
    assert {name for name, one in settings.declared().items() if one.says.trust == "trusted"} == {
        *("db", "model", "small_model", "providers", "prices", "approvals.allow", "approvals.auto_risk"),
        "mcp.sampling",
        *("sources.judge", "keyring", "terminal.notify", "terminal.notify_after"),
        *(
            "engine",
            "workers.queue",
            "workers.priority",
            "workers.park_after",
            "workers.slots",
            "workers.grace",
        ),
        *("approvals.auto", "approvals.sandbox", "approvals.sandbox_network", "approvals.callback_seconds"),
        *("telemetry.enabled", "telemetry.endpoint", "telemetry.content"),
        *("web.allow_hosts", "web.searxng_url", "web.brave_url", "web.tavily_url", "web.proxy", "web.robots"),
        *(
            "web.host_interval",
            "undo.enabled",
            "undo.files",
            "undo.file_mb",
            "undo.kept_mb",
            "isolation.ignored",
            "approvals.reviewer",
        ),
        *("knowledge.base_urls", "knowledge.contact", "code.engine", "workspace.root"),
        *("server.host", "server.port", "plugins"),
    }


def test_a_switch_has_its_values_from_narrow_to_wide() -> None:
    wide = {
        "delegation.enabled": True,
        "delegation.policy": "nested",
        "delegation.summary": "model",
        "context.mode": "summarize",
        "context.instructions": True,
        "knowledge.first": True,
        "approvals.delegation": "none",
        "approvals.unanswered": "reject",
    }
    switches = {name for name, one in settings.declared().items() if one.says.trust == "switch"}
    assert switches == wide.keys()
    for name, value in wide.items():
        kinds = settings.declared()[name].kinds
        narrow = next(
            one for one in ((False, True) if kinds == (bool,) else get_args(kinds[0])) if one != value
        )
        assert trust.wider(name, value, narrow)
        assert not trust.wider(name, narrow, value)


def test_auto_is_never_less_than_it_is_said_to_be() -> None:
    least = {n: s.says.auto for n, s in settings.declared().items() if s.says.auto is not None}
    assert least == {
        "limits.model_timeout": SECONDS,
        "delegation.agent_calls": AGENT_CALLS,
        "limits.tree_turns": RUN["turns"],
        "limits.tree_input_tokens": RUN["input_tokens"],
        "limits.tree_output_tokens": RUN["output_tokens"],
        "delegation.tools": settings.DelegationSettings().ways,
    }


def test_a_list_may_be_made_shorter_and_auto_is_for_the_person_to_say() -> None:
    assert not trust.wider("delegation.tools", ["agents"], "auto")
    assert trust.wider("delegation.tools", ["agents", "subagent"], "auto")
    assert trust.wider("delegation.tools", "auto", ("agents",))
    assert trust.wider("delegation.tools", ["auto"], ("agents",)), "as only lists are written in some places"
    assert not trust.wider("delegation.tools", ["auto"], "auto")


def test_a_word_is_taken_for_a_list_where_a_list_of_that_word_is_written() -> None:
    ways = settings.declared()["delegation.tools"]
    assert ways.convert(ways.parse("auto")) == ways.convert("auto") == "auto"
    assert ways.convert(ways.parse("agents, background")) == ("agents", "background")
    assert ways.convert(["agents"]) == ("agents",)
    with pytest.raises(ValueError, match="list of `agents`"):
        ways.convert(["auto", "agents"])


@given(st.one_of(st.none(), st.integers(1, 9), st.floats(0.1, 9), st.sampled_from(["none", "auto", "junk"])))
def test_nothing_is_narrower_than_itself_and_no_limit_is_the_widest(value: Any) -> None:
    assert not trust.wider("limits.tree_turns", value, value)
    assert trust.wider("limits.tree_turns", None, 5)
    assert trust.wider("limits.tree_turns", "none", 5)
    if isinstance(value, int | float):
        assert not trust.wider("limits.max_cost", value, None)
        assert not trust.wider("limits.tree_turns", value, "auto")
        assert trust.wider("limits.max_cost", value, value / 2)
        assert not trust.wider("limits.max_cost", value / 2, value)


@pytest.mark.parametrize(
    "written",
    [
        '{"arxiv": "http://127.0.0.1:1"}',
        '{arxiv = "http://127.0.0.1:1"}',
        '{"arxiv" : "http://127.0.0.1:1" }',
    ],
)
def test_a_table_in_the_environment_is_json_or_toml(tmp_path: Path, written: str) -> None:
    loaded = settings.load(cwd=tmp_path, environ={"RETINUE_KNOWLEDGE_BASE_URLS": written})
    assert loaded.settings.knowledge.base_urls == {"arxiv": "http://127.0.0.1:1"}


def test_settings_made_in_code_are_checked_and_taken_as_in_a_file() -> None:
    made = settings.Settings(limits={"max_turns": 5}, web={"search": ["ddgs"]})  # pyright: ignore[reportArgumentType]
    assert made.limits == settings.LimitSettings(max_turns=5)
    assert made.web.search == ("ddgs",)
    assert settings.build({"limits": {"max_turns": 5}}, {}).limits == made.limits
    for wrong in ({"max_turns": 0}, {"max_turns": True}, {"max_turn": 5}, 5, None):
        with pytest.raises(ConfigError):
            settings.Settings(limits=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=r"LimitSettings\.timeout = nan"):
        settings.LimitSettings(timeout=float("nan"))


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ('[limits]\nmax_turns = "x"\n', "limits.max_turns"),
        ('[delegation]\nenabled = "maybe"\n', "delegation.enabled"),
        ("[approvals]\nauto = 3\n", "approvals.auto"),
        ("[web]\nsearch = 5\n", "web.search"),
    ],
)
def test_a_wrong_value_of_a_repository_is_said_to_be_wrong_with_its_place(
    tmp_path: Path, mine: Path, written: str, name: str
) -> None:
    with pytest.raises(ConfigError, match=rf"retinue\.toml:2: {name} = ") as caught:
        loaded(tmp_path, written)
    assert "must be " in str(caught.value)
