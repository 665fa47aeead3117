"""What Retinue reads by itself is a regular file of a bounded size, and of a repository never one outside it."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from retinue import Retinue, settings
from retinue.agents import check, load_agents
from retinue.approvals import Rules
from retinue.attachments import attach
from retinue.authority.rules import parse_rule
from retinue.cli import map_inputs
from retinue.cli.map_inputs import read_inputs
from retinue.errors import ConfigError
from retinue.instructions import MOST_CHARACTERS, read_instructions
from retinue.reading import Folder, Unreadable, read_own
from retinue.server import tokens
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel
from retinue.testing.eval_file import read_eval_file
from retinue.testing.recording import load
from retinue.types import ModelRequest
from swapping import swapping

SECRET = "aws_secret_access_key = hunter2"
AGENT = "---\nname: {0}\ndescription: Use for {0}.\n---\n{0}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".git").mkdir()
    return folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "credentials.md"
    file.write_text(SECRET)
    return file


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:  # a path of a socket must be short
        here = os.open(path.parent, os.O_RDONLY)
        try:
            bound.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _far_pipe(path: Path) -> None:
    os.mkfifo(path.parent / "pipe")
    path.symlink_to("pipe")


def _itself(path: Path) -> None:
    path.symlink_to(path.name)


HOSTILE: dict[str, Callable[[Path], None]] = {
    "a pipe": _pipe,
    "a socket": _socket,
    "a terabyte": _huge,
    "a link to /dev/zero": _zeros,
    "a link to a pipe": _far_pipe,
    "a link to itself": _itself,
    "a folder": Path.mkdir,
}


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return HOSTILE[request.param]


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Whoever reads without a bound fails here instead of taking the machine down."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


async def _prompt(project: Path) -> str:
    seen: list[ModelRequest] = []

    class Listening(ScriptedModel):
        def stream(self, request: ModelRequest):
            seen.append(request)
            return super().stream(request)

    model = Listening(["fine"])
    async with Retinue(model=model, db=MemoryStore(), cwd=project, environ={}) as retinue:
        await retinue.run("general", "what is this?")
    return seen[0].system


async def test_instructions_that_are_a_link_out_of_the_project_are_not_shown_and_a_person_is_told(
    project: Path, secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (project / "AGENTS.md").symlink_to(secret)
    with caplog.at_level(logging.WARNING, "retinue"):
        assert SECRET not in await _prompt(project)
    assert [record.getMessage() for record in caplog.records] == [
        f"{project}/AGENTS.md is not read: it leads out of its folder by a link"
    ]


@pytest.mark.parametrize("way", ["through a folder", "link to a link", "absolute", "by ..", "hidden file"])
def test_no_chain_of_links_leads_to_a_secret(project: Path, secret: Path, way: str) -> None:
    agents = project / "AGENTS.md"
    if way == "through a folder":
        (project / "docs").symlink_to(secret.parent)
        agents.symlink_to("docs/credentials.md")
    elif way == "link to a link":
        (project / "a.md").symlink_to(secret)
        (project / "b.md").symlink_to("a.md")
        agents.symlink_to("b.md")
    elif way == "absolute":
        agents.symlink_to(secret.absolute())
    elif way == "by ..":
        agents.symlink_to("../project/../credentials.md")
    else:
        (project / ".env").write_text(SECRET)
        agents.symlink_to(".env")
    found = read_instructions(project)
    assert found.text == ""
    assert "AGENTS.md is not read" in found.notice


@pytest.mark.parametrize("absolute", [True, False])
def test_instructions_may_be_a_link_to_the_file_of_another_program(project: Path, absolute: bool) -> None:
    (project / "CLAUDE.md").write_text("Use tabs.")
    (project / "AGENTS.md").symlink_to(project / "CLAUDE.md" if absolute else "CLAUDE.md")
    assert read_instructions(project).text == "Use tabs."


@pytest.mark.parametrize(
    "name",
    ["GEMINI.md", "AGENT.md", ".github/copilot-instructions.md", ".cursorrules", ".cursor/rules/all.mdc"],
)
def test_the_names_that_other_programs_use_are_known(project: Path, name: str) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text("Use tabs.")
    (project / "AGENTS.md").symlink_to(name)
    assert read_instructions(project).text == "Use tabs."


@pytest.mark.parametrize(
    "name", [".env.md", "docs/plan.md", "notes.markdown", "secrets/x.mdc", "CLAUDE.md.md"]
)
def test_instructions_are_no_link_to_any_other_file_of_the_project(project: Path, name: str) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text(SECRET)
    (project / "AGENTS.md").symlink_to(name)
    found = read_instructions(project)
    assert found.text == ""
    assert f"AGENTS.md is not read: it is a link to {name!r}" in found.notice


@pytest.mark.parametrize("denied", [".env", "keys/a.pem", "plans/b.txt"])
def test_instructions_are_no_hard_link_of_what_is_kept_from_agents(project: Path, denied: str) -> None:
    (project / denied).parent.mkdir(exist_ok=True)
    (project / denied).write_text(SECRET)
    (project / "AGENTS.md").hardlink_to(project / denied)
    found = read_instructions(project, Rules(deny=(parse_rule("*(plans/**)"),)))
    assert found.text == ""
    assert f"AGENTS.md is not read: it is the same file as {denied!r}" in found.notice


def test_a_hard_link_of_an_ordinary_file_is_read(project: Path) -> None:
    (project / "copy.md").write_text("Use tabs.")
    (project / "AGENTS.md").hardlink_to(project / "copy.md")
    assert read_instructions(project).text == "Use tabs."


@pytest.mark.parametrize(
    "rule", ["read(AGENTS.md)", "*(CLAUDE.md)", "effect:read(*.md)", "agent:a read(*.md)"]
)
@pytest.mark.parametrize("link", [True, False])
def test_a_rule_that_denies_a_path_holds_for_instructions(project: Path, rule: str, link: bool) -> None:
    (project / "CLAUDE.md").write_text("Use tabs.")
    if link:
        (project / "AGENTS.md").symlink_to("CLAUDE.md")
    else:
        (project / "AGENTS.md").write_text("Use tabs.")
    found = read_instructions(project, Rules(deny=(parse_rule(rule),)))
    if rule == "*(CLAUDE.md)" and not link:
        assert found.text == "Use tabs."
    else:
        assert found.text == ""
        assert f"denied by the rule '{rule}'" in found.notice


async def test_a_denied_file_is_in_no_prompt(project: Path) -> None:
    (project / "AGENTS.md").write_text(SECRET)
    for rule, shown in (("edit(AGENTS.md)", True), ("read(AGENTS.md)", False)):
        model = ScriptedModel(["done"])
        deny = {"approvals.deny": [rule]}
        async with Retinue(model=model, db="memory:", cwd=project, settings=deny) as retinue:
            await retinue.run("general", "go")
        assert (SECRET in model.requests[0].system) is shown


def test_long_instructions_are_cut_and_say_so(project: Path) -> None:
    (project / "AGENTS.md").write_text("é" * (MOST_CHARACTERS + 1))
    shown = read_instructions(project).text
    assert shown.startswith("é" * MOST_CHARACTERS + "\n[AGENTS.md is longer")
    assert len(shown) < MOST_CHARACTERS + 100


@pytest.mark.usefixtures("little_memory")
def test_no_kind_of_file_makes_the_reading_of_instructions_hang_or_grow(
    project: Path, hostile: Callable[[Path], None]
) -> None:
    hostile(project / "AGENTS.md")
    found = read_instructions(project)
    assert set(found.text) <= {"\0", *"\n[AGENTS.md is longer; only its first 32,000 characters are here]"}


@pytest.mark.usefixtures("little_memory")
def test_no_kind_of_file_makes_the_reading_of_settings_hang_or_grow(
    project: Path, hostile: Callable[[Path], None]
) -> None:
    hostile(project / "retinue.toml")
    if hostile is Path.mkdir:
        assert settings.load(cwd=project, environ={}).origins == {}
        return
    with pytest.raises(ConfigError, match=r"retinue\.toml.*cannot be read") as raised:
        settings.load(cwd=project, environ={})
    assert "hunter2" not in str(raised.value)


@pytest.mark.usefixtures("little_memory")
def test_no_kind_of_file_makes_the_reading_of_agents_hang_or_grow(
    project: Path, tmp_path: Path, hostile: Callable[[Path], None]
) -> None:
    folder = project / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "good.md").write_text(AGENT.format("good"))
    hostile(folder / "bad.md")
    hostile(folder / "README.md") if hostile is not _far_pipe else None
    catalogue = load_agents(project, tmp_path / "home")
    assert "good" in catalogue.agents
    assert "bad" not in catalogue.agents
    assert {finding.level for finding in check([project])} >= {"note"}


@pytest.mark.usefixtures("little_memory")
async def test_no_kind_of_file_makes_the_reading_of_a_persons_own_files_hang_or_grow(
    tmp_path: Path, hostile: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own"
    hostile(path)
    monkeypatch.setenv(settings.CONFIG_VARIABLE, str(path))
    for reading in (settings.read_user_file, lambda: tokens.read(path)):
        with pytest.raises(ConfigError):
            reading()
    for reading in (lambda: load(path), lambda: read_own(path, 1000)):
        with pytest.raises(OSError):  # noqa: PT011  which one depends on the kind
            reading()
    for project in (None, tmp_path):
        with pytest.raises(ConfigError, match="the attachment"):
            await attach(path, project=project)


def test_a_run_ends_although_its_instructions_never_do(project: Path, tmp_path: Path) -> None:
    """The whole program, with an AGENTS.md that has no end."""
    (project / "AGENTS.md").symlink_to("/dev/zero")
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    asked = subprocess.run(
        [sys.executable, "-m", "retinue", "ask", "what is this?", "--quiet", "--db", "memory:"],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)),
        check=False,
    )
    assert asked.returncode in (0, 1, 3), asked.stderr
    assert "leads out of its folder" in asked.stderr


def test_settings_that_are_a_link_out_of_the_project_are_refused(project: Path, secret: Path) -> None:
    (project / "retinue.toml").symlink_to(secret)
    with pytest.raises(ConfigError, match="leads out of its folder by a link") as raised:
        settings.load(cwd=project, environ={})
    assert "hunter2" not in str(raised.value)


def test_a_file_that_somebody_else_left_above_a_folder_without_a_repository_does_not_count(
    tmp_path: Path,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    shared, mine = tmp_path / "shared", tmp_path / "shared" / "mine"
    mine.mkdir(parents=True)
    planted = shared / "retinue.toml"
    planted.write_text("[limits]\nmax_turns = 1\n")
    assert settings.find_project_file(mine) == planted
    os.chown(planted, 12345, 12345)
    assert settings.find_project_file(mine) is None
    (shared / ".git").mkdir()
    assert settings.find_project_file(mine) == planted


def test_no_file_outside_is_read_while_names_are_swapped(project: Path, secret: Path) -> None:
    (project / "AGENTS.md").write_text("Use tabs.")
    (project / "other.md").symlink_to(secret)
    folder = Folder(project)
    seen: set[object] = set()
    with swapping(project / "AGENTS.md", project / "other.md"):
        for _ in range(4000):
            try:
                seen.add(folder.read("AGENTS.md", 1000).data)
            except OSError as error:
                seen.add(error.errno)
    assert seen <= {b"Use tabs.", errno.EXDEV, errno.ELOOP, errno.ESTALE}
    assert b"Use tabs." in seen
    assert errno.EXDEV in seen


def test_no_folder_outside_is_read_while_names_are_swapped(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "agents"
    outside.mkdir(parents=True)
    (outside / "x.md").write_text(AGENT.format("stolen"))
    (project / ".retinue" / "agents").mkdir(parents=True)
    (project / ".retinue" / "agents" / "x.md").write_text(AGENT.format("ours"))
    (project / "link").symlink_to(outside.parent)
    with swapping(project / ".retinue", project / "link"):
        for _ in range(60):
            assert "stolen" not in load_agents(project, tmp_path / "home").agents


def test_a_folder_of_agents_that_leads_out_names_nothing_of_what_lies_there(
    project: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "diary"
    outside.mkdir()
    (outside / "dear-diary.md").write_text("no agent")
    (project / ".claude").mkdir()
    (project / ".claude" / "agents").symlink_to(outside)
    catalogue = load_agents(project, tmp_path / "home")
    assert "dear-diary" not in str((catalogue.problems, catalogue.broken, check([project])))


def test_a_huge_folder_of_agents_is_looked_at_to_a_bound(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from retinue.agents import loader

    monkeypatch.setattr(loader, "KIND", replace(loader.KIND, most_entries=20))
    for number in range(5):
        (project / ".retinue" / "agents" / f"f{number}").mkdir(parents=True)
        for other in range(10):
            (project / ".retinue" / "agents" / f"f{number}" / f"{other}.txt").touch()
    looked_at = loader.files_in(loader.places(project, tmp_path)[0], problems := [])
    assert list(looked_at) == []
    assert "more than 20 files and folders" in problems[0].message


async def test_an_attachment_named_in_the_project_has_to_be_in_it(project: Path, secret: Path) -> None:
    (project / "notes.md").symlink_to(secret)
    with pytest.raises(ConfigError, match="leads out of the project by a link") as raised:
        await attach(project / "notes.md", project=project)
    assert str(secret) in (raised.value.fix or "")
    assert (await attach(secret, project=project)).text == SECRET
    assert (await attach(project / ".." / "credentials.md", project=project)).text == SECRET


Reader = Callable[[Path, Path], Awaitable[str]]


async def attached_by_a_program(path: Path, project: Path) -> str:
    seen: list[str] = []

    def play(request: ModelRequest) -> str:
        seen.append(request.messages[-1].text)
        return "done"

    async with Retinue(model=ScriptedModel(play), db=MemoryStore(), cwd=project, environ={}) as retinue:
        run_id = (await retinue.run("general", "look", attachments=[path])).run_id
        await retinue.resume(run_id, message="again", attachments=[path])
        await retinue.wait(run_id)
    return "".join(seen)


async def mapped(path: Path, project: Path) -> str:
    return str(read_inputs([str(path)], kind="lines", prompt=None, key=None, cwd=project).rows)


async def cases(path: Path, project: Path) -> str:
    return str(read_eval_file(path, project).cases)


@pytest.mark.parametrize("reader", [attached_by_a_program, mapped, cases])
@pytest.mark.parametrize("where", ["outside", "inside", "alias"])
async def test_whatever_reads_a_file_that_a_person_names_follows_no_link_to_another_one(
    project: Path, tmp_path: Path, reader: Reader, where: str
) -> None:
    text = f"cases: [{{prompt: {SECRET}}}]"
    hidden = project / "credentials.yaml" if where == "inside" else tmp_path / "credentials.yaml"
    hidden.write_text(text)
    named = project / "cases.yaml"
    named.symlink_to(hidden)
    if where == "alias":
        (tmp_path / "alias").symlink_to(project)
        named = tmp_path / "alias" / "cases.yaml"
    with pytest.raises(ConfigError, match="secrets" if where == "inside" else "out of"):
        await reader(named, project)
    assert SECRET in await reader(hidden, project), "what a person names themselves is read"
    named.unlink()
    named.write_text(text)
    assert SECRET in await reader(named, project)


def test_a_file_of_inputs_has_a_bound_and_is_no_device(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_inputs, "MOST_BYTES", 10)
    (project / "in.txt").write_text("a line\n" * 3)
    os.mkfifo(project / "pipe.txt")
    for name, why in (("in.txt", "is larger than the 10 bytes"), ("pipe.txt", "is not a regular file")):
        with pytest.raises(ConfigError, match=why):
            read_inputs([str(project / name)], kind=None, prompt=None, key=None, cwd=project)


def test_reading_says_the_bound_and_reads_what_is_exactly_as_large(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 1000)
    assert read_own(file, 1000) == b"x" * 1000
    with pytest.raises(Unreadable, match="larger than the 999 bytes"):
        read_own(file, 999)
    found = Folder(tmp_path).read("file", 10, whole=False)
    assert (found.data, found.cut) == (b"x" * 10, True)
