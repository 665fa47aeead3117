"""Whether a command prints words that stand nowhere in its text: cut out of others, joined, turned around.

Called by `runs`. What is listed is what is known to print facts, whole lines or whole words; everything else
may spell a word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from retinue.authority.shell.known import known, ways
from retinue.authority.shell.plain import Simple, names

_TELLS = names("""
    arch basename cat cd comm date df dirname docker du egrep false fgrep find free git grep head hostname id
    kubectl ls lsof md5sum mktemp nproc pgrep pidof printenv ps pwd readlink realpath rg seq sha1sum sha256sum
    sort stat tail tee test true tty type uname uniq uptime wc which whoami [ [[
    """)
"""What they print are facts, or whole lines of what they read, but for the options below."""

_PIECES = {
    **dict.fromkeys(("head", "tail"), re.compile(r"[-+]\w*c|--b")),
    **dict.fromkeys(("grep", "egrep", "fgrep"), re.compile(r"-\w*o|--(?:o|la)")),
    "basename": re.compile(r"-\w*s|--s"),
    "comm": re.compile(r"--o"),
    "find": re.compile(r"-f?printf"),
    "git": re.compile(r"-\w*[coO]|--(?:o|l|src|dst|dirt|brok|sq|pref|word|col)"),
    "kubectl": re.compile(r"-\w*o|--(?:o|t)"),
    "ls": re.compile(r"--(?:ti|q)"),
    "rg": re.compile(r"-\w*[or]|--(?:o|re|f\w*-sep|c\w*-sep|pa)"),
    "seq": re.compile(r"-[fs]|--[fs]"),
}
"""Options with which they print parts of lines, or put letters before and behind them."""

_PRINTF = re.compile(r"(?:[^%\\]|(?<![A-Za-z])%[sd](?![A-Za-z%])|\\n(?![A-Za-z]))*\\n")
"""A format that prints whole words and ends the line."""
_FORMATS = names("date git stat")
_PLAIN_FORMAT = re.compile(
    r"(?:--?[a-z-]+=|\+)?(?:t?format:)?(?:%[-_]?(?:[ac][A-Za-z]?|[ABD-Zbd-z])|[^A-Za-z%\\]|[TZ](?![a-z]))*"
)
"""A format of facts and signs, without a letter of its own."""
_TEMPLATE = re.compile(r"\\|[A-Za-z]\{\{|\}\}[A-Za-z]|\{\{(?! ?\.[\w.]+ ?\}\})")
_NO_LINES = re.compile(r"-\w*[zZ]|-0|-print0|--(?:null|zero)[\w-]*")
"""Options that part what is printed by NUL, which the shell drops in `$(…)`."""


def spells(simple: Simple) -> bool:
    """Whether somebody uses what a command prints, and it may print words that stand nowhere in the text."""
    return bool(simple.words) and any(_spells(simple, texts) for texts in ways([*map(known, simple.words)]))


def _spells(simple: Simple, texts: Sequence[str]) -> bool:
    name, rest = texts[0].rpartition("/")[2], texts[1:]
    if name == "read":
        return _reads_pieces(rest)
    if name == "getopts":
        return True
    if name == "xargs" and (any(re.match(r"-\w*d.*\w|--d", each) for each in rest) or _parts_at_letter(rest)):
        return True
    if not simple.used:
        return False
    if name == "echo":
        return any(re.match(r"-[a-zA-Z]*[en]", each) or "\\" in each for each in rest)
    if name == "printf":
        return not rest or not _PRINTF.fullmatch(rest[0])
    return name not in _TELLS or _prints_pieces(name, rest, caught=simple.caught)


def _prints_pieces(name: str, rest: Sequence[str], *, caught: bool) -> bool:
    if name in _PIECES and any(_PIECES[name].match(each) for each in rest):
        return True
    if caught and any(_NO_LINES.fullmatch(each) for each in rest):
        return True
    if name == "basename":
        return len(rest) > 1 and re.match(r"[./:,@+=-]", rest[-1]) is None
    if name in _FORMATS:
        return any("%" in each and not _PLAIN_FORMAT.fullmatch(each) for each in rest)
    return name == "docker" and any(_TEMPLATE.search(each) for each in rest)


def _reads_pieces(rest: Sequence[str]) -> bool:
    """`read` takes a whole line, but for options that end it elsewhere."""
    return any(re.match(r"-\w*[nN]|-\w*d.", each) for each in rest) or _parts_at_letter(rest)


def _parts_at_letter(rest: Sequence[str]) -> bool:
    """Whether `-d` parts a text at a letter; at a sign, the parts are words of it."""
    return any(
        re.search(r"[\w\\]", value) is not None and value != "\\n"
        for before, value in pairwise(rest)
        if re.fullmatch(r"-\w*d", before)
    )
