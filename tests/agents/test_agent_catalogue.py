"""Finding agents: where they are looked for, who wins, and that a broken file hides nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.agents import builtin_agents, check, load_agents
from retinue.agents.loader import MAX_FILES
from retinue.errors import ConfigError

BUILTIN = {
    "summarize",
    "compare",
    "agentic-fetch",
    "code-review",
    "code-search",
    "general",
    "math-expert",
    "planner",
    "research",
    "science-research",
    "web-knowledge",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / ".git").mkdir(parents=True)
    return folder


def put(folder: Path, name: str, says: str = "An agent.", file: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (file or f"{name}.md")
    path.write_text(f"---\nname: {name}\ndescription: {says}\n---\n{says}\n", "utf-8")
    return path


def test_the_builtin_agents_are_there_without_any_file(tmp_path: Path, home: Path) -> None:
    catalogue = load_agents(tmp_path, home)
    assert set(catalogue.agents) == BUILTIN == set(builtin_agents())
    assert catalogue.problems == ()
    assert all(loaded.scope == "builtin" and loaded.notes == () for loaded in catalogue.agents.values())


def test_builtin_agents_have_what_a_parent_needs_to_choose_them() -> None:
    for name, spec in builtin_agents().items():
        assert spec.icon, name
        assert spec.description.startswith("Use "), name
        assert f"`{name}`" in spec.prompt.splitlines()[0], name
        assert len(spec.description) < 500, name


@pytest.mark.parametrize("name", sorted(BUILTIN - {"general", "summarize", "compare", "math-expert"}))
def test_a_specialists_prompt_ends_with_its_first_move(name: str) -> None:
    """Small models fill in a report form at once if that is the last thing they read."""
    spec = builtin_agents()[name]
    last = spec.prompt.partition("## Begin")[2]
    assert any(f"Call `{tool}`" in last or f"`{tool}`" in last for tool in spec.tools or ()), name
    assert len(last.splitlines()) < 4


@pytest.mark.parametrize(
    ("name", "turns", "timeout", "inputs", "required"),
    [
        ("code-search", 8, None, {"query", "scope"}, ["query"]),
        ("code-review", 6, None, {"target", "focus"}, ["target"]),
        ("planner", 6, None, {"task", "constraints"}, ["task"]),
        ("web-knowledge", 3, 30, {"query"}, ["query"]),
        ("science-research", 4, 30, {"query"}, ["query"]),
        ("math-expert", 3, 30, {"problem"}, ["problem"]),
        ("agentic-fetch", 10, None, {"prompt", "url"}, ["prompt"]),
    ],
)
def test_builtin_limits_and_inputs(
    name: str, turns: int, timeout: float | None, inputs: set[str], required: list[str]
) -> None:
    spec = builtin_agents()[name]
    assert (spec.max_turns, spec.timeout) == (turns, timeout)
    assert spec.input_schema is not None
    assert set(spec.input_schema["properties"]) == inputs
    assert spec.input_schema["required"] == required


def test_builtin_tools_only_read() -> None:
    agents = builtin_agents()
    assert agents["code-search"].tools == ("read", "glob", "grep", "ls")
    assert agents["code-review"].tools == ("read", "glob", "grep")
    assert agents["planner"].tools == ("read", "glob", "grep", "ls")
    assert set(agents["agentic-fetch"].tools or ()) >= {"web_search", "web_fetch", "view", "grep"}
    assert agents["agentic-fetch"].model == "small"
    assert agents["general"].tools is None
    focus = (agents["code-review"].input_schema or {})["properties"]["focus"]
    assert focus["enum"] == ["bugs", "style", "performance", "security", "all"]


def test_the_specialists_that_report_what_they_find_look_before_they_answer() -> None:
    agents = builtin_agents()
    looking = {name for name, spec in agents.items() if spec.look_first}
    assert set(agents) - looking == {"general"}


@pytest.mark.parametrize("folder", [".retinue/agents", ".agents/agents", ".claude/agents"])
def test_every_convention_is_read_in_project_and_home(repo: Path, home: Path, folder: str) -> None:
    put(repo / folder, "ours")
    put(home / folder, "mine")
    catalogue = load_agents(repo, home)
    assert catalogue.get("ours").scope == "project"
    assert catalogue.get("mine").scope == "user"
    assert catalogue.get("ours").path == repo / folder / "ours.md"


def test_project_beats_user_beats_builtin(repo: Path, home: Path) -> None:
    put(home / ".claude/agents", "planner", "the user's planner")
    assert load_agents(repo, home).get("planner").spec.prompt == "the user's planner"
    put(repo / ".claude/agents", "planner", "the project's planner")
    assert load_agents(repo, home).get("planner").spec.prompt == "the project's planner"


def test_the_nearest_folder_wins_up_to_the_repository_root(repo: Path, home: Path) -> None:
    deep = repo / "a" / "b"
    deep.mkdir(parents=True)
    put(repo.parent / ".retinue/agents", "outside")
    put(repo / ".retinue/agents", "one", "from the root")
    put(repo / ".retinue/agents", "two", "from the root")
    put(repo / "a" / ".claude/agents", "one", "from a")
    catalogue = load_agents(deep, home)
    assert catalogue.get("one").spec.prompt == "from a"
    assert catalogue.get("two").spec.prompt == "from the root"
    assert "outside" not in catalogue.agents


def test_without_a_repository_parents_hand_out_nothing(tmp_path: Path, home: Path) -> None:
    inner = tmp_path / "shared" / "work"
    inner.mkdir(parents=True)
    put(tmp_path / "shared" / ".retinue/agents", "planted")
    assert "planted" not in load_agents(inner, home).agents


def test_the_home_folder_is_the_users_even_as_a_repository(home: Path) -> None:
    (home / ".git").mkdir()
    put(home / ".claude/agents", "mine")
    work = home / "work"
    work.mkdir()
    assert load_agents(work, home).get("mine").scope == "user"


def test_retinues_own_folder_beats_the_others_of_the_same_place(repo: Path, home: Path) -> None:
    put(repo / ".claude/agents", "one", "claude's")
    put(repo / ".retinue/agents", "one", "ours")
    assert load_agents(repo, home).get("one").spec.prompt == "ours"


def test_a_broken_file_hides_only_itself(repo: Path, home: Path) -> None:
    folder = repo / ".retinue/agents"
    put(folder, "good")
    (folder / "bad.md").write_text(
        "---\nname: bad\ndescription: broken\nmax_turns: none at all\n---\nBody.\n"
    )
    (folder / "README.md").write_text("About these agents.\n")
    (folder / "notes.md").write_text("No frontmatter here.\n")
    catalogue = load_agents(repo, home)
    assert catalogue.get("good").spec.name == "good"
    assert {Path(problem.file).name for problem in catalogue.problems} == {"bad.md", "notes.md"}
    with pytest.raises(ConfigError) as raised:
        catalogue.get("bad")
    assert (raised.value.file, raised.value.line) == (str(folder / "bad.md"), 4)


def test_a_broken_file_is_never_replaced_by_a_wider_agent_of_its_name(repo: Path, home: Path) -> None:
    (repo / ".retinue/agents").mkdir(parents=True)
    (repo / ".retinue/agents" / "planner.md").write_text("---\nname: planner\ntools: [read\n---\nNarrow.\n")
    catalogue = load_agents(repo, home)
    assert "planner" not in catalogue.agents
    with pytest.raises(ConfigError, match=r"planner\.md:"):
        catalogue.get("planner")


def test_an_unknown_agent_lists_the_known_ones_and_the_nearest(tmp_path: Path, home: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load_agents(tmp_path, home).get("code-serch")
    assert all(name in str(raised.value) for name in BUILTIN)
    assert raised.value.fix == "did you mean 'code-search'?"


def test_two_files_of_one_name_are_reported_and_the_first_is_used(repo: Path, home: Path) -> None:
    put(repo / ".retinue/agents", "twin", "first", file="a.md")
    second = put(repo / ".retinue/agents", "twin", "second", file="b.md")
    catalogue = load_agents(repo, home)
    assert catalogue.get("twin").spec.prompt == "first"
    assert [(p.file, "a.md" in p.message) for p in catalogue.problems] == [(str(second), True)]


def test_a_link_out_of_the_project_is_not_read(repo: Path, home: Path, tmp_path: Path) -> None:
    secret = put(tmp_path / "elsewhere", "secret")
    inside = put(repo / "docs", "inside")
    folder = repo / ".retinue/agents"
    folder.mkdir(parents=True)
    (folder / "secret.md").symlink_to(secret)
    (folder / "inside.md").symlink_to(inside)
    (folder / "gone.md").symlink_to(tmp_path / "nothing")
    catalogue = load_agents(repo, home)
    assert "inside" in catalogue.agents
    assert "secret" not in catalogue.agents
    with pytest.raises(ConfigError, match="out of the project"):
        catalogue.get("secret")


def test_an_agents_folder_that_is_a_link_out_of_the_project_is_not_read(
    repo: Path, home: Path, tmp_path: Path
) -> None:
    put(tmp_path / "elsewhere", "secret")
    (repo / ".claude").mkdir()
    (repo / ".claude/agents").symlink_to(tmp_path / "elsewhere")
    assert "secret" not in load_agents(repo, home).agents


def test_the_user_may_link_to_files_kept_elsewhere(home: Path, tmp_path: Path) -> None:
    kept = put(tmp_path / "dotfiles", "mine")
    (home / ".claude/agents").mkdir(parents=True)
    (home / ".claude/agents/mine.md").symlink_to(kept)
    assert load_agents(tmp_path / "work", home).get("mine").scope == "user"


def test_one_file_under_two_folders_is_one_agent(repo: Path, home: Path) -> None:
    put(repo / ".retinue/agents", "one")
    (repo / ".claude").mkdir()
    (repo / ".claude/agents").symlink_to(repo / ".retinue/agents")
    catalogue = load_agents(repo, home)
    assert catalogue.get("one").path == repo / ".retinue/agents/one.md"
    assert catalogue.problems == ()


def test_subfolders_are_read_and_other_files_are_not(repo: Path, home: Path) -> None:
    put(repo / ".claude/agents/team", "nested")
    (repo / ".claude/agents/notes.txt").write_text("no agent")
    (repo / ".claude/agents/.hidden.md").write_text("no agent")
    catalogue = load_agents(repo, home)
    assert "nested" in catalogue.agents
    assert catalogue.problems == ()


def test_a_folder_full_of_files_is_read_to_a_bound(repo: Path, home: Path) -> None:
    folder = repo / ".retinue/agents"
    folder.mkdir(parents=True)
    for number in range(MAX_FILES + 5):
        (folder / f"n{number:04}.md").write_text(f"---\nname: n{number:04}\ndescription: d\n---\nx")
    catalogue = load_agents(repo, home)
    assert len(catalogue.agents) == MAX_FILES + len(BUILTIN)
    assert any(str(MAX_FILES) in problem.message for problem in catalogue.problems)


def test_check_says_everything_about_a_project(repo: Path) -> None:
    folder = repo / ".claude/agents"
    put(folder, "tiny", "short")
    put(folder, "twin", "a description that is long enough", file="a.md")
    put(folder, "twin", "a description that is long enough", file="b.md")
    (folder / "odd.md").write_text(
        "---\nname: odd\ndescription: a description that is long enough\ntools: Read, web_serch, webSearch, todo\n"
        "disallowedTools: Task, Bsh\n"
        "permissionMode: bypassPermissions\n---\nx"
    )
    findings = check([repo, repo / "missing.md"], known_tools=["read", "web_search"])
    said = [(Path(f.file).name, f.level, f.message) for f in findings]
    assert any(file == "tiny.md" and "very short" in message for file, _, message in said)
    assert any(file == "b.md" and level == "error" and "a.md" in message for file, level, message in said)
    unknown = [
        (f.line, f.level, f.message, f.fix)
        for f in findings
        if Path(f.file).name == "odd.md" and "no tool" in f.message
    ]
    missing = "there is no tool and no agent"
    assert unknown == [
        (4, "error", f"{missing} 'web_serch' (tools of odd)", "did you mean 'web_search'?"),
        (5, "warning", f"{missing} 'Bsh' (disallowed_tools of odd)", "did you mean 'bash'?"),
    ]
    assert any(file == "odd.md" and level == "warning" and "permissionMode" in m for file, level, m in said)
    assert any(file == "missing.md" and level == "error" for file, level, _ in said)


def test_the_builtin_files_pass_the_check() -> None:
    from retinue.agents.loader import BUILTIN as folder

    assert [f for f in check([folder]) if f.level != "note"] == []
