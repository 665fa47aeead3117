"""Which settings of git run something of the project: such a project is one where sealed commands ask."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from retinue.authority.git_commands import run_from

INSIDE = {
    "remote": ("remote.origin.url", "ext::./fetch.sh %S"),
    "push": ("remote.origin.pushurl", "ext::sh -c ./fetch.sh"),
    "rewritten": ("url.ext::./fetch.sh %S.insteadof", "there:"),
    "tunnel": ("imap.tunnel", "./tunnel.sh"),
    "a module": ("filter.f.clean", "python -m tools.clean"),
    "a script for an interpreter": ("filter.f.clean", "python3 tools/clean.py"),
    "a target": ("diff.d.textconv", "make text"),
    "a target of make alone": ("filter.f.smudge", "make"),
    "a script of a package": ("merge.m.driver", "npm run merge %O %A %B"),
    "in another folder": ("core.fsmonitor", "cd tools && ./watch"),
    "by a variable": ("core.pager", '"$PWD/page"'),
    "by what a command prints": ("core.editor", '"$(git rev-parse --show-toplevel)/edit"'),
    "through a shell": ("gpg.program", "sh -c ./sign"),
    "through env": ("core.sshCommand", "env X=1 tools/ssh"),
    "by a path": ("filter.f.process", "tools/clean.sh"),
    "by a whole path": ("core.askpass", "PROJECT/ask"),
    "by an option": ("core.pager", "page --config=./page.rc"),
    "by the value of an option": ("core.editor", "emacs --load=setup"),
    "what a folder's settings bring along": ("filter.f.clean", "prettier --stdin-filepath %f"),
    "a program that is harmless to run, and brings the folder's own along": ("core.fsmonitor", "pytest -q"),
    "unknown words": ("filter.f.clean", "acme clean"),
    "a helper for passwords": ("credential.helper", "!tools/password"),
    "a helper for passwords of one host": ("credential.https://example.org.helper", "!make password"),
    "an alias": ("alias.x", "!make x"),
    "an alias with a function": ("alias.x", "!f() { git status && tools/x; }; f"),
    "a tool for differences": ("difftool.d.cmd", 'python -m d "$LOCAL" "$REMOTE"'),
    "the path of a tool": ("mergetool.m.path", "tools/merge"),
    "a tool of a window": ("guitool.g.cmd", "make g"),
    "a browser": ("browser.b.cmd", "./open"),
    "a reader of manuals": ("man.m.cmd", "./man"),
    "who sends": ("sendemail.sendmailcmd", "tools/send"),
    "whom to send to": ("sendemail.tocmd", "tools/to"),
    "what a submodule runs": ("submodule.s.update", "!make s"),
    "no command at all": ("core.editor", "vi 'unclosed"),
}
OUTSIDE = {
    "an ordinary remote": ("remote.origin.url", "https://192.0.2.1/x.git"),
    "an editor": ("core.editor", "vim"),
    "an editor that waits": ("core.editor", "code --wait"),
    "a pager": ("core.pager", "less -FRX"),
    "no pager": ("pager.log", "false"),
    "a watch of git's own": ("core.fsmonitor", "true"),
    "large files": ("filter.lfs.clean", "git-lfs clean -- %f"),
    "large files at work": ("filter.lfs.process", "git-lfs filter-process"),
    "closed files": ("filter.git-crypt.smudge", '"git-crypt" smudge'),
    "a filter of words": ("filter.f.clean", "sed 's/secret=.*/secret=/'"),
    "text of a document": ("diff.pdf.textconv", "pdftotext -layout"),
    "kept passwords": ("credential.helper", "cache --timeout 3600"),
    "passwords of GitHub": ("credential.https://github.com.helper", "!/usr/bin/gh auth git-credential"),
    "no helper": ("credential.helper", ""),
    "a signer": ("gpg.program", "/usr/bin/gpg2"),
    "a way of ssh": ("core.sshCommand", "ssh -i ~/.ssh/other"),
    "an alias of git": ("alias.lg", "log --graph --format='%h %s'"),
    "an alias of commands": ("alias.last", "!git log -1 | head -3"),
    "an alias with a function": ("alias.up", '!f() { git fetch "$1" && git rebase; }; f'),
    "a tool for differences": ("difftool.code.cmd", 'code --wait --diff "$LOCAL" "$REMOTE"'),
    "a tool for merges": ("mergetool.code.cmd", "code --wait $MERGED"),
    "the path of a tool": ("mergetool.meld.path", "/usr/bin/meld"),
    "a host for mail": ("sendemail.smtpserver", "smtp.example.org"),
    "a way to update": ("submodule.s.update", "rebase"),
    "a proxy for a host": ("core.gitproxy", "/usr/bin/proxy for example.org"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run(("git", "init", "-q"), cwd=folder, check=True)
    return folder


def found(project: Path, key: str, value: str) -> list[str]:
    value = value.replace("PROJECT", str(project))
    subprocess.run(("git", "config", key, value), cwd=project, check=True)
    return run_from(project, {"PATH": os.environ["PATH"], "HOME": str(project.parent)})


@pytest.mark.parametrize("name", INSIDE)
def test_a_setting_counts_that_may_run_something_of_the_project(project: Path, name: str) -> None:
    key, value = INSIDE[name]
    (told,) = found(project, key, value)
    assert told.lower() == f"the command in git's setting {key}".lower()


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_setting_does_not_count_that_runs_a_program_from_elsewhere(project: Path, name: str) -> None:
    assert found(project, *OUTSIDE[name]) == []


def test_a_program_of_the_project_counts_where_the_path_leads_to_it(project: Path) -> None:
    programs = project / ".venv/bin"
    programs.mkdir(parents=True)
    (programs / "acme").write_text("#!/bin/sh\n")
    (programs / "acme").chmod(0o755)
    subprocess.run(("git", "config", "filter.f.clean", "acme"), cwd=project, check=True)
    home = {"HOME": str(project.parent)}
    assert run_from(project, {**home, "PATH": os.environ["PATH"]}) == []
    assert len(run_from(project, {**home, "PATH": f"{programs}:{os.environ['PATH']}"})) == 1


def test_settings_of_the_person_and_of_repositories_in_the_project_count(project: Path) -> None:
    (project.parent / ".gitconfig").write_text('[filter "own"]\n\tclean = make own\n')
    inner = project / "inner"
    inner.mkdir()
    subprocess.run(("git", "init", "-q"), cwd=inner, check=True)
    subprocess.run(("git", "config", "diff.inner.textconv", "make inner"), cwd=inner, check=True)
    told = run_from(project, {"PATH": os.environ["PATH"], "HOME": str(project.parent)})
    assert [each.rpartition(" ")[2] for each in told] == ["filter.own.clean", "diff.inner.textconv"]
