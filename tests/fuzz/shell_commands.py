"""Shell commands to try rules with: as people write them, as an attacker would, and halfway between.

Used by `shell_trial`. Everything is drawn from one `random.Random`, so that a seed gives the same commands. What would
be run or written beyond a rule is always `mark` and `F`: nothing that is generated here harms anybody if it runs.
"""

# ruff: noqa: SIM905 (lists of shell words are read as a shell writes them)

from __future__ import annotations

import random
from collections.abc import Sequence

RULES = (
    ("git", "status"), ("git", "diff"), ("git", "log"), ("git", "show"), ("git", "blame"), ("git", "branch", "--list"),
    ("git", "ls-files"), ("git", "grep"), ("git", "rev-parse"), ("ls",), ("cat",), ("head",), ("tail",), ("wc",),
    ("sort",), ("grep",), ("rg",), ("find",), ("sed", "-n"), ("make", "test"),
)  # fmt: skip
"""The first words of what the twenty published rules mean, written down once more."""

OPERANDS = r"""
    . .. src README.md src/app.py docs/ HEAD HEAD~2 HEAD^ main main..HEAD stash@{0} a 10 1,5p TODO *.py src/*.py
    docs/*.md ~ ~/x -- - -1 -n -l -r -k2 '*.py' "a b" a\ b '$x' "it's" 'say "x"' x=y a,b {} @{u} +5 :/x % ^a 's/a/b/p'
    '/a/,/b/p' '$p' /dev/null F mark ; 'a|b' 'a;b' "a&b" '(a)' "[a]" [ab] ? é 'é' "é" ./x ../x :!x ':(exclude)x'
""".split()

TRICKS = (
    *"$(mark) `mark` ${x:-$(mark)} $[a[$(mark)]] $((a[$(mark)])) <(mark) >(mark) >F >>F >|F <>F &>F >&F 2>F {fd}>F".split(),
    *"$x ${x} ${!x} ${x@P} $'mark' $'\\x24(mark)' $\"mark\" {mark,x} {1..3} ~root !! !x @(a|b) +(a) [[ ]] (( )) ;; esac".split(),
    *"; && || | |& & \n ( ) { } ! time if then fi while do done until for case coproc function select in else elif".split(),
    *"\\\n \\ ' \" ` # $ ~ * ? [ ] < > <<E <<<x \\x \r \v \f \x01 \x7f \x1b \u00a0 \u2003 \u200b \u2028 \u0085 ｇｉｔ сat".split(
        " "
    ),
    "$(mark)", "'a[$(mark)]'", "\"$(mark)\"", "\"`mark`\"", "\"${x:-$(mark)}\"", "$'a[\\x24(mark)]'", "\"$x\"", "\"\\\n\"",
    "; mark", "&& mark", "|| mark", "| mark", "|& mark", "& mark", "\nmark", "; (mark)", "; { mark; }", "| tee F",
    "| sh", "| bash -s", "| xargs mark", "| xargs -I{} mark {}", "| xargs -I% sh -c %", "| xargs git status", "<<E\n$(mark)\nE",
    "<<'E'\nmark\nE", "<<-E\n\tmark\n\tE", "<<< $(mark)", "<<E; mark\nE", "é\\\" ; mark \"", "\"é\\\" ; mark \"", "\"é\\\"\" mark \"",
    "\"你\\\" ; mark #\"", "\"你\\\"; mark; \\\"你\"", "'é'\\''; mark'", "#\nmark", "\\#\nmark", "# '\nmark\n# '", "'\nmark\n'", "\\;", "\\\n; mark",
)  # fmt: skip

PREFIXES = (
    *"PATH=/x X=1 GIT_PAGER=mark LD_PRELOAD=x BASH_ENV=F IFS=x PS4=$(mark) a[$(mark)]=1 X+=1 X=$(mark) GIT_EXTERNAL_DIFF=mark".split(),
    *"time nohup env nice command exec builtin eval sudo coproc ! { ( if while setsid xargs source . trap mark >F 2>&1".split(),
    "time -p", "timeout 5", "timeout -k 1 5", "timeout -s KILL 5s", "nice -n 5", "env -i", "env X=1", "env -S mark", "env -u X",
    "stdbuf -oL", "stdbuf -o0 -eL", "command -p", "command -v", "exec -a x", "time --", "nice -5", "timeout 0.5 env nice", "xargs -n 1",
    "printf -v 'a[$(mark)]' x;", "test -v 'a[$(mark)]';", "[[ 'a[$(mark)]' -eq 0 ]] &&", "declare -i x='a[$(mark)]';", "cd src &&",
    "alias git=mark\n", "git() { mark; };", "function ls { mark; };", "set -x;", "shopt -s expand_aliases extglob;", "hash -p ./mark git;",
    "enable -f x;", "trap mark EXIT;", "for x in a; do", "f()", "# x\n", ":;", "true &&", "cd .. ;", "pushd src;", "PATH=.;", "export PATH=.;",
    "cd docs &&", "cd ./src;", "cd same &&", "cd out &&", "cd src/ && cd ..;", "(cd src);", "cd -;", "cd;", "cd . &&", "cd 'src' ||", "cd src >F;", "cd $x;",
)  # fmt: skip

OPTIONS = {
    "git": r"""--output=F --output F --outp=F -oF -o F -O -Omark -nO --ext-diff --ext --no-ext-diff --textconv --text-conv
        --show-signature --show-sig --format=%G? --pretty=%GG --format=%h%G? --open-files-in-pager=mark --open=mark
        --contents F --edit-description --no-index --stat -p -5 --oneline --all -S'x' -G'a\(' -L1,5:README.md -L:x:src/app.py
        --since=1.day --author="A B" --grep='x|y' -- --porcelain -uno --exec-path=. -c --upload-pack=mark --help -h --paginate
        --ignore-revs-file=F --pickaxe-regex --word-diff-regex=. --color-words=. --sort=-committerdate --contains
        --parseopt --sq-quote --git-path --resolve-git-dir --filters --recurse-submodules --submodule=diff
        --ita-visible-in-index --output-indicator-new=x --orderfile=F -O/dev/null --orderfile --abbrev=3 -m --move x y -D x
        --no-list -m y --no-list -d x -f x --set-upstream-to=x --unset-upstream --create-reflog -c x -C x --copy x --delete x --force x --track""".split(),
    "find": r"""-exec mark {} + -exec mark ; -execdir mark ; -ok mark ; -okdir -delete -fprint F -fprint0 F -fprintf F x -fls F
        -name '*.py' -type f -print -print0 -ls -newer F -files0-from F -maxdepth 1 -not ! -o -a -printf '%p\n' -quit -prune
        -L -P -H -O3 -D exec -regex '.*' -exe mark -exec\ mark "-exec" -perm /222 -path './x/*' \( \) , -daystart""".split(" "),
    "sort": """-o F -oF -ro F -rnoF --output=F --output F --outp=F --o=F --compress-program=mark --compress-prog mark --comp=mark
        -S 1K -S1b --buffer-size=1k -T . -T/x --temporary-directory=. --files0-from=- --files0-from=F -k2,2n -t, -u -rn -m -c
        --parallel=4 --random-source=F -R --batch-size=2 --debug -h -V -z -- -uo F -k 1o F +0 -1 +1 -oF""".split(),
    "sed": r"""-i -i.bak -ni -n -e -f F --in-place --expression=wF --file=F -s -E -r -z -u --posix --debug --sandbox 1p $p '1,5p'
        'w F' 'wF' '1w F' '1e mark' 'e' 'e mark' 's/a/mark/e' 's/a/b/w F' 's/a/b/gw F' 's/.*/mark/ep' 's/x/y/I' 's|a|b|p'
        '/a/w F' '1{w F
        }' '1!w F' 'r F' 'R F' 'W F' '/a\/w F/p' 's/[/]/b/w F' 's/a[^/]*/b/p' '1~2p' '0,/a/p' '$!d' 'y/a/b/' 'a\' 'a mark'
        's/a/b/;w F' 's,a,b,w F' 's1a1b1w F' '\,a,w F' '\nanw F' 's/a/\
        w F/p' 'p;p;w F' 'p # w F' '}' '{p' ':a;N;$!ba;p' 's/a/b/m' 's/a/b/Me' '1,+2p' '/a/Ip' 'l 5' 'q5' 'Q' 'F' 'z' '=' """.split(
        " "
    ),
    "rg": """--pre mark --pre=mark --pre-glob x --hostname-bin mark --hostname-bin=mark -z -nz --search-zip --hyperlink-format=x
        -n -l -c --files -g '*.py' -t py --type-add x:*.x -f F --file=F -e TODO -A3 -uuu --hidden --no-ignore --json --stats
        --ignore-file F --sort path --passthru -r x -o -U -P --engine=auto --debug --pr mark --generate=man -0 --no-config
        --config --path-separator=/ --colors=x -i -w --type-list""".split(),
    "grep": "-r -n -l -E -f F --file=F -A 3 --include='*.py' -e TODO -o -P -z --color --line-buffered -D read -d recurse -U".split(),
    "ls": "-la -R --color --time-style=+%G -d --hyperlink --quoting-style=shell -Z --block-size=1 -I x --ignore=x".split(),
    "cat": "-n -A --show-all -E -v -s -".split(),
    "head": "-n 5 -c 5 -5 -q -v --bytes=5 -z".split(),
    "tail": "-n 5 -n +5 -c 5 -5 -q -s 1 --retry +5".split(),
    "wc": "-l -w -c -m -L --files0-from=F --files0-from=-".split(),
    "make": "-f F -C src SHELL=mark -n --eval=x test x=1 -j4 -B -k --debug -e -I. -s -i -o x -W x --trace".split(),
}  # fmt: skip
"""Options of the programs in the rules, with those that run or write something."""


class Commands:
    """Draws commands. `examples` are whole ones to begin from, `options` more options by program."""

    def __init__(self, seed: int, examples: Sequence[str], options: dict[str, list[str]]) -> None:
        self.random = random.Random(seed)
        self.examples = list(examples)
        self.options = {
            name: [*OPTIONS.get(name, ()), *options.get(name, ())] for name in {*OPTIONS, *options}
        }

    def __call__(self) -> str:
        draw = self.random.random()
        if draw < 0.12:
            return self.compound(1)
        if draw < 0.22:
            return self.mutated(self.random.choice(self.examples))
        if draw < 0.8:
            return self.mutated(self.compound(1))
        if draw < 0.92:
            return self.tricked()
        return self.soup()

    def compound(self, depth: int) -> str:
        """Commands in lists, pipelines and groups, as the rules mean them, now and then with something more."""
        draw = self.random.random()
        if depth > 2 or draw < 0.6:
            return self.simple()
        a, b = self.compound(depth + 1), self.compound(depth + 1)
        if draw < 0.8:
            return f"{a}{self.random.choice([' | ', ' && ', ' || ', '; ', chr(10), '|', '&&', ' |& ', ';', '  |  '])}{b}"
        forms = (
            "({})",
            "{{ {}; }}",
            "! {}",
            "if {}; then {}; fi",
            "if {}; then {}; else {}; fi",
            "( {} ; {} )",
            "{{ {}\n{}\n}}",
        )
        rare = (
            "while {}; do {}; done",
            "until {}; do {}; done",
            "{} # {}",
            "# it's\n{}",
            "{}\n\n\n{}\n",
            "{};",
            "{} | {{ {}; }}",
        )
        form = self.random.choice(forms if draw < 0.98 else rare)
        return form.format(a, b, self.simple())

    def simple(self) -> str:
        words = list(self.random.choice(RULES))
        program = words[0]
        for _ in range(self.random.choice((0, 0, 1, 1, 2, 2, 3, 5))):
            pool = self.options.get(program, OPERANDS) if self.random.random() < 0.45 else OPERANDS
            words.append(self.shortened(self.random.choice(pool)))
        words = [self.quoted(word) if self.random.random() < 0.12 else word for word in words]
        if self.random.random() < 0.12:
            words.insert(0, self.random.choice(PREFIXES))
        if self.random.random() < 0.1:
            words.append(
                self.random.choice(("2>/dev/null", ">/dev/null", "2>&1", "&>/dev/null", "</dev/null", ">F"))
            )
        if self.random.random() < 0.04:
            words.append(self.random.choice(TRICKS))
        blank = (
            " "
            if self.random.random() < 0.93
            else self.random.choice(("  ", "\t", " \t ", "\\\n ", "\v", "\u00a0"))
        )
        return blank.join(words)

    def shortened(self, word: str) -> str:
        """Programs take the beginning of a long option for all of it."""
        if not word.startswith("--") or self.random.random() < 0.7:
            return word
        name, equals, value = word.partition("=")
        if not equals and self.random.random() < 0.5:
            equals, value = "=", self.random.choice(("F", "mark", "x"))
        return name[: self.random.randint(3, max(3, len(name)))] + equals + value

    def quoted(self, word: str) -> str:
        """The same word to a shell, written otherwise; or what looks like it."""
        at = self.random.randint(0, len(word))
        return self.random.choice((
            f"'{word}'", f'"{word}"', f"{word[:at]}''{word[at:]}", f"{word[:at]}\\{word[at:]}", f"{word[:at]}'{word[at:]}'",
            f'"{word[:at]}"{word[at:]}', f"$'{word}'", f'$"{word}"', f"{word[:at]}\\\n{word[at:]}", f"{word[:at]}$x{word[at:]}",
        ))  # fmt: skip

    def mutated(self, command: str) -> str:
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            at, to = sorted(self.random.randint(0, len(command)) for _ in range(2))
            kind = self.random.randrange(9)
            if kind <= 2:
                more = self.random.choice(TRICKS) if kind else chr(self.random.randint(1, 127))
                blank = self.random.choice(("", " "))
                command = f"{command[:at]}{blank}{more}{blank}{command[at:]}"
            elif kind == 3:
                command = command[:at] + command[min(to, at + 3) :]
            elif kind == 4:
                command = command[:to] + command[at:to] + command[to:]
            elif kind == 5:
                command = f"{self.random.choice(PREFIXES)} {command}"
            elif kind == 6:
                other = self.random.choice(self.examples)
                command = command[:at] + other[self.random.randint(0, len(other)) :]
            elif kind == 7:
                words = command.split(" ")
                place = self.random.randrange(len(words))
                words[place] = self.quoted(words[place])
                command = " ".join(words)
            else:
                words = command.split(" ")
                words.insert(self.random.randint(0, len(words)), self.random.choice(OPERANDS))
                command = " ".join(words)
        return command.replace("\0", "")[:5200]

    def tricked(self) -> str:
        """A rule's own words with tricks around them."""
        words = [*self.random.choice(RULES)]
        for _ in range(self.random.randint(1, 3)):
            words.insert(self.random.randint(0, len(words)), self.random.choice(TRICKS + PREFIXES))
        return self.random.choice(("", " ", " ", " ")).join(words)

    def soup(self) -> str:
        """Signs and words in no order."""
        parts = [
            *TRICKS,
            *OPERANDS,
            *PREFIXES,
            "git",
            "status",
            "git status",
            "ls",
            "cat",
            " ",
            " ",
            "'",
            '"',
            "\\",
            "\n",
        ]
        return "".join(
            self.random.choice(parts) + self.random.choice(("", " "))
            for _ in range(self.random.randint(1, 9))
        )
