"""What a sealed command leaves in the project makes nobody's git run a program; its walls are told to the model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from sealed import WHY_NOT, run

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=f"no command can be sealed off here: {WHY_NOT}")

PROGRAM = 'printf "#!/bin/sh\\necho ran > $PWD/ran.txt\\n" > run; chmod +x run; R=$PWD/run; P=$PWD; '
SUB = PROGRAM + "git init -q sub; git -C sub commit -q --allow-empty -m x; "
STRATEGY = PROGRAM + "mkdir git-merge-; cp run git-merge-/x; "
REBASE = "git commit -q --allow-empty -m b; GIT_SEQUENCE_EDITOR='sed -i s/^pick/break\\\\npick/' git rebase -q -i HEAD~1; "
MONITOR = "git -C sub config core.fsmonitor $R; "
BARE = "printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = ..\\n\\tfsmonitor = %s\\n' $R"
STATUS = "git status"
LEFT = {
    "a repository that was added": (f"{SUB} {MONITOR} git add sub", STATUS),
    "one that was added before it was changed": (f"{SUB} git add sub; {MONITOR}", STATUS),
    "one that was not added": (f"{SUB} {MONITOR}", "cd sub && git status"),
    "hooks in it": (f"{SUB} cp run sub/.git/hooks/pre-commit", "git -C sub commit --allow-empty -m y"),
    "settings that it includes": (
        f"{SUB} printf '[core]\\nfsmonitor = %s\\n' $R > more; printf '[include]\\npath = ../../more\\n' >> sub/.git/config; git add sub",
        STATUS,
    ),
    "a file that leads to another folder": (f"{SUB} {MONITOR} mv sub/.git g; echo 'gitdir: ../g' > sub/.git; git add sub", STATUS),
    "a link that leads to another folder": (f"{SUB} {MONITOR} mv sub/.git g; ln -s ../g sub/.git", "cd sub && git status"),
    "a submodule": (
        f"{SUB} {MONITOR} mkdir -p .git/modules; mv sub/.git .git/modules/sub; "
        "git config -f .git/modules/sub/config core.worktree ../../../sub; echo 'gitdir: ../.git/modules/sub' > sub/.git; git add sub",
        STATUS,
    ),
    "a work tree whose settings are elsewhere": (
        f"{SUB} {MONITOR} git worktree add -q wt; echo $P/sub/.git > .git/worktrees/wt/commondir; cp -r sub/.git/. g", "cd wt && git status",
    ),
    "a bare repository in a folder of the project": (
        f"{PROGRAM} mkdir -p src/objects src/refs; echo 'ref: refs/heads/m' > src/HEAD; printf '*' > src/.gitignore; {BARE} > src/config",
        "cd src && git status"),
    "a bare repository whose settings are elsewhere": (
        f"{PROGRAM} mkdir -p src g/objects g/refs; echo 'ref: refs/heads/m' | tee src/HEAD > g/HEAD; echo ../g > src/commondir; {BARE} > g/config; git config -f g/config alias.st !$R",
        "cd src && git st"),
    "one in a folder that is not looked into": (f"{SUB} {MONITOR} mkdir -p build/a; mv sub build/a/sub", "cd build/a/sub && git status"),
    "where nobody looks": (
        f"{SUB} {MONITOR} mkdir -p node_modules/a/b; mv sub node_modules/a/b/sub; git add -f node_modules", STATUS),
    "an index that is written in place": (
        f"{SUB} {MONITOR} cp .git/index i; GIT_INDEX_FILE=$P/i git add sub; cat i > .git/index", STATUS),
    "an index of the fourth version": (
        f"{SUB} {MONITOR} cp .git/index i; export GIT_INDEX_FILE=$P/i; git update-index --index-version 4; "
        "mkdir -p node_modules; mv sub node_modules/sub; git add -f node_modules/sub; cat i > .git/index", STATUS),
    "an index in two parts": (
        f"{SUB} {MONITOR} mkdir node_modules; mv sub node_modules/sub; git add -f node_modules/sub; git update-index --split-index", STATUS),
    "an index that is a folder": (f"{SUB} {MONITOR} rm .git/index; mkdir .git/index", "cd sub && git status"),
    "where every name to put it aside is taken": (
        f"{SUB} {MONITOR} touch sub/.git.from-sandbox sub/.git.from-sandbox{{2..120}}", "cd sub && git status"),
    "behind many folders": (f"mkdir -p z/{{1..9000}}; {SUB} {MONITOR} mkdir -p zz/y; mv sub zz/y/sub; git add zz/y/sub", STATUS),
    "a rebase with a step that runs something": (
        f"{PROGRAM} git commit -q --allow-empty -m b; GIT_SEQUENCE_EDITOR='sed -i s/^pick/break\\\\npick/' git rebase -q -i HEAD~1; "
        'printf "exec $R\\n" >> .git/rebase-merge/git-rebase-todo', "git rebase --continue"),
    "a rebase that is a link": (
        f"{PROGRAM} git commit -q --allow-empty -m b; GIT_SEQUENCE_EDITOR='sed -i s/^pick/break\\\\npick/' git rebase -q -i HEAD~1; "
        'printf "x $R\\n" > .git/rebase-merge/git-rebase-todo; mv .git/rebase-merge m; ln -s ../m .git/rebase-merge', "git rebase --continue"),
    "a rebase by a strategy of its own": (
        f"{STRATEGY} {REBASE} git rev-parse HEAD | sed 's/^/pick /' > .git/rebase-merge/git-rebase-todo; echo /x > .git/rebase-merge/strategy",
        "git rebase --continue"),
    "a rebase that cannot be listed": (
        f"{PROGRAM} {REBASE} printf \"exec $R\\n\" >> .git/rebase-merge/git-rebase-todo; chmod 300 .git/rebase-merge",
        "git rebase --continue"),
    "a rebase in a repository of its own": (
        f"{SUB} cd sub; {REBASE} printf \"exec $R\\n\" >> .git/rebase-merge/git-rebase-todo", "cd sub && git rebase --continue"),
    "picked commits by a strategy of its own": (
        f"{STRATEGY} mkdir .git/sequencer; git rev-parse HEAD | tee .git/sequencer/head > .git/CHERRY_PICK_HEAD; "
        'printf "pick $(git rev-parse HEAD) x\\npick $(git rev-parse HEAD) x\\n" > .git/sequencer/todo; '
        "printf '[options]\\n\\tstrategy = /x\\n' > .git/sequencer/opts", "git cherry-pick --skip; git cherry-pick --continue"),
}  # fmt: skip
UNDER_WAY = {
    "a rebase": ("git rebase -q main", "rebase --continue"),
    "a rebase with options": ("git rebase -q -X patience -X diff-algorithm=histogram --signoff main", "rebase --continue"),
    "a rebase by another strategy": ("git rebase -q -s resolve main", "rebase --continue"),
    "a rebase by patches": ("git rebase -q --apply --whitespace=fix -C1 main", "rebase --continue"),
    "a rebase that keeps merges": ("git rebase -q -r main", "rebase --continue"),
    "a rebase with stops": ("GIT_SEQUENCE_EDITOR='sed -i 1s/^pick/edit/' git rebase -q -i main", "rebase --continue"),
    "changed files put by": ("echo w > other; git rebase -q --autostash main", "rebase --continue"),
    "picked commits": ("git cherry-pick -x -X patience main~1 main", "cherry-pick --continue"),
    "commits taken back": ("git revert --no-edit HEAD~1 HEAD~2", "revert --continue"),
    "a merge": ("git merge -q main", "commit -q --no-edit"),
    "patches": ("git format-patch -q --stdout main~2..main > ../p; git am -q -3 ../p", "am --continue"),
    "a search": ("git bisect start HEAD HEAD~2 -- 'a b' x other; git bisect good", "checkout -q -f; git bisect reset"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDER_WAY)
async def test_what_git_itself_leaves_half_done_stays_and_goes_on_outside(world: Path, name: str) -> None:
    project = world / "project"
    make = (
        "git init -q -b main p; cd p; echo 0 | tee x other > 'a b'; git add .; git commit -q -m zero; git checkout -q -b side; "
        "for n in 1 2; do echo s$n > x; git commit -q -a -m side$n; done; git checkout -q main; "
        "for n in 1 2; do echo m$n > x; git commit -q -a -m main$n; done; git checkout -q side; "
    )
    begin, goes_on = UNDER_WAY[name]
    subprocess.run(["bash", "-c", f"{make} mv .git ../g; rm -rf ../.git; cp -a . ..; mv ../g ../.git"], cwd=project, check=True)  # fmt: skip
    subprocess.run(["rm", "-rf", str(project / "p")], check=True)
    subprocess.run(["git", "status"], cwd=project, check=True)
    text = await run(world, f"{begin} > out 2>&1; echo stopped; rm out")
    assert "put aside" not in text
    half_done = [
        each
        for each in ("rebase-merge", "rebase-apply", "sequencer", "MERGE_HEAD", "BISECT_LOG")
        if (project / ".git" / each).exists()
    ]
    assert half_done
    for number in range(3):
        subprocess.run(
            ["sh", "-c", f"echo r{number} > x; git add x; GIT_EDITOR=true git {goes_on}"],
            cwd=project,
            check=False,
        )
    assert not [each for each in half_done if (project / ".git" / each).exists()]


async def test_steps_that_a_person_wrote_stay_while_a_command_goes_on_with_them(world: Path) -> None:
    project = world / "project"
    subprocess.run(
        [
            "bash",
            "-c",
            f"{REBASE} echo 'exec true' >> .git/rebase-merge/git-rebase-todo; echo own > .git/rebase-merge/strategy",
        ],
        cwd=project,
        check=True,
    )
    assert "put aside" not in await run(world, "echo '# a remark' >> .git/rebase-merge/git-rebase-todo")
    assert "git-rebase-todo, now" in await run(world, "echo 'exec id' >> .git/rebase-merge/git-rebase-todo")
    assert (project / ".git/rebase-merge/strategy").read_text() == "own\n"


@pytest.mark.parametrize("name", LEFT)
async def test_git_runs_nothing_that_a_command_has_left(world: Path, name: str) -> None:
    project = world / "project"
    subprocess.run(["cp", "-a", str(project), str(world / "spare")], check=True)
    attack, afterwards = LEFT[name]
    with contextlib.suppress(Exception):  # ended before its time
        await run(world, attack)
    subprocess.run(["sh", "-c", afterwards], cwd=project, check=False)
    assert not (project / "ran.txt").exists()
    subprocess.run(["rm", "-rf", str(project)], check=True)
    (world / "spare").rename(project)
    await run(world, attack, sandbox="off")  # and where nothing is sealed, it does
    subprocess.run(["sh", "-c", afterwards], cwd=project, check=False)
    assert (project / "ran.txt").exists()


@pytest.mark.parametrize("kind", ["repository", "work tree"])
async def test_git_is_led_to_no_other_repository_where_it_has_none_yet(world: Path, kind: str) -> None:
    project, git = world / "project", world / "project/.git"
    own = git
    if kind == "work tree":
        project.rename(world / "main")
        git, own = world / "main/.git", world / "main/.git/worktrees/project"
        subprocess.run(["git", "-C", str(world / "main"), "worktree", "add", "-q", str(project)], check=True)
    shutil.rmtree(git / "branches", ignore_errors=True)
    before = sorted(git.rglob("*"))
    ways = [own / "modules", git / "remotes", git / "branches", git / "worktrees", git / "modules"]
    text = await run(
        world,
        "".join(f"mkdir -p {way}/sub 2>&1 && echo made; mv {way} {way}2 2>&1 && echo moved;" for way in ways)
        + f" echo /x > {git}/objects/info/alternates && echo written; mv {git}/objects {git}/o && echo moved; "
        "git worktree add -q w 2>&1; git commit -q --allow-empty -m second && git log --format=%s && git gc -q && git worktree list | sed 's/^/tree /'",
    )
    assert not {"made", "moved", "written"} & set(text.split())
    assert "second\nfirst\n" in text
    assert text.count("tree /") == (1 if kind == "repository" else 2)
    kept = {path for path in git.rglob("*") if not path.is_relative_to(git / "objects")}
    new = [
        path
        for path in kept
        if path not in before and not {"logs", "refs"} & set(path.relative_to(git).parts)
    ]
    assert {path.name for path in new} <= {"packed-refs", "COMMIT_EDITMSG", "ORIG_HEAD", "index"}


async def test_a_submodule_that_is_not_checked_out_brings_no_settings_of_a_command(world: Path) -> None:
    project = world / "project"
    script = (
        "git init -q up; git -C up commit -q --allow-empty -m x; git -c protocol.file.allow=always -C project submodule add -q ../up sub; "
        "git -C project commit -q -a -m sub; mv project full; git clone -q full project 2>&1"
    )
    subprocess.run(["sh", "-c", script], cwd=world, check=True, capture_output=True)
    attack = (
        f"{PROGRAM} git init -q --bare .git/modules/sub; cd .git/modules/sub; git config core.fsmonitor $R; "
        f"git config core.bare false; git config core.worktree ../../../sub; git config remote.origin.url {world}/up"
    )
    afterwards = (
        "git -c protocol.file.allow=always submodule update -q --init; cp sub/ran.txt ran.txt; ls sub/.git"
    )
    subprocess.run(["cp", "-a", str(project), str(world / "spare")], check=True)
    await run(world, attack)
    done = subprocess.run(["sh", "-c", afterwards], cwd=project, check=False, capture_output=True, text=True)
    assert done.stdout == "sub/.git\n"  # and it is checked out as ever
    assert not (project / "ran.txt").exists()
    subprocess.run(["rm", "-rf", str(project)], check=True)
    (world / "spare").rename(project)
    await run(world, attack, sandbox="off")  # and where nothing is sealed, it does
    subprocess.run(["sh", "-c", afterwards], cwd=project, check=False, capture_output=True)
    assert (project / "ran.txt").exists()


async def test_a_work_tree_that_comes_and_goes_meanwhile_does_not_end_a_command(world: Path) -> None:
    project = world / "project"
    running = asyncio.create_task(run(world, "touch begun; until [ -e go ]; do sleep 0.02; done; echo done"))
    while not (project / "begun").exists():
        await asyncio.sleep(0.02)
        assert not running.done()
    for words in ("add -q ../other", "prune", "remove ../other", "prune"):
        subprocess.run(["git", "-C", str(project), "worktree", *words.split()], check=True)
    (project / "go").touch()
    assert await running == "done\n[exit code 0]"
    assert not (project / ".git/worktrees").exists()


@pytest.mark.parametrize("kind", ["commit", "push"])
async def test_hooks_that_a_person_keeps_in_every_repository_are_not_brought_in(
    world: Path, kind: str
) -> None:
    with (world / "home/.gitconfig").open("a") as file:
        file.write("\n[core]\n\thooksPath = .h\n")
    project = world / "project"
    attack = f"{SUB} mkdir -p sub/.h sub/.git/.h; cp run sub/.h/pre-commit; cp run sub/.git/.h/post-receive"
    afterwards = (
        "git -C sub commit -q --allow-empty -m y"
        if kind == "commit"
        else "git -C sub push -q . HEAD:refs/heads/pushed"
    )
    await run(world, attack)
    subprocess.run(["sh", "-c", afterwards], cwd=project, check=False)
    assert not (project / "ran.txt").exists()
    await run(world, f"rm -rf sub; {attack}", sandbox="off")  # and where nothing is sealed, it does
    subprocess.run(["sh", "-c", afterwards], cwd=project, check=False)
    assert (project / "ran.txt").exists()


THROUGH = {
    "the text of a commit": (
        "ln -sf $OUT/rc .git/COMMIT_EDITMSG; echo planted > .git/MERGE_MSG; echo b > b; git add b",
        "GIT_EDITOR=true git commit",
    ),
    "a reflog": ("ln -sf $OUT/rc .git/logs/HEAD; git branch planted", "git checkout planted"),
    "a reflog of a branch": (
        "mkdir -p .git/logs/refs/heads/x; ln -s $OUT/rc .git/logs/refs/heads/x/y",
        "git checkout -b x/y",
    ),
    "what was fetched": ("ln -s $OUT/rc .git/FETCH_HEAD", "git fetch ."),
    "the index": ("rm .git/index; ln -s $OUT/new .git/index", "git add -A"),
    "branches": ("ln -s $OUT .git/refs/heads/d", "git branch d/new"),
    "objects": (
        "h=$(echo z | git hash-object --stdin); ln -s $OUT .git/objects/${h:0:2}",
        "echo z | git hash-object -w --stdin",
    ),
    "a folder that cannot be listed": (
        "mkdir .git/refs/heads/q; ln -s $OUT .git/refs/heads/q/d; chmod 300 .git/refs/heads/q",
        "git branch q/d/new",
    ),
}


@pytest.mark.parametrize("name", THROUGH)
async def test_git_writes_through_no_link_that_a_command_has_left(world: Path, name: str) -> None:
    project, outside = world / "project", world / "elsewhere"
    outside.mkdir()
    (outside / "rc").write_text("mine\n")
    made, later = THROUGH[name]
    subprocess.run(["git", "branch", "known"], cwd=project, check=True)
    (project / ".git/refs/heads/own").symlink_to("known")  # a link of the person's stays
    said = await run(world, made.replace("$OUT", str(outside)))
    assert "put aside" in said
    subprocess.run(["sh", "-c", later], cwd=project, check=False, capture_output=True)
    assert {path.name: path.read_text() for path in outside.rglob("*")} == {"rc": "mine\n"}
    assert (project / ".git/refs/heads/own").is_symlink()


async def test_what_was_put_aside_is_told_and_kept(world: Path) -> None:
    text = await run(world, f"{SUB} {MONITOR} echo done")
    assert "done\n[put aside, since git would run programs for it" in text
    assert "fsmonitor" in (world / "project/sub/.git.from-sandbox/config").read_text()


async def test_a_repository_as_git_makes_it_stays_and_is_guarded_from_then_on(world: Path) -> None:
    text = await run(
        world,
        "git init -q sub; git clone -q . copy 2>&1; git init -q --bare b.git; cd sub; git commit -q --allow-empty -m x",
    )
    assert text == "[exit code 0]"
    text = await run(
        world,
        "git -C sub config core.fsmonitor x; git add sub; git -C copy log --format=%s; "
        "git push -q ./b.git HEAD:refs/heads/pushed; git -C b.git log --format='in b %s' pushed; git clone -q b.git c 2>&1",
    )
    assert "first\nin b first\n" in text
    assert "these stay as they are" in text
    assert "fsmonitor" not in (world / "project/sub/.git/config").read_text()


async def test_repositories_that_were_there_stay_whatever_they_say(world: Path) -> None:
    project = world / "project"
    names = (
        "own",
        "deep/a/b/c/d",
        "node_modules/x",
        "node_modules/y",
        "dist",
        "build/_deps/z",
        "target/t",
        ".dots/u",
        ".venv/src/v",
    )
    for name in names:
        subprocess.run(["git", "init", "-q", str(project / name)], check=True)
        subprocess.run(["git", "-C", str(project / name), "config", "core.editor", "vi"], check=True)
        subprocess.run(
            ["git", "-C", str(project / name), "commit", "-q", "--allow-empty", "-m", "x"], check=True
        )
    subprocess.run(["git", "-C", str(project), "add", "-f", "node_modules/x"], check=True)
    text = await run(
        world,
        f"for r in {' '.join(names)}; do git -C $r config core.fsmonitor y; echo x > $r/.git/hooks/pre-commit; done; ls",
    )
    assert "put aside" not in text
    for name in names:
        assert not (project / name / ".git/hooks/pre-commit").exists()
        assert "fsmonitor" not in (project / name / ".git/config").read_text()


async def test_a_repository_that_was_not_looked_for_is_not_put_aside(world: Path) -> None:
    """There are more folders in `node_modules` than are looked into before a command, and less than after it."""
    project = world / "project"
    own = project / "node_modules/5/deep/own"
    subprocess.run(["git", "init", "-q", str(own)], check=True)
    subprocess.run(["git", "-C", str(own), "config", "core.editor", "vi"], check=True)
    for number in range(6, 1100):
        (project / f"node_modules/{number}").mkdir()
    while time.time() < own.joinpath(".git").lstat().st_ctime + 1.1:  # until it is older than the command
        await asyncio.sleep(0.01)
    text = await run(world, "touch node_modules/5/deep/own/new")
    assert text == "[exit code 0]"
    assert (own / ".git").exists()


async def test_a_command_that_adds_what_it_made_is_ended_at_once(world: Path) -> None:
    with pytest.raises(Exception, match=r"sub is a repository that it made and added.*put aside.*sub/\.git"):
        await run(world, f"{SUB} {MONITOR} git add sub; sleep 55")


async def test_what_is_left_is_put_aside_also_if_retinue_is_killed(world: Path, tmp_path: Path) -> None:
    """By the supervisor, which outlives it."""
    script = (
        "import asyncio, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); from sealed import run\n"
        "asyncio.run(run(Path(sys.argv[2]), sys.argv[3]))"
    )
    attack = f"{SUB} {MONITOR} touch begun; sleep 55"
    folder = str(Path(__file__).parent)
    process = subprocess.Popen([sys.executable, "-c", script, folder, str(world), attack])
    project = world / "project"
    while not (project / "begun").exists():
        await asyncio.sleep(0.01)
    process.kill()
    process.wait()
    while not (project / "sub/.git.from-sandbox").exists():
        await asyncio.sleep(0.01)
    assert not (project / "sub/.git").exists()


WITHOUT_POWERS = [
    *("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")
]


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv here")
@pytest.mark.parametrize(
    "closing", ["chmod 500 sub", "chmod 311 in; chmod 511 in/sub", "chmod 411 in", "chmod 0 in"]
)
def test_a_folder_that_a_command_has_closed_is_looked_into(world: Path, closing: str) -> None:
    """As a user who is not root, or as root without the power to read and write whatever there is."""
    script = (
        "import asyncio, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); from sealed import run\n"
        "asyncio.run(run(Path(sys.argv[2]), sys.argv[3]))"
    )
    place = "in/sub" if "in" in closing else "sub"
    attack = f"{SUB} {MONITOR} mkdir -p in; [ {place} = sub ] || mv sub in; {closing}"
    powers = WITHOUT_POWERS if os.geteuid() == 0 else []
    folder = str(Path(__file__).parent)
    subprocess.run([*powers, sys.executable, "-c", script, folder, str(world), attack], check=True)
    project = world / "project"
    subprocess.run(["chmod", "-R", "u+rwx", str(project)], check=True)
    assert (project / place / ".git.from-sandbox").exists()
    assert not (project / place / ".git").exists()


WALLS = {
    "settings of git": ("git config a.b c", "these stay as they are"),
    "hooks": ("touch .git/hooks/x", "these stay as they are"),
    "a download": ("git clone -q https://example.org/x y", "approvals.sandbox_network = true"),
    "a package": ("python3 -m pip install --retries 1 x-y-z", "approvals.sandbox_network = true"),
}  # fmt: skip


@pytest.mark.parametrize("name", WALLS)
async def test_what_a_command_runs_into_is_explained(world: Path, name: str) -> None:
    command, said = WALLS[name]
    assert said in await run(world, command)


async def test_nothing_is_explained_to_a_command_that_ran_into_nothing(world: Path) -> None:
    assert await run(world, "echo fine ModuleNotFoundError") == "fine ModuleNotFoundError\n[exit code 0]"
    assert "sandbox" not in await run(world, "echo 'Could not resolve host'", sandbox="open")


ALLOCATES = "import time; x = bytearray(SIZE); print(2 * len(x))"


async def test_memory_is_bounded_for_one_process_and_for_all_of_them(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retinue.sandbox.commands.view.most_memory", lambda: 400 * 1024**2)
    text = await run(world, f"python3 -c '{ALLOCATES.replace('SIZE', '600 * 1024**2')}'")
    assert str(1200 * 1024**2) not in text
    assert "has 0.4 GB of memory" in text
    held = ALLOCATES.replace("SIZE", "200 * 1024**2") + "; time.sleep(50)"
    with pytest.raises(Exception, match=r"took more than 0.4 GB of memory together"):
        await run(world, f'for i in 1 2 3; do python3 -c "{held}" & done; wait')
    assert str(200 * 1024**2) in await run(
        world, f"python3 -c '{ALLOCATES.replace('SIZE', '100 * 1024**2')}'"
    )


async def test_a_project_below_a_folder_for_temporary_files_is_sealed_too(world: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="retinue-test-") as folder:
        project = Path(folder) / "project"
        (world / "project").rename(project)
        assert await run(Path(folder), "cat a.txt; echo b > b.txt; echo c > /var/tmp/c") == "a\n[exit code 0]"
        assert (project / "b.txt").read_text() == "b\n"
        assert not Path("/var/tmp/c").exists()


@pytest.mark.skipif(not os.path.exists("/usr/bin/node"), reason="no node here")
async def test_node_runs_the_tests_of_a_project(world: Path) -> None:
    """Which reserves far more memory than it has."""
    (world / "project/package.json").write_text('{"name": "x", "scripts": {"test": "node --test"}}')
    (world / "project/a.test.js").write_text("require('node:test')('t', () => {});")
    assert "pass 1" in await run(world, "node --test 2>&1; npm test 2>&1")


async def test_who_is_told_to_stop_twice_still_has_put_right_what_the_command_left(world: Path) -> None:
    asked = world / "project/asked"
    slow = "mkdir -p z/{1..3000}; "  # to look through
    command = f"{slow}{SUB} {MONITOR} trap 'touch asked' TERM; touch begun; while :; do sleep 0.1; done"
    going = asyncio.create_task(run(world, command))
    for sign in (world / "project/begun", asked, None):
        async with asyncio.timeout(60):
            while sign is not None and not sign.exists():
                await asyncio.sleep(0.01)
        going.cancel()  # thrice: at work, in the moment that it has to clean up, and once more
    with pytest.raises(asyncio.CancelledError):
        await going
    assert not (world / "project/sub/.git").exists()
    assert "fsmonitor" in (world / "project/sub/.git.from-sandbox/config").read_text()
