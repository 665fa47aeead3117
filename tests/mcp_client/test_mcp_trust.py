"""A server of a repository is started from the bytes that were trusted, at every start, or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import py_compile
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_world import PLAIN, World, results, trusting
from retinue.mcp.command_files import MOST_FILES, MOST_NAMED, MOST_READ
from retinue.mcp.config import ServerConfig, of_project
from retinue.mcp.trust import Trust
from retinue.settings import McpServerSettings
from retinue.testing import call

EVIL = "open('started-changed', 'w')\n"
WRITES = {"approvals.allow": ["write", "mcp__own__*"]}
CHANGE = call("write", path="server.py", content=EVIL)
FILES = (
    "srv.py",
    "run.sh",
    "helper.py",
    "pk/__main__.py",
    "pk/deep/part.py",
    "sub/dist/index.js",
    "sub/dist/lib.js",
    "conf.json",
    "Makefile",
    "package.json",
    "docs/page.md",
)


def own_server(world: World, **fields: Any) -> None:
    shutil.copy(PLAIN, world.project / "server.py")
    args = ["-S", "server.py", "--log", str(world.log)]
    world.add("own", {"command": sys.executable, "args": args, **fields})


@pytest.mark.parametrize("share", ["tree", "run"])
async def test_a_server_that_is_changed_in_a_run_before_its_first_call_is_not_started(
    world: World, share: str
) -> None:
    own_server(world, share=share)
    async with world.open([CHANGE, call("mcp__own__echo", text="hi")], settings=WRITES) as retinue:
        await trusting(retinue)
        starts = world.starts()
        found = await results(retinue)
    assert [each.not_run for each in found] == ["", "forbidden"]
    assert "retinue mcp trust own" in found[1].text
    assert not (world.project / "started-changed").exists()
    assert world.starts() == starts


async def test_a_server_that_is_changed_while_it_runs_is_not_started_again(world: World) -> None:
    own_server(world)
    echo = call("mcp__own__echo", text="hi")
    found = await world.ask(echo, CHANGE, call("mcp__own__crash"), echo, settings=WRITES)
    assert [each.not_run for each in found] == ["", "", "forbidden", "forbidden"]
    assert not (world.project / "started-changed").exists()


async def test_a_server_that_was_changed_starts_in_the_same_run_once_a_person_trusts_it(world: World) -> None:
    own_server(world)
    changed = (world.project / "server.py").read_text() + "\n# another\n"
    echo = call("mcp__own__echo", text="hi")
    steps = [call("write", path="server.py", content=changed), echo, call("ls"), echo]
    async with world.open(steps, settings=WRITES) as retinue:
        await trusting(retinue)
        server = retinue.services.mcp.servers["own"]
        tools = retinue.services.mcp.listings["own"].tools

        def tell(event: Any) -> None:
            if getattr(event, "name", "") == "ls":
                Trust().add(server, tools)  # as another process does

        found = await results(retinue, tell)
    assert [each.not_run for each in found] == ["", "forbidden", "", ""]


async def test_compiled_modules_that_lie_beside_a_server_are_not_run(world: World) -> None:
    own_server(world)
    helper, script = world.project / "helper.py", world.project / "server.py"
    script.write_text(
        "import helper\n" + script.read_text().replace("from __future__ import annotations\n", "")
    )
    good = "x = 1".ljust(len(EVIL) - 1) + "\n"
    helper.write_text(EVIL)
    os.utime(helper, (1, 1))
    py_compile.compile(str(helper), doraise=True)
    helper.write_text(good)
    os.utime(helper, (1, 1))
    found = await world.ask(call("mcp__own__echo", text="hi"))
    assert found[0].not_run == ""
    assert not (world.project / "started-changed").exists()


def server_of(project: Path, definition: dict[str, Any]) -> ServerConfig:
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"s": definition}}))
    (found,) = of_project(project)
    return found


@pytest.fixture
def repository(world: World) -> Path:
    for name in FILES:
        path = world.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (world.project / "srv.py").write_text("import os, helper\nfrom pk.deep import part\n")
    (world.project / "run.sh").write_text("#!/bin/sh\nexec python3 ./srv.py\n")
    (world.project / "sub/dist/index.js").write_text("const l = require('./lib')\n")
    (world.project / "package.json").write_text('{"scripts": {"mcp": "node sub/dist/index.js"}}')
    (world.project / "lnk.py").symlink_to("srv.py")
    (world.project / ".git").mkdir()
    return world.project


@pytest.mark.parametrize(
    ("definition", "changed"),
    [
        ({"command": "python3", "args": ["srv.py"]}, "srv.py helper.py pk/deep/part.py"),
        ({"command": "python3", "args": ["-u", "lnk.py"]}, "srv.py helper.py"),
        ({"command": "python3", "args": ["${PWD}/srv.py"]}, "srv.py"),
        ({"command": "python3", "args": ["-m", "srv"]}, "srv.py helper.py"),
        ({"command": "python3", "args": ["-m", "pk"]}, "pk/__main__.py pk/deep/part.py"),
        ({"command": "python3", "args": ["pk"]}, "pk/__main__.py pk/deep/part.py"),
        ({"command": "python3", "args": ["-c", "import srv"]}, "srv.py helper.py"),
        ({"command": "sh", "args": ["-c", "exec python3 srv.py"]}, "srv.py"),
        ({"command": "sh", "args": ["-c", "./run.sh --x"]}, "run.sh srv.py"),
        ({"command": "./run.sh"}, "run.sh srv.py helper.py"),
        ({"command": "python3", "args": ["-u", "--config=conf.json"]}, "conf.json"),
        ({"command": "node", "args": ["sub/dist"]}, "sub/dist/index.js sub/dist/lib.js"),
        ({"command": "node", "args": ["sub/dist/index"]}, "sub/dist/index.js sub/dist/lib.js"),
        ({"command": "node", "args": ["index.js"], "cwd": "sub/dist"}, "sub/dist/index.js sub/dist/lib.js"),
        ({"command": "node", "args": ["."]}, "package.json sub/dist/index.js"),
        ({"command": "make", "args": ["x"]}, "Makefile"),
        ({"command": "npm", "args": ["run", "mcp"]}, "package.json sub/dist/index.js"),
        ({"command": "true", "env": {"PYTHONSTARTUP": "srv.py"}}, "srv.py"),
        ({"command": "node", "env": {"NODE_OPTIONS": "--require ./sub/dist/index.js"}}, "sub/dist/lib.js"),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:60],
)
def test_every_file_of_the_repository_that_a_command_leads_to_is_trusted_with_it(
    repository: Path, definition: dict[str, Any], changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWD", str(repository))
    server = server_of(repository, definition)
    for name in changed.split():
        before, text = server.sha256, (repository / name).read_text()
        (repository / name).write_text(text + " ")
        assert server.sha256 != before, name
        (repository / name).write_text(text)
        assert server.sha256 == before


@pytest.mark.parametrize(
    "args",
    [
        ["uvx", "mcp-server-git", "--repository", "."],
        ["npx", "-y", "@modelcontextprotocol/server-filesystem", "./docs", "."],
        ["python3", "-m", "mcp_server_git", "--repository", "."],
        ["python3", "srv.py", "docs"],
    ],
)
def test_a_folder_that_a_server_only_works_on_may_change(repository: Path, args: list[str]) -> None:
    server = server_of(repository, {"command": args[0], "args": args[1:]})
    before = server.sha256
    (repository / "docs/page.md").write_text("more")
    (repository / "docs/other.md").write_text("more")
    (repository / "README.md").write_text("more")
    assert server.sha256 == before


@pytest.mark.parametrize(
    ("command", "comes"),
    [
        ("python3 srv.py", "json/__init__.pyc"),
        ("python3 pk/__main__.py", "pk/deep.pyc"),
        ("python3 pk/__main__.py", "pk/json/__init__.pyc"),
        ("python3 -m mcp_server_git", "json.py"),
        ("python3 -m mcp_server_git", "json/__init__.pyc"),
        ("python3.11 -c pass", "re.pyc"),
        ("sh run.sh", "re.pyc"),
        ("npm run mcp", ".npmrc"),
        ("npx -y some-server", ".npmrc"),
        ("yarn mcp", ".yarnrc.yml"),
        ("pnpm mcp", ".pnpmfile.cjs"),
        ("bun run mcp", "bunfig.toml"),
        ("node sub/dist/index.js", "sub/dist/package.json"),
        ("uv run mcp", "uv.toml"),
        ("make x", "local.mk"),
        ("cargo run", ".cargo/config.toml"),
        ("docker compose up", "compose.override.yaml"),
    ],
)
def test_a_file_that_comes_where_the_program_would_look_for_it_counts(
    repository: Path, command: str, comes: str
) -> None:
    program, *args = command.split()
    server = server_of(repository, {"command": program, "args": args})
    before = server.sha256
    (repository / comes).parent.mkdir(parents=True, exist_ok=True)
    (repository / comes).write_bytes(b"")
    assert server.sha256 != before


def test_what_a_start_script_finds_beside_itself_is_trusted_with_it(repository: Path) -> None:
    (repository / "sub/start.sh").write_text('#!/bin/sh\nexec python3 "$(dirname "$0")/x.py"\n')
    (repository / "sub/x.py").write_text("")
    server = server_of(repository, {"command": "sub/start.sh"})
    before = server.sha256
    (repository / "sub/x.py").write_text("import os")
    assert server.sha256 != before


async def test_a_server_of_the_persons_own_does_not_start_in_a_repository(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a file of that repository that is called like a module would run with the person's rights."""
    home = world.project.parent / "own-home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (world.project / "json.py").write_text(f"open({str(world.project / 'ran')!r}, 'w')\n")
    argv = ("-c", "import json, os, pathlib; pathlib.Path('where').write_text(os.getcwd())")
    written = McpServerSettings(command=sys.executable, args=argv)
    for cwd, where in ((None, home), (".", world.project)):
        server = ServerConfig(
            name="mine",
            scope="user",
            origin="config.toml",
            folder=None,
            written=msgspec.structs.replace(written, cwd=cwd),
        )
        async with world.open([], settings={}) as retinue:
            with contextlib.suppress(Exception):  # it is no server at all
                await retinue.services.mcp.list_now(server, retinue.settings.mcp)
        assert (where / "where").read_text() == str(where)
    assert (world.project / "ran").exists()  # the person said that it is to start there


@pytest.mark.parametrize("given", ["by the program", "by the environment"])
async def test_a_server_that_a_program_or_a_variable_gives_does_not_start_in_a_repository(
    world: World, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    home = world.project.parent / "own-home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (world.project / "json.py").write_text(f"open({str(world.project / 'ran')!r}, 'w')\n")
    argv = ["-c", "import json, os, pathlib; pathlib.Path('where').write_text(os.getcwd())"]
    servers = {"mine": {"command": sys.executable, "args": argv}}
    options: dict[str, Any] = {"settings": {"mcp.servers": servers}}
    if given == "by the environment":
        monkeypatch.setenv("RETINUE_MCP_SERVERS", json.dumps(servers))
        options = {}
    async with world.open([], **options) as retinue:
        server = retinue.services.mcp.servers["mine"]
        with contextlib.suppress(Exception):  # it is no server at all
            await retinue.services.mcp.list_now(server, retinue.settings.mcp)
    assert (home / "where").read_text() == str(home)
    assert not (world.project / "ran").exists()


async def test_a_server_of_the_persons_own_is_no_program_of_the_project(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor is what it starts itself: an activated environment of the project is on the `PATH`."""
    theirs, mine = world.project / ".venv/bin", tmp_path / "bin"
    for folder in (theirs, mine):
        folder.mkdir(parents=True)
        for name, text in (("own", "other"), ("other", f"touch {folder}/ran")):
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{theirs}:{mine}:{os.environ['PATH']}")
    written = McpServerSettings(command="own")
    server = ServerConfig(name="mine", scope="user", origin="config.toml", folder=None, written=written)
    async with world.open([], settings={}) as retinue:
        with contextlib.suppress(Exception):  # it is no server at all
            await retinue.services.mcp.list_now(server, retinue.settings.mcp)
    assert (mine / "ran").exists()
    assert not (theirs / "ran").exists()
    (mine / "own").unlink()
    async with world.open([], settings={}) as retinue:
        await retinue.services.mcp.list_now(server, retinue.settings.mcp)
    assert not (theirs / "ran").exists()


def test_a_module_that_comes_beside_a_program_and_a_link_that_leads_elsewhere_count(repository: Path) -> None:
    server = server_of(repository, {"command": "python3", "args": ["srv.py"]})
    before = server.sha256
    (repository / "argparse.py").write_text("")
    assert server.sha256 != before
    server = server_of(repository, {"command": "./out/tool"})
    (repository / "out").mkdir()
    (repository / "out/tool").symlink_to("/bin/true")
    before = server.sha256
    (repository / "out/tool").unlink()
    (repository / "out/tool").symlink_to("/bin/sh")
    assert server.sha256 != before


def test_a_repository_that_names_itself_without_an_end_is_looked_through_up_to_a_bound(
    repository: Path,
) -> None:
    for number in range(20):
        words = "\n".join(f"./d/{number}/{each}.sh" for each in range(500))
        (repository / f"n{number}.sh").write_text(
            f"#!/bin/sh\n{words}\n" + " ".join(f"./n{n}.sh" for n in range(20))
        )
    with open(repository / "n0.sh", "ab") as file:
        file.truncate(MOST_READ + 1)
    os.mkfifo(repository / "n31.sh")
    server = server_of(repository, {"command": "sh", "args": [f"n{number}.sh" for number in range(32)]})
    files = server.files
    assert len(files.digests) <= MOST_FILES
    assert len(files.named) <= MOST_NAMED
    before = server.sha256
    os.utime(repository / "n0.sh", (1, 1))
    assert server.sha256 != before


def test_what_an_agent_file_starts_is_trusted_in_the_whole_repository(repository: Path) -> None:
    folder = repository / ".retinue/agents"
    folder.mkdir(parents=True)
    server = server_of(repository, {"command": "python3", "args": ["../../srv.py"]})
    server = ServerConfig(name="s", written=server.written, scope="agent", origin="x", folder=folder)
    before = server.sha256
    (repository / "srv.py").write_text("import sys\n")
    assert server.sha256 != before


async def test_what_was_changed_while_a_person_thought_about_it_is_not_trusted(repository: Path) -> None:
    server = server_of(repository, {"command": "python3", "args": ["srv.py"]})
    shown = server.sha256
    (repository / "srv.py").write_text("import sys\n")
    trust = Trust()
    trust.add(server, None, shown)
    assert trust.state(server) == "changed"
