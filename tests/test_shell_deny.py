"""Deny and ask rules for commands: a denied one is found however it is written."""

from __future__ import annotations

import asyncio

import pytest

from retinue.events import ApprovalRequested
from retinue.tools.base import tool
from shell_rules import commands, judge
from test_approvals import answer, waiting
from trees import Stage

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
printf $@ -v x 'a[$(o push)]'
printf $y -v x a
x=-v; printf $x 'a[$(o push)]'
printf "-$x" 'y'
declare 'x[1]=1'
declare -i x=y
unset 'x[$(git push)]'
echo ${!x}
echo ${x@P}
echo ${x[y]}
read 'x[1]'
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
    "name", ["send-pack", "http-push", "push", "shell", "whatever", "status", "log", "upload-pack"]
)
@pytest.mark.parametrize(
    "before", ["", "/usr/lib/git-core/", "env ", "time /usr/libexec/git-core/", "find . -exec "]
)
def test_a_command_of_git_that_is_called_as_a_program_is_judged_as_that_command(
    name: str, before: str
) -> None:
    wrapper, _, _ = before.rpartition("/usr") if "/usr" in before else (before, "", "")
    for rules in ({"deny": ["bash(git push*)"]}, {"ask": ["bash(git push*)"]}, {"deny": ["bash(git*)"]}):
        by_git = judge(f"{wrapper}git {name} x", allow=["bash"], **rules)
        assert judge(f"{before}git-{name} x", allow=["bash"], **rules) == by_git


@pytest.mark.parametrize("name", ["everyday_beside_deny.txt", "everyday_of_an_agent.txt"])
def test_beside_a_deny_rule_everyday_commands_run_unasked(name: str) -> None:
    everyday = commands(name)
    assert len(everyday) == len(set(everyday)) >= 200
    asked = [each for each in everyday if judge(each, allow=["bash"], deny=["bash(git push*)"]) != "allow"]
    assert len(asked) <= len(everyday) * 0.03, asked


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git log --grep push",
        "git stash push",
        "echo git push",
        "echo 'git push'",
        "echo 'git push' \"$X\"",
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
        "anything $X",
        "make -j$(nproc)",
        "docker run --rm -v $(pwd):/x image",
        "git stash push && git status && make push-notes",
        "git -c color.ui=never log",
        "GIT_PAGER=cat git log",
        "OPTIND=1",
        "python x.py $X",
        'sed -i "s/a/$X/" f',
        "ls | awk '{print $1}' | xargs kill",
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
    await answer(stage, asked, decision="approve_tool")
    while "shell(git push*)" not in asked.reason:
        await asyncio.sleep(0)
        (asked,) = await waiting(stage, 1)
    await answer(stage, asked, decision="reject")
    await task
    assert ran == ["make", "make all"]
    assert sum(isinstance(event, ApprovalRequested) for event in await stage.log()) == 2
