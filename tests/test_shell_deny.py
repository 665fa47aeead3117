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


# What a list of bad forms would not hold, by what hides it.
HIDDEN = {
    "more options than anybody looks behind": r"""
git -P -P -P -P -P -P -P -P -P -P -P -P -P push
git -c a.b=1 -c a.b=1 -c a.b=1 -c a.b=1 -c a.b=1 -c a.b=1 -c a.b=1 push origin
prlimit git -P -P -P -P -P -P -P -P -P -P -P -P -P push
""",
    "a program of which nothing is known": r"""
prlimit git push
choom -n 0 -- git push
linux64 git push
ssh-agent git push
/lib64/ld-linux-x86-64.so.2 /bin/git push
prlimit sh -c 'git -P push'
anything at all git push
anything a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h sh -c 'g$X'
anything $X push
anything git $X
anything /usr/bin/gi? pus$X
anything /usr/bin/[g]it $X
anything g{i,}t p{u,}sh
anything $'g\x69t' $'\x70ush'
""",
    "a text behind an option, a sign or an escape": r"""
script -qc'git push' /dev/null
su -c'git push'
tar cf /dev/null -I'git push' x
tar cf o '-Igit push' x
vim -es -c '!git push' -c q
ed <<< '!git push'
printf '!git push\nq\n' | ed
perl -e'exec(qw!git push!)'
perl -e 'exec "git\x20push"'
python3 -c 'open("x").write("git\npush")'
git grep -O'git push;:' x
strace -o'|git -P push' true
gdb -batch -ex '!git -P push'
sed '1egit push' x
""",
    "words that stand apart, or the other way round": r"""
perl -e 'exec "git","-P","push"'
python3 -c 'import subprocess; subprocess.run(["git","-P","push"])'
python3 -c 'import os; os.system("git"+" push")'
awk 'BEGIN{c="git";system(c " push")}'
git -c core.fsmonitor='git -P push;:' status
git fetch --upload-pack='git -P push;:' .
git archive --remote=. --exec='git -P push' HEAD
git clone -u 'git -P push;:' . x
ssh -o ProxyCommand='git -P push' h
tar cf o --checkpoint=1 --checkpoint-action='exec=git -P push' x
make -s --eval='x:;git -P push' x
push=1 git=2 anything
""",
    "a variable that is evaluated": r"""
for PS4 in '$(g$x)'; do set -x; :; done
read PS4 <<< '$(g$x)'; set -x; :
select PS4 in x; do set -x; done
export PS4
: ${PS4:='$(g$x)'}
read GIT_CONFIG_COUNT <<< 1; git p
for GIT_CONFIG_KEY_0 in alias.p; do git p; done
RANDOM='a[$(g$x)]'
for OPTIND in 'a[$(g$x)]'; do :; done
read SECONDS <<< x
export SRANDOM=x
BASH_ARGV0=x
EPOCHSECONDS=x
a[0]=1 declare -i x='a[$(g$y)]'
MAKEFLAGS=x make
LESSOPEN='|x' ls
SOMETHING='git push' ls
""",
    "another name for it": r"""
git config alias.x push && git x
git config alias.x '!git push' && git x
git x origin
git -c include.path=/x/y p
git -c Include.Path=~/x status
git -c core.hooksPath=x commit
ln -s /usr/bin/git o; ./o push
""",
    "code that is not known": r"""
python -c "$X"
python3 -c "import os; os.system('$X')"
perl -e "$X"
node -e "$(cat x)"
awk "$X" x
sed "$X" x
python3 <<E⏎$X⏎E
""",
    "words that are put together": r"""
anything $a$b
x=gi; x+=t; anything $x
x=gi$y; anything $x
anything ${PATH:0:1}
x=tig; anything ${x/t/g}
anything $(rev <<< tig)
x=xgit y=xpush; anything ${x#x} ${y#x}
echo hsup tig | rev | xargs anything
base64 -d x > o; anything sh o
base64 -d x > o; anything o
anything sh < o
anything $(printf '\147it')
anything $(printf 'g%st' i)
anything $(echo -e '\x67it')
anything $(git log -1 --format=%x67it)
anything $(python3 -c 'print(1)')
base64 -d x | anything
rev x | ed
tr a b < x | while read y; do anything $y; done
ls; anything $_
IFS=,; anything $x
trap 'x=$(rev y); anything $x' EXIT
bash -c 'x=$(rev y); anything $x'
eval 'anything $'"'"'g\x69t'"'"' $'"'"'\x70ush'"'"
""",
    "a text that a file keeps": r"""
echo 'git push' > .git/hooks/pre-commit; git commit
cat > o <<'E'⏎git push⏎E
echo 'git push' | tee o
""",
}


@pytest.mark.parametrize("command", [line for block in HIDDEN.values() for line in block.split("\n") if line])
def test_a_denied_command_that_something_hides_never_runs_in_silence(command: str) -> None:
    command = command.replace("⏎", "\n")
    assert judge(command, allow=["bash"], deny=["bash(git push*)"]) in ("ask", "deny")
    assert judge(command, allow=["bash"], ask=["bash(git push*)"]) == "ask"


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("rm *", "prlimit rm x"),
        ("rm -rf *", "prlimit rm -fr x"),
        ("rm*", 'perl -e\'unlink 1; exec "rm", "x"\''),
        ("npm publish*", "npm --quiet publish"),
        ("npm publish*", "env npm $X"),
        ("curl*", "python -c 'import os; os.system(\"curl x\")'"),
        ("*secret*", "anything secrets"),
        ("git pu*", "prlimit git push"),
        ("docker push*", "prlimit docker push x"),
    ],
)
def test_every_rule_finds_its_own_words_behind_a_program_of_which_nothing_is_known(
    pattern: str, command: str
) -> None:
    assert judge(command, allow=["bash"], deny=[f"bash({pattern})"]) in ("ask", "deny")


def test_beside_a_deny_rule_everyday_commands_run_unasked() -> None:
    everyday = commands("everyday_beside_deny.txt")
    assert len(everyday) == len(set(everyday)) >= 300
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
    await answer(stage, asked, decision="approve_run")
    while "shell(git push*)" not in asked.reason:
        await asyncio.sleep(0)
        (asked,) = await waiting(stage, 1)
    await answer(stage, asked, decision="reject")
    await task
    assert ran == ["make", "make all"]
    assert sum(isinstance(event, ApprovalRequested) for event in await stage.log()) == 2
