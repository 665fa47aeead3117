"""Ways to run `git push` that a deny rule must not miss, whatever they look like.

Used by `shell_trial`: each is run, and only what really ran `git push` counts. Nothing here is written to be found: a way
is a text with a place for a command, and ways are put into each other.
"""

# ruff: noqa: SIM905 (lists of shell words are read as a shell writes them)

from __future__ import annotations

import base64
import random
import re
import shlex
from pathlib import Path

from fuzz.shell_stage import Done

# `%` is a command, `'%'` the same as one quoted word, `@` the words `git push` as they are.
AROUND = r"""
%|{ %; }|( % )|! %|if %; then :; fi|if :; then %; fi|if false; then :; else %; fi|for i in 1; do %; done
while %; do break; done|until ! %; do break; done|case x in x) %;; esac|case x in x) %;& y) :;; esac|time %|time -p %|f() { %; }; f
function f { %; }; f|f() if :; then %; fi; f|:; %|: && %|false || %|: & %|% &|: | %|: |& %|% | cat|% | while read x; do :; done
>o %|>>o 2>&1 %|2>/dev/null %|&>o %|<<<x %|{fd}>o %|X=1 %|X=1 Y='a b' %|X+=1 %|a[0]=1 %|echo $(%)|echo "$(%)"|echo `%`|x=$(%)|x="a$(%)"
echo ${x:-$(%)}|echo "${x:=$(%)}"|: ${x:-`%`}|echo <(%)|cat <(%)|: > >(%)|[[ -n $(%) ]]|[[ $(%) == x ]]|[ -n "$(%)" ]|echo $(( $(%) + 1 ))
(( $(%) + 1 ))|for ((i=$(%)0;i<1;i++)); do :; done|for i in $(%); do :; done|case $(%) in *) :;; esac|select i in $(%); do break; done
a=($(%))|a=([$(%)]=1)|declare x=$(%)|local x=$(%)|export x=`%`|readonly y=$(%)|cat <<E⏎$(%)⏎E|cat <<< $(%)|cat <<-E⏎	`%`⏎	E
coproc %|coproc { %; }|coproc N { %; }|eval '%'|eval "eval '%'"|eval -- '%'|trap '%' EXIT|trap '%' 0|trap '%' DEBUG; :|trap '%' ERR; false
bash -c '%'|sh -c '%'|bash -lc '%'|bash -ec '%'|bash -c -- '%'|bash -c '"$@"' x @|bash -c '$0 $1' @|sh -c 'exec "$@"' - @
bash +x -c '%'|bash -o posix -c '%'|bash --norc -c '%'|bash --posix -c '%'|env bash -c '%'|echo '%' | sh|echo '%' | bash -s|printf %s⏎ '%' | sh
printf '%s' '%' | bash|cat <<E | sh⏎%⏎E|sh <<E⏎%⏎E|bash -s <<'E'⏎%⏎E|bash <<< '%'|sh <(echo '%')|source <(echo '%')|. <(echo '%')|. /dev/stdin <<< '%'
source /dev/stdin <<< '%'|bash /dev/stdin <<< '%'|sh /dev/fd/0 <<< '%'|echo '%' > o; sh o|echo '%' > o; . ./o|echo '%' | tee o; bash o|echo '%' >o && chmod +x o && ./o
find . -maxdepth 0 -exec @ ;|find . -maxdepth 0 -exec @ \;|find . -maxdepth 0 -exec sh -c '%' \;|find . -maxdepth 0 -execdir @ +|find . -maxdepth 0 -exec @ {} +
echo | xargs @|echo x | xargs -n 1 @|echo x | xargs -I{} @ {}|echo x | xargs -I{} sh -c '%'|echo '%' | xargs -I% sh -c %|xargs -a /dev/null @|echo push | xargs git
echo git push | xargs env|echo push | xargs -I{} git {}|xargs git push < /dev/null|echo x | xargs -i @|echo x | xargs -P2 -- @
env @|env X=1 @|env -i PATH="$PATH" @|env -u X @|env -S 'git push'|env -S'git push'|env --split-string='git push'|env -C . @|env -- @|/usr/bin/env @
nice @|nice -n 5 @|nice -5 @|nohup @|timeout 5 @|timeout -k 1 5 @|timeout --signal=KILL 5s @|stdbuf -oL @|setsid @|setsid -w @|ionice -c 3 @|ionice @
chrt -o 0 @|taskset 1 @|taskset -c 0 @|setarch x86_64 @|setarch -R @|flock o @|flock o -c '%'|script -qc '%' /dev/null|script -q -c '%' o|sudo @|sudo -u me @|sudo -E -H @|doas @
command @|command -p -- @|command -- @|builtin command @|builtin eval '%'|exec @|exec -a x @|exec -c @|command exec @|builtin exec @|time env nice timeout 5 @
a=(@); "${a[@]}"|a=(@); ${a[*]}|set -- @; "$@"|set -- @; $*|x='git push'; $x|x=push; git $x|x=git; $x push|x=git y=push; $x $y|x=ush; git p$x|read x <<< git; $x push
read -a a <<< 'git push'; "${a[@]}"|mapfile -t a < <(echo git; echo push); "${a[@]}"|printf -v x git; $x push|x=tig; $(echo $x | rev) push|git ${x:-push}|${x:-git} push
git ${x/#/push}|x=PUSH; git ${x,,}|x=xpush; git ${x#x}|x=pushx; git ${x%x}|x=xpushx; git ${x:1:4}|x=y y=push; git ${!x}|declare -n x=y; y=push; git $x|g{i,}t push|{git,push}|git {push,}
git $'push'|git $"push"|$'git' push|$'\147it' push|git $'\x70ush'|git $'\u0070ush'|$"git" push|'git' "push"|g\it pu\sh|g''it p""ush|git p'us'h|"g"it pu"sh"|git \⏎push|gi\⏎t push
BIN/git push|BIN/gi? push|BIN/g*t push|BIN/[g]it push|cd BIN; ./git push|cd BIN && ./gi[t] push|PATH=BIN git push|~+/../bin/git push|BIN/../bin/git push|BIN//git push|BIN/git-push|git-push
git -C . push|git -c a.b=c push|git --no-pager push|git --git-dir .git push|git --git-dir=.git --work-tree=. push|git -P push|git --exec-path=. push|git -C src -c x.y=z --bare push|git --namespace x push
alias g='git push'⏎g|shopt -s expand_aliases⏎alias g='git push'⏎g|shopt -s expand_aliases⏎alias g=git⏎g push|BASH_ALIASES[g]='git push'; shopt -s expand_aliases⏎g|hash -p BIN/git ls; ls push
test -v 'a[$(%)]'|[ -v 'a[$(%)]' ]|[[ -v 'a[$(%)]' ]]|[[ 'a[$(%)]' -eq 0 ]]|printf -v 'a[$(%)]' x|let 'a[$(%)]=1'|((a[$(%)]=1))|echo $((a[$(%)]))|echo $[a[$(%)]]|declare -i x='a[$(%)]'
x='a[$(%)]'; echo $((x))|x='a[$(%)]'; ((x))|x='a[$(%)]'; [[ x -eq 0 ]]|x='a[$(%)]'; echo ${y:x}|unset 'a[$(%)]'|read 'a[$(%)]' <<< x|x='$(%)'; echo "${x@P}"|PS4='$(%)'; set -x; :|declare 'a[$(%)]=1'
typeset -i x; x='a[$(%)]'|export x; x='a[$(%)]'; : $((x))|: ${a[$(%)]}|a[$(%)]=1|mapfile -C 'git push' -c 1 x <<< y|readarray -c 1 -C 'git push #' x <<< y|compgen -C 'git push' x|wait -n -p 'a[$(%)]'
awk 'BEGIN{system("git push")}'|awk 'BEGIN{"git push"|getline}'|awk 'BEGIN{print 1 | "git push"}'|perl -e 'system("git push")'|perl -e 'exec qw(git push)'|perl -e '`git push`'
python3 -c 'import os; os.system("git push")'|python3 -c 'import subprocess; subprocess.run(["git", "push"])'|echo 'git push' | sed 's/.*/&/e'|sed '1e git push' README.md|sed -n '1{e git push⏎}' README.md
make --eval='x:;git push' x|make -f - <<< 'x:;git push'|printf 'x:⏎	git push⏎' | make -f -|tar cf o README.md --checkpoint=1 --checkpoint-action=exec='git push'|tar xf o --to-command='git push'|sort --compress-program='git push' README.md
base64 -d <<< BASE64 | sh|echo BASE64 | base64 -d | bash|eval "$(echo BASE64 | base64 -d)"|bash -c "$(echo BASE64 | base64 -d)"|$(echo BASE64 | base64 -d)|echo hsup tig | rev | sh|tr a-z b-za <<< 'fhs otrg' | sh
python3 -c 'print("git pu"+"sh")' | sh|printf '\147it push' | sh|printf 'git %s' push | sh|printf 'git pu' > o; printf sh >> o; sh o|IFS=,; x=git,push; $x|x=(git push); IFS=' '; eval "${x[*]}"|: `echo git push | sh`
prlimit @|choom -n 0 -- @|linux64 @|ssh-agent @|LOADER BIN/git push|prlimit sh -c '%'|prlimit --nofile=64 -- @|linux64 env @|choom -n 0 nice @|prlimit timeout 5 sh -c '%'
script -qc'%' /dev/null|script -qec'%' o|ed <<< '!git push'|printf '!git push⏎q⏎' | ed|printf '%s⏎' '!git push' q | ed|tar cf o -I'git push' README.md|tar cf o '-Igit push' README.md
perl -e'exec qw!git push!'|perl -e'exec(qw/git push/)'|perl -e 'exec "git","-P","push"'|perl -e 'exec "git\x20push"'|perl -e '@x=("push","git"); exec reverse @x'|perl -we'system q{git push}'
python3 -c 'import subprocess;subprocess.run(["git","-P","push"])'|python3 -c 'import os;os.system("git"+" push")'|python3 - <<< 'import os; os.system("git push")'|python3 <<'E'⏎import os⏎os.system("git push")⏎E
X='import os; os.system("git push")'; python3 -c "$X"|X=git; perl -e "exec '$X', 'push'"|perl -e "$(echo 'exec qw(git push)')"|awk 'BEGIN{c="git";system(c " push")}'|awk 'BEGIN{system("git -P push")}'|x=push; awk "BEGIN{system(\"git $x\")}"
make -s --eval='x:;git -P push' x|make --eval 'x:;@git -P push' x|MAKEFLAGS='--eval=x:;git\ push' make x|tar cf o --checkpoint=1 --checkpoint-action='exec=git -P push' README.md|flock o -c'git -P push'
for PS4 in '$(%)'; do set -x; :; done|read PS4 <<< '$(%)'; set -x; :|read -r PS4 <<'E'⏎$(%)⏎E⏎set -x; :|select PS4 in '$(%)'; do set -x; :; break; done <<< 1|export PS4='$(%)'; set -x; :|: ${PS4:='$(%)'}; PS4= ; : "${PS4:=$(%)}"
RANDOM='a[$(%)]'|OPTIND='a[$(%)]'|for RANDOM in 'a[$(%)]'; do :; done|for OPTIND in 'a[$(%)]'; do :; done|read OPTIND <<< 'a[$(%)]'|export RANDOM='a[$(%)]'|declare SRANDOM='a[$(%)]'|x='a[$(%)]'; RANDOM=x|x='a[$(%)]'; for RANDOM in x; do :; done
read RANDOM <<< 'a[$(%)]'|printf -v OPTIND 'a[$(%)]'|BASH_ARGV0='a[$(%)]'|SECONDS='a[$(%)]'|for SECONDS in 'a[$(%)]'; do :; done|getopts x RANDOM; OPTIND='a[$(%)]'
x=gi y=t; prlimit $x$y push|x=gi; x+=t; prlimit $x push|x=git; y=push; prlimit $x $y|x=xgit y=xpush; prlimit ${x#x} ${y#x}|set -- git push; prlimit "$@"|a=(git push); prlimit "${a[@]}"|prlimit $(echo git) $(echo push)|prlimit $(printf 'g%st' i) $(printf '\160ush')
prlimit g{i,}t p{u,}sh|prlimit {git,push}|prlimit BIN/gi? push|prlimit BIN/[g]it $(echo push)|x=push; prlimit BIN/g?t $x|prlimit $'g\x69t' $'\x70ush'|prlimit $(echo BASE64 | base64 -d)|echo BASE64 | base64 -d | xargs prlimit|x=$(echo BASE64 | base64 -d); prlimit $x
f() { prlimit "$@"; }; f git push|f() { prlimit $1$2 $3; }; f gi t push|echo hsup tig | rev | xargs prlimit|prlimit $(rev <<< tig) $(rev <<< hsup)|x=PUSH; prlimit git ${x,,}|echo push | xargs prlimit git|echo git push | xargs prlimit|echo git push > o; prlimit $(cat o)
cp BIN/git o; ./o push|ln -s BIN/git o; ./o push|ln -s BIN/git o; prlimit ./o push|cat BIN/git > o; sh o push|git; prlimit $_ push|: git; prlimit $_ push|IFS=,; x=git,push; prlimit $x|while read x; do prlimit $x; done <<< 'git push'|git MANY push|prlimit git MANY push
printf '!gi%s push⏎q⏎' t | ed|echo '!tig hsup' | rev | ed|ed <<< "!gi${x}t push"|echo 'exec qw(git push)' | perl|rev <<< ')hsup tig(wq cexe' | perl|base64 -d <<< BASE64 > o; prlimit sh o|sed '1egit push' README.md|sed -n '1{egit push⏎}' README.md|sed 's/[/]*.*/git push/e' README.md
""".strip().replace("\n", "|")

SIGNS = (
    *"; & | ( ) { } < > ' \" ` $ \\ # ! * ? [ ] = ~ - + , : @ % ^ $( ${ $(( ;; << <<< >> >& <( && || \\\n".split(" "),
    *"\n \t E x 1 é 你 \u00a0 \r $x $@ $* $_ $? $'' $\"\" '' \"\" {} {a,b} if then fi do done case esac in time ! [[ ]] (( )) function".split(" "),
)  # fmt: skip
_MARK = "\uf8ff"


def _ways() -> list[str]:
    """The lines above, parted at `|` that has no blank beside it on both sides and stands in no other operator."""
    text = AROUND
    for piped in (" |& ", " || ", " | ", '"|getline'):
        text = text.replace(piped, piped.replace("|", _MARK))
    return [each.replace(_MARK, "|").replace("⏎", "\n") for each in text.split("|") if each]


def _lines() -> list[str]:
    """The ways of the file, one on a line."""
    lines = (Path(__file__).parent.parent / "data/ways_to_run_git_push.txt").read_text().splitlines()
    return [each.replace("⏎", "\n") for each in lines if not each.startswith("## ")]


def _with(parts: dict[str, str], way: str) -> str:
    for name, text in parts.items():
        way = way.replace(name, text)
    return way


class Disguises:
    PROGRAMS = """
        bash sh dash env nice nohup timeout stdbuf setsid xargs find base64 printf cat tr rev sed awk perl python3 make tar sort
        chmod tee script flock ionice chrt taskset setarch echo true prlimit choom linux64 ssh-agent ed cp ln mv mkdir mkfifo
        touch unshare setpriv capsh nsenter strace node php tclsh sqlite3 psql ex vim gdb cmake ninja zip split less man ssh xz
        bc jq xxd stat basename head tail grep comm seq date cut expr fold paste join shuf od dc column numfmt ls which realpath
        readlink dd install patch diff watch logger kill start-stop-daemon run-parts tmux perf busybox id uname
        """.split()

    def __init__(self, seed: int, programs: str) -> None:
        self.random = random.Random(seed)
        loader = next(Path("/").glob("lib*/ld-linux-*.so.*"), Path("/lib/ld.so"))
        known = {
            "BIN": programs,
            "BASE64": base64.b64encode(b"git push").decode(),
            "LOADER": str(loader),
        }
        self.ways = [_with(known, each) for each in _ways()]
        self.more = [_with(known, each) for each in _lines()]

    def __call__(self) -> str:
        command = self.words()
        for _ in range(self.random.choice((1, 1, 2, 2, 3))):
            command = self.hidden(command)
        if self.random.random() < 0.3:
            blank = self.random.choice(("  ", "\t", " \\\n", "   \t"))
            command = command.replace(" ", blank, self.random.randint(1, 3))
        if self.random.random() < 0.25:
            command = self.mutated(command)
        if self.random.random() < 0.2:
            command = f"{self.random.choice(('ls; ', 'git status && ', '# x' + chr(10), ': ' + chr(39) + 'a' + chr(39) + ';'))}{command}"
        return command

    def hidden(self, command: str) -> str:
        """A command in one of the ways to run it."""
        if self.random.random() < 0.4:
            way = self.random.choice(self.ways).replace("MANY", self.many())
            return (
                way.replace("'%'", shlex.quote(command)).replace("%", command, 1).replace("@", self.words())
            )
        parts = {"⟦c⟧": command, "⟦q⟧": shlex.quote(command), "⟦w⟧": self.words()}
        for name, word in (("g", "git"), ("p", "push")):
            at = self.random.randint(1, len(word) - 1)
            parts |= {
                f"⟦{name}⟧": self.written(word),
                f"⟦{name}1⟧": word[:at],
                f"⟦{name}2⟧": word[at:],
            }
        return _with(parts, self.random.choice(self.more))

    def mutated(self, command: str) -> str:
        """Signs put in, doubled or taken out: most are broken then, and some run what nobody saw."""
        for _ in range(self.random.choice((1, 1, 2))):
            at = self.random.randint(0, len(command))
            sign = self.random.choice(SIGNS)
            command = self.random.choice((
                command[:at] + sign + command[at:], command[:at] + command[at + 1 :], command[:at] + command[at : at + 3] + command[at:],
                f"{command}{sign}", f"{sign} {command}", command.replace(" ", f" {sign} ", 1), f"{sign} {command}\n{sign}",
            ))  # fmt: skip
        return command

    def many(self) -> str:
        """More options than anybody looks behind, or a few."""
        option = self.random.choice(("-P", "--no-pager", "-c a.b=1", "-C ."))
        return " ".join([option] * self.random.choice((1, 2, 7, 13, 30, 101, 150)))

    def words(self) -> str:
        between = self.random.choice(("", "", "", "-P ", f"{self.many()} "))
        git, push = map(self.written, ("git", "push"))
        return f"{git} {between}{push}" + self.random.choice(("", "", " origin main", " --force", ' "$X"'))

    def written(self, word: str) -> str:
        """A word as a shell reads it, in one of many ways to write it."""
        at = self.random.randint(1, len(word) - 1)
        a, b = word[:at], word[at:]
        plain = (word,) * 6
        return self.random.choice((
            *plain, f"{a}''{b}", f'"{word}"', f"'{a}'{b}", f"{a}\\{b}", f"$'{word}'", f"{a}\\\n{b}", f'{a}""{b}', f"{a}$'{b}'",
            f"$'\\x{ord(word[0]):x}{word[1:]}'", f"${{x:-{word}}}", f"$(echo {word})", f"{a}${{x}}{b}", f"{a}`echo {b}`", f"{a}$@{b}",
        ))  # fmt: skip


def ran_push(done: Done) -> bool:
    """Whether one of the programs that ran was `git push`, or a git says that it was."""
    if re.search(r"built-in: git push\b|run_command:.* git-push\b", done.traced):
        return True
    for each in done.ran:
        name = each.name.rpartition("/")[2]
        words = list(each.arguments)
        while words and words[0].startswith("-"):
            words = words[2 if words[0] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace") else 1 :]
        if name == "git-push" or (name == "git" and words[:1] == ["push"]):
            return True
    return False
