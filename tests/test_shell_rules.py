"""Rules for commands: an allowed one carries no other, and a denied one is found however it is written."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.approvals import Asked, Rules, suggest_rule
from retinue.authority import shell
from retinue.events import ApprovalRequested
from retinue.settings import ApprovalSettings
from retinue.tools.base import tool
from test_approvals import answer, waiting
from trees import Stage

ROOT = Path(__file__).parent.parent
LINES = (ROOT / "tests/data/everyday_commands.txt").read_text().splitlines()
EVERYDAY = [line.replace("⏎", "\n") for line in LINES if not line.startswith("## ")]


def published() -> list[str]:
    """The rules of the documentation, as it shows them."""
    page = (ROOT / "docs/delegation.md").read_text().partition("### Twenty rules to begin with")[2]
    block = re.search(r"```toml\n(.*?)```", page, re.S)
    assert block is not None
    return tomllib.loads(block[1])["approvals"]["allow"]


def judge(command: str, **rules: list[str]) -> str:
    asked = Asked(tool="bash", effect="execute", risk="high", agent="general", arguments={"command": command})
    return Rules.of(ApprovalSettings(**{k: tuple(v) for k, v in rules.items()})).judge(asked).action


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


# Ways to write `git push`, and to run it behind something else.
DENIED = r"""
git push
git  push
git	push origin main
'git' push
"git" "push"
g\it p''ush
g'i't push
$'git' push
/usr/bin/git push
GIT push
git-push
/usr/lib/git-core/git-push
git -C x push
git -c a=b push
git --no-pager push
git --git-dir x push
git --git-dir=x --work-tree=y push
git pu\⏎sh
git \⏎  push
{ git push; }
( git push )
if git push; then :; fi
if :; then git push; fi
if :; then :; elif git push; then :; else git push; fi
for x in a b; do git push; done
while git push; do :; done
until git push; do :; done
select x in a; do git push; done
case x in x) git push;; esac
f() { git push; }; f
function f { git push; }
! git push
! { git push; }
time git push
time -p git push
coproc git push
env git push
env A=1 git push
env -i A=1 git push
env -u A git push
/usr/bin/env git push
X=1 git push
X=1 Y=2 git push
>o git push
> o git push
2>&1 git push
git >o push
git 2>/dev/null push
git push >o x
<<< x git push
nice git push
nice -n 5 git push
nohup git push
command git push
command -p git push
builtin command git push
exec git push
exec -a x git push
sudo git push
sudo -u me git push
sudo -E -H git push
doas git push
timeout 5 git push
timeout -k 1 5s git push
stdbuf -oL git push
setsid git push
ionice -c 3 git push
xargs git push
echo x | xargs -n 1 git push
find . -exec git push \;
find . -execdir git push {} +
bash -c 'git push'
sh -c "git push"
bash -lc 'make && git push'
bash -c -- 'git --git-dir .git push'
eval -- 'git --git-dir .git push'
bash -c "bash -c 'git push'"
env bash -c 'git push'
eval git push
eval 'git push'
eval 'eval "git push"'
trap 'git push' EXIT
watch 'git push'
watch -n 5 git push
echo $(git push)
echo `git push`
echo "$(git push)"
echo "${x:-$(git push)}"
x=$(git push)
echo <(git push)
cat > >(git push)
[[ -n $(git push) ]]
echo $(( $(git push) ))
make && git push
make || git push
make; git push
make & git push
make | git push
git push &
make⏎git push
cat <<E⏎$(git push)⏎E
git push "$X"
git push $X
# a comment⏎git push
ls # a comment⏎git push
"""


@pytest.mark.parametrize("command", [line for line in DENIED.split("\n") if line])
def test_a_denied_command_is_denied_however_it_is_written(command: str) -> None:
    command = command.replace("⏎", "\n")
    assert judge(command, allow=["bash"], deny=["bash(git push*)"]) == "deny"
    assert judge(command, allow=["bash"], ask=["bash(git push*)"]) == "ask"


# What may be `git push`, and cannot be read for sure.
UNSURE = r"""
$X push
$X
"$X" push
${X} push
git $X
git "$X"
git ${X:-push}
git $(echo push)
g{i,}t push
{git,push}
git {push,pull}
/usr/bin/gi? push
git pus[h]
$'g\x69t' push
git $'\x70ush'
echo "你\" ; g''it $X; ls #"
a=git; $a push
a='git push'; $a
eval $X
eval "$X"
eval "git $X"
eval "$(echo git push)"
bash -c "$X"
bash -c "git $X"
echo git push | sh
echo git push | bash -s
bash <<< 'git push'
sh <<E⏎git push⏎E
sh < F
sh
bash /dev/stdin
source <(echo git push)
. /dev/stdin
echo push | xargs git
echo git push | xargs env
xargs -I{} sh -c {}
find . -exec $X \;
env $X push
env -S 'git push'
sudo $X
time $X
git -c alias.x=push x
git -c alias.x='!git push' x
git $X push
git --config-env=alias.x=X x
GIT_CONFIG_COUNT=1 git x
BASH_ENV=F bash x
PS4='$(git push)'; set -x; ls
alias x='git push'; x
hash -p /usr/bin/git ls; ls push
complete -C 'git push' ls
echo $((x))
((x))
let x
x='a[$(git push)]'; echo $((x))
[[ x -eq 1 ]]
test -v x[1]
[ -v x ]
printf -v 'x[1]' a
declare 'x[1]=1'
declare -i x=y
unset 'x[$(git push)]'
echo ${!x}
echo ${x@P}
echo ${x[y]}
read 'x[1]'
echo 'git push' "$X"
git submodule foreach 'git push'
git rebase --exec 'git push' x
docker exec web git push
printf 'git pu' > o; printf sh >> o; sh o
echo 'g''it $X' > o; . ./o
python3 -c 'import os; os.system("git push")'
python3 -c 'import subprocess; subprocess.run(["git", "push"])'
perl -e 'exec qw(git push)'
awk 'BEGIN{system("git push")}'
tar cf o x --checkpoint=1 --checkpoint-action=exec='git push'
make --eval='x:;git push' x
git -c core.pager='git push' log
ssh host 'git push'
sed '1e git push' x
echo x | sed 's/.*/&/e'
env --split-string='g''it push'
env -S'git push'
cat <<-E⏎	`"git"	$(echo	push)`⏎	E
compgen -C 'git push' x
coproc N { trap 'g''it $X' ERR; false; }
: ${x:-`${x:-git} push`}
eval -- '$X push'
bash -c -- '$X push'
flock o $X push
setarch x86_64 g$@it push
{fd}>o bash -ec 'git pus${x}h'
uv run git push
npx git push
sudo echo git push
ls (
ls 'git
if
case x in
cat <<E
"""


@pytest.mark.parametrize("command", [line for line in UNSURE.split("\n") if line])
def test_what_cannot_be_read_for_sure_asks_under_a_deny_rule_and_never_runs_in_silence(command: str) -> None:
    command = command.replace("⏎", "\n")
    for rules in ({"deny": ["bash(git push*)"]}, {"ask": ["bash(git push*)"]}):
        assert judge(command, allow=["bash"], **rules) in ("ask", "deny")
    assert judge(command, allow=["bash"]) == "allow", (
        "without a rule against anything it is a command like any"
    )


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git log --grep push",
        "git stash push",
        "echo git push",
        "echo 'git push'",
        "grep -rn 'git push' .",
        "git commit -m 'then git push'",
        "sed -i 's/a/b/' x",
        "bash scripts/check.sh > check.log",
        "make && make test",
        "echo $HOME",
        'echo "$HOME"/x ${x:-y} ${x%.py} ${#x}',
        "for f in *.py; do echo $f; done",
        "ls $(pwd)",
        "git log $X",
        'git commit -m "$X"',
        "source .venv/bin/activate && pytest",
        "bash scripts/check.sh",
        "[ -f x ] && ls",
        '[[ -n "$X" ]] && ls',
        "export A=b",
        "while read -r x; do echo $x; done < F",
        "cat <<E > F\nhello\nE",
        "echo $((1 + 2))",
        "find . -name '*.py' -exec wc -l {} +",
        "python -c 'print(1)'",
        "FOO=bar make",
        "ls > F",
        "timeout 5 make",
    ],
)
def test_a_deny_rule_leaves_other_commands_alone(command: str) -> None:
    assert judge(command, allow=["bash"], deny=["bash(git push*)"]) == "allow"


def test_an_option_that_is_denied_is_found_wherever_it_stands() -> None:
    rules = {"allow": ["bash"], "deny": ["bash(git push --force*)"]}
    assert judge("git push --force", **rules) == "deny"
    assert judge("git push origin main --force-with-lease", **rules) == "deny"
    assert judge("git -C x push origin --force", **rules) == "deny"
    assert judge("git push origin", **rules) == "allow"


def test_a_rule_about_paths_asks_about_no_command() -> None:
    assert judge("echo $((x)); $X", allow=["bash"], deny=["*(secrets/**)"]) == "allow"
    assert judge("echo $((x))", allow=["bash"], deny=["effect:execute(git push*)"]) == "ask"


async def test_a_command_that_a_deny_rule_may_mean_asks_again_after_approve_for_the_rest_of_the_run() -> None:
    ran: list[str] = []

    @tool(effect="execute")
    async def shell(command: str) -> str:
        """Run a command."""
        ran.append(command)
        return "done"

    calls = ["make", "make all", "git $X", "git push"]
    stage = Stage(
        {"root": [*([("shell", {"command": each})] for each in calls), "done"]},
        tools=[shell],
        answering="ask",
        approvals__deny=("shell(git push*)",),
    )
    task = await stage.start()
    (asked,) = await waiting(stage, 1)
    await answer(stage, asked, decision="approve_run")
    while "shell(git push*)" not in asked.reason:
        await asyncio.sleep(0)
        (asked,) = await waiting(stage, 1)
    await answer(stage, asked, decision="reject")
    await task
    assert ran == ["make", "make all"]
    assert sum(isinstance(event, ApprovalRequested) for event in await stage.log()) == 2


@pytest.mark.parametrize("command", ["ls\x1b[2K", "ls\n", "a\nb", "ls \u202e", "echo " + "x" * 200])
def test_no_rule_is_suggested_that_a_person_cannot_read_on_one_line(command: str) -> None:
    asked = Asked(tool="bash", effect="execute", risk="high", agent="a", arguments={"command": command})
    assert suggest_rule(asked) in (None, "bash(ls)")


@given(st.sampled_from(CARRIED.split("\n") + EVERYDAY).filter(bool), st.text(max_size=12))
@settings(deadline=None, max_examples=300)
def test_a_suggested_rule_allows_the_call_and_nothing_behind_it(command: str, more: str) -> None:
    rule = suggest_rule(
        Asked(tool="bash", effect="execute", risk="high", agent="a", arguments={"command": command})
    )
    if rule is not None:
        assert judge(command, allow=[rule]) == "allow"
        assert judge(f"{command} other{more}", allow=[rule]) == "ask"
        assert judge(f"{command}; other", allow=[rule]) == "ask"


def test_the_documentation_gives_twenty_rules_and_everyday_commands_run_under_them() -> None:
    rules = published()
    assert len(rules) == len(set(rules)) == 20
    assert len(EVERYDAY) >= 300
    asked = [command for command in EVERYDAY if judge(command, allow=rules) != "allow"]
    assert len(asked) <= len(EVERYDAY) * 0.05, asked


@given(
    st.text(st.characters(), max_size=60) | st.text("git status$(){}[]'\"\\`;&|<>\n!~*?#=,- ", max_size=60)
)
@settings(deadline=None, max_examples=400)
def test_reading_a_command_never_fails(command: str) -> None:
    reading = shell.read(command)
    assert bool(reading.plain) != bool(reading.why)
    shell.covers(command, ("git status*", command))
    assert shell.forbids(command, "git push*") in ("no", "maybe", "yes")


@pytest.mark.parametrize(
    "command",
    [
        "git status " + "a " * 500_000,
        "(" * 1_000_000,
        "${" * 5_000,
        "$(" * 5_000,
        "(" * 9_999,
        "( " * 4_000 + "git push" + " )" * 400,
        "{ " * 4_000,
        "sudo " * 1_900 + "git",
        "sudo -x " * 1_200 + "git",
        "bash -c " * 1_200,
        "eval '" * 1_200,
        "if " * 3_000,
        "<<E " * 2_000,
        "'" * 9_999,
        "\\" * 9_999,
        "a|" * 4_999,
        "ls;" * 3_000 + "ls",
        "git $x " * 1_400,
        "xargs sh -c 'a b' " * 500,
    ],
    ids=lambda command: command[:12],
)
def test_a_command_of_any_size_and_depth_is_read_or_asks(command: str) -> None:
    assert judge(command, allow=["bash(git status*)"]) == "ask"
    assert judge(command, allow=["bash"], deny=["bash(*git push*x*y*z)"]) in ("ask", "allow")
