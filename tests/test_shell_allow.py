"""Allow rules for commands: an allowed one carries no other."""

from __future__ import annotations

import pytest

from retinue.authority.shell.allow import covers
from shell_rules import judge, published

# What would run CMD, write F or read more than the rule says, behind the documentation's own rule.
CARRIED = r"""
git status $[$'a[\x24(CMD)]']
git status $[a[$(CMD)]]
git status $((a[$(CMD)]))
git status `CMD`
git status "`CMD`"
git status "$(CMD)"
git status ${x:-$(CMD)}
git status ${x@P}
git status "${!x}"
git status $x
git status "$x"
git status <(CMD)
git status >(CMD)
git status > F
git status >F
git status>F
git status 2>F
git status >> F
git status >| F
git status <> F
git status &> F
git status >& F
git status 1<&2 >F
git status < F
git status <<< F
git status {a,b}
git status {1..3}
git status & CMD
git status &
git status | CMD
git status |& CMD
git status || CMD
git status && CMD
git status ; CMD
git status; (CMD)
git status; { CMD; }
(CMD); git status
{ CMD; git status; }
if CMD; then git status; fi
if git status; then CMD; fi
while git status; do CMD; done
until CMD; do git status; done
for x in $(CMD); do git status; done
for PATH in /tmp; do git status; done
select x in a; do git status; done
case $(CMD) in *) git status;; esac
git() { CMD; }; git status
function git { CMD; }; git status
alias git=CMD; git status
git status\
CMD
PATH=/tmp git status
PATH=/tmp; git status
export PATH=/tmp; git status
GIT_PAGER=CMD git status
coproc git status
coproc CMD
! CMD
time CMD
time -p CMD
time "-p" git status
time ''-p git status
time { CMD; }
env CMD
env -S CMD git status
env PATH=/tmp git status
exec CMD
exec git status
command CMD
builtin eval CMD
nohup CMD
nice CMD
timeout 5 CMD
xargs CMD
git status | xargs CMD
git status | xargs git status
git status | sh
git status | xargs -I git git status
eval git status
source git status
. git status
test -v 'a[$(CMD)]'
[ -v 'a[$(CMD)]' ]
[[ 'a[$(CMD)]' -eq 0 ]]
[[ a -eq b ]]
printf -v 'a[$(CMD)]' x
let 'a[$(CMD)]'
((a[$(CMD)]))
declare 'a[$(CMD)]=x'
declare -i x='a[$(CMD)]'
typeset -n x='a[$(CMD)]'
export 'a[$(CMD)]=x'
readonly 'a[$(CMD)]=x'
read 'a[$(CMD)]'
mapfile -C CMD
unset 'a[$(CMD)]'
wait -p 'a[$(CMD)]'
getopts x 'a[$(CMD)]'
trap CMD EXIT
trap CMD EXIT; git status
bind -x '"a":CMD'
complete -C CMD git
hash -p /tmp/x git; git status
enable -f CMD git
set -x; git status
shopt -s expand_aliases; git status
cd /tmp && git status
pushd /tmp && git status
git status $'x'
git status $"x"
git status ~root
git status a=~
git status +(a)
git status @(a|b)
git status *
git -C /tmp status
git -c core.fsmonitor=CMD status
git statusx
git 'status x'
gi? status
/tmp/git status
./git status
git status; git push
git status ;; CMD
git status )
git status (
git status 'a
git status "a
git status \
((git status))
[[ git status ]]
git status é
git status !x
"""


@pytest.mark.parametrize(
    "command", [line for line in CARRIED.replace("\\\nCMD", "\\⏎CMD").split("\n") if line]
)
def test_nothing_runs_behind_the_rule_that_the_documentation_gives(command: str) -> None:
    command = command.replace("⏎", "\n")
    assert judge(command, allow=["bash(git status*)"]) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "git status\rCMD",
        "git status\vCMD",
        "git\u00a0status",
        "git status\u2028CMD",
        "git status\x01",
        "git status '\x01'",
        "git status '\x7f'",
        "git status \x85CMD",
        "git status\0CMD",
        "git status '\udc80'",
        "git status <<E\n$(CMD)\nE",
        "git status <<'E'\nx\nE",
        "git status -\\\n-x",
        'git status "你\\" ; CMD #"',
        'git status "é\\"; CMD; \\"é"',
    ],
)
def test_invisible_signs_and_here_documents_are_not_plain(command: str) -> None:
    assert judge(command, allow=["bash(git status*)"]) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git  status\t-s",
        " git status ",
        "git status;",
        "git status -s --branch",
        "git status 'a b' \"c d\" e\\ f",
        "git status '$(CMD)'",
        'git status "a\\$b"',
        "git status 2>/dev/null",
        "git status >/dev/null 2>&1",
        "git status && git status -s",
        "(git status)",
        "{ git status; }",
        "! git status",
        "time git status",
        "timeout 5 git status",
        "nice -n 5 git status",
        "env git status",
        "command git status",
        "if git status; then git status -s; else git status -b; fi",
        "git status # how it stands",
        "# how it stands\ngit status",
        "git status\n\ngit status -s\n",
        "git status HEAD~2 stash@{0} HEAD^",
        "'git' \"status\"",
    ],
)
def test_what_is_plainly_the_allowed_command_runs(command: str) -> None:
    assert judge(command, allow=["bash(git status*)"]) == "allow"


@pytest.mark.parametrize(
    ("pattern", "allowed", "asks"),
    [
        ("git diff*", ["git diff", "git diff a b"], ["git difftool -x CMD", "git diffx"]),
        ("git diff *", ["git diff", "git diff a b"], ["git difftool -x CMD"]),
        ("ls*", ["ls", "ls -l a"], ["lsof", "lsblk"]),
        ("make test", ["make test", "make  'test'"], ["make test x", "make", "make testx"]),
        ("make test-*", ["make test-unit"], ["make test", "make test-unit SHELL=CMD", "make test-a test-b"]),
        ("npm run *", ["npm run build", "npm run a b"], ["npm install", "npm --script-shell=CMD run a"]),
        ("cat docs/*", ["cat docs/a.md"], ["cat docs/../.env", "cat docs/a .env", "cat docs/*", "cat a"]),
        ("docker logs * --tail 5", ["docker logs web --tail 5"], ["docker logs -f --tail 5", "docker logs a b --tail 5"]),
        ("grep 'a*' x", ["grep 'a*' x"], ["grep ab x"]),
        ("PYTHONPATH=. pytest*", ["PYTHONPATH=. pytest -q"], ["pytest", "PYTHONPATH=/x pytest", "A=1 PYTHONPATH=. pytest"]),
        ("*", ["ls", "anything at all"], ["eval x", "ls > F", "ls $x", "sudo ls", "ls | sh"]),
        ("./scripts/*", ["./scripts/check"], ["./scripts/../../x", "./scripts/check now"]),
        ("source .venv/bin/activate", ["source .venv/bin/activate"], ["source other", "source .venv/bin/activate x"]),
        ("test *", [], ["test -f x", "test -v 'a[$(CMD)]'"]),
        ("timeout 60 *", [], ["timeout 60 rm x"]),
        ("timeout 60 make*", ["timeout 60 make all"], ["timeout 60 rm x", "timeout 60 make SHELL=CMD"]),
        ("sudo *", [], ["sudo rm x", "sudo -u root rm x"]),
        ("xargs wc*", ["xargs wc -l"], ["xargs rm", "xargs -I{} sh -c {}"]),
        ("xargs git log*", [], ["xargs git log"]),
        ("python -m json.tool*", ["python -m json.tool a.json"], ["python -c x"]),
        ("echo $HOME", ["echo $HOME"], ["echo $HOME x", "echo /root"]),
    ],
)  # fmt: skip
def test_a_pattern_means_words_and_a_star_never_makes_a_word_longer(
    pattern: str, allowed: list[str], asks: list[str]
) -> None:
    rule = [f"bash({pattern})"]
    assert {command: judge(command, allow=rule) for command in allowed} == dict.fromkeys(allowed, "allow")
    assert {command: judge(command, allow=rule) for command in asks} == dict.fromkeys(asks, "ask")


@pytest.mark.parametrize(
    "command",
    [
        "git log --output=F",
        "git log --outp=F",
        "git log --output F",
        "git diff --ext-diff",
        "git diff --ext",
        "git log --show-signature",
        "git log --format=%G?",
        "git log -1 --format=%-GS",
        "git log -1 '--format=% GK'",
        "git log -1 --pretty=%+GG",
        "git show -s --format='%>(9)%+G?'",
        "git log -1 --format='%(describe)'",
        "git log -1 --format='%(describe:tags)'",
        "git branch --list --format='%(signature)'",
        "git branch --list --format='%(*signature:grade)'",
        "git status --help",
        "git log --help",
        "git diff --help -w",
        "git blame --output=F x",
        "git grep -OCMD x",
        "git grep -nO x",
        "git grep --open-files-in-pager=CMD x",
        "git branch --list --edit-description",
        "rg --pre CMD x",
        "rg --pre=CMD x",
        "rg --hostname-bin CMD x",
        "rg -z x",
        "rg -nz x",
        "find . -exec CMD {} +",
        "find . -execdir CMD ;",
        "find . -ok CMD ;",
        "find . -delete",
        "find . -fprintf F x",
        "find . -name *.py",
        "sort -o F x",
        "sort -ro F x",
        "sort --output=F x",
        "sort --out=F x",
        "sort --compress-program=CMD x",
        "sort *",
        "sed -n 'w F' x",
        "sed -n 's/a/CMD/e' x",
        "sed -n '1e CMD' x",
        "sed -n 's/a/b/w F' x",
        "sed -n 's/a/b/gw F' x",
        "sed -n -i 1p x",
        "sed -n -i.bak 1p x",
        "sed -n --in-place 1p x",
        "sed -n -f F x",
        "sed -n -e 1p -e 'w F' x",
        "sed -n --expression='w F' x",
        "sed -n '1p\nw F' x",
        "sed -n '1p;w F' x",
        "sed -n '/a/w F' x",
        "sed -n '1,2{w F\n}' x",
        "sed -n -s --posix 'W F' x",
        "sed -n '1r F' x",
        "sed -ni 1p x",
        "make test SHELL=CMD",
        "make test -f F",
        "make  test > F",
        "cat x > F",
        "cat x | tee F",
        "ls | xargs rm",
        "git ls-files | xargs rg x",
        "ls | xargs -I% sh -c %",
    ],
)
def test_options_that_run_a_program_or_write_a_file_ask_under_the_published_rules(command: str) -> None:
    assert judge(command, allow=published()) == "ask"


@pytest.mark.parametrize("command", ["git --help log", "git help log", "git -P help log"])
def test_the_manual_is_a_program_too(command: str) -> None:
    assert judge(command, allow=["bash(git *)"]) == "ask"
    assert judge(command, allow=[f"bash({command})"]) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git log --format='%(trailers:key=Reviewed-by)'",
        "git log --format='%>(20)%an %-b %+d'",
        "git branch --list --format='%(contents:signature)'",
        "git log -G'connect' --format=%h",
        "git diff -O/dev/null",
    ],
)
def test_formats_that_run_nothing_are_meant(command: str) -> None:
    assert judge(command, allow=published()) == "allow"


def test_an_option_that_the_rule_itself_names_is_meant() -> None:
    assert judge("git log --output=log.txt", allow=["bash(git log --output=log.txt*)"]) == "allow"
    assert judge("sort -o out in", allow=["bash(sort -o out *)"]) == "allow"


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("git log | head", "allow"),
        ("git log --oneline | head -5", "allow"),
        ("git log | tee F", "ask"),
        ("git log | head | tee F", "ask"),
        ("git log | head && CMD", "ask"),
        ("git log & head", "ask"),
        ("git log && head", "ask"),
        ("git log || head", "ask"),
        ("git log; head", "ask"),
        ("head", "ask"),
        ("git log", "ask"),
        ("head | git log", "ask"),
    ],
)
def test_a_rule_that_holds_a_pipe_means_that_pipeline_and_nothing_behind_it(
    command: str, verdict: str
) -> None:
    assert judge(command, allow=["bash(git log* | head*)"]) == verdict


def test_a_rule_of_several_commands_means_them_in_their_order() -> None:
    rule = ["bash(cd web && npm test*)"]
    assert judge("cd web && npm test -- --watch=false", allow=["bash(cd web && npm test *)"]) == "ask"
    assert judge("make lint && make test", allow=["bash(make lint && make test)"]) == "allow"
    assert judge("make lint  &&  make test", allow=["bash(make lint && make test)"]) == "allow"
    assert judge("make test && make lint", allow=["bash(make lint && make test)"]) == "ask"
    assert judge("make lint", allow=["bash(make lint && make test)"]) == "ask"
    assert judge("make lint || make test", allow=["bash(make lint && make test)"]) == "ask"
    assert judge("npm test", allow=rule) == "ask"


def test_every_part_of_a_command_must_be_meant_by_some_rule() -> None:
    rules = ["bash(git status*)", "bash(ls*)"]
    assert judge("git status && ls -l | ls", allow=rules) == "allow"
    assert judge("git status && ls -l | wc", allow=rules) == "ask"


def test_a_shell_that_reads_a_pipe_asks_even_if_it_is_allowed_by_itself() -> None:
    rules = ["bash(cat *)", "bash(python*)", "bash(sh)"]
    assert judge("cat x | sh", allow=rules) == "ask"
    assert judge("cat x | python", allow=rules) == "ask"
    assert judge("cat x | python -", allow=rules) == "ask"
    assert judge("cat x | python -m json.tool", allow=rules) == "allow"
    assert judge("cat x | sh", allow=["bash(cat x | sh)"]) == "allow", "who writes it means it"


@pytest.mark.parametrize(
    "before", ["", "command ", "time ", "builtin ", "command -p ", "time -p command ", "env "]
)
def test_who_goes_to_another_folder_behind_a_wrapper_runs_nothing_of_it(before: str) -> None:
    allow = [
        "bash(cd *)",
        *(f"bash({before}cd *)" for _ in before[:1]),
        "bash(git status*)",
        "bash(make test)",
    ]
    for joint in (" && ", "; "):
        assert judge(f"{before}cd sub{joint}git status", allow=allow) == "ask"
        assert judge(f"{before}cd sub{joint}make test", allow=allow) == "ask"


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("git --no-pager log -3", True),
        ("git -P --no-optional-locks log", True),
        ("git -C . log", True),
        ("git -C ./ --no-pager log -1", True),
        ("git log || true", True),
        ("git log || :", True),
        ("git log && false", True),
        ("git -C .. log", False),
        ("git -C /tmp log", False),
        ("git -C . -C .. log", False),
        ("git -C . push", False),
        ("git --no-pager -c a=b log", False),
        ("git --no-pager log --output=F", False),
        ("git --no-pager", False),
        ("git -C .", False),
        ("git log || true > F", False),
        ("git log || rm x", False),
        ("git log || X=1 true", False),
        ("true", False),
    ],
)
def test_what_is_provably_the_same_runs_under_the_rule_for_the_plain_form(command: str, runs: bool) -> None:
    assert bool(covers(command, ("git log*",))) is runs
