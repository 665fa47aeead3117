"""Variables whose value is more than a value: the shell or a common program runs it, or finds in it what to
run.

Called by `tree` and `runs`, which look for them wherever a name is given a value: in assignments, loops,
`read`, `export`, `env X=…`. A table, and no state. A variable that is not here is a text, and texts are
searched for a rule's own words.
"""

from __future__ import annotations

import re

_EVALUATED = re.compile(
    r"""
    # the shell runs it, or reads by it
    PS[0-4] | PROMPT_COMMAND | ENV | SHELLOPTS | BASH(?!_SOURCE)\w* | IFS
    # arithmetic, as soon as it is set
    | RANDOM | SRANDOM | SECONDS | OPTIND | HISTCMD | LINENO | EPOCH\w+ | DIRSTACK
    # other programs run it
    | LD_\w+ | DYLD_\w+ | LESSOPEN | LESSCLOSE | \w*EDITOR | \w*PAGER | VISUAL | BROWSER | \w+_ASKPASS
    | \w+_RSH | MAKEFLAGS | GNUMAKEFLAGS | MFLAGS | FCEDIT | PERL5DB
    | GIT_(?!AUTHOR_|COMMITTER_|TERMINAL_PROMPT\b|OPTIONAL_LOCKS\b)\w+
    """,
    re.X,
)
_TAME_VALUE = re.compile(r"[0-9]*|cat|less|more|true|:|vi|vim|nano")
_ASSIGNMENT = re.compile(r"(\w+)(?:\[[^\]]*\])?\+?=(.*)", re.S)


def evaluated(name: str) -> bool:
    """Whether giving this variable a value may run it."""
    return _EVALUATED.fullmatch(name) is not None


def evaluated_assignment(text: str, *, program: str = "") -> bool:
    """The same of `NAME=value`, as it is written; a number and a few plain programs are harmless in most.

    `program` is what runs with it. By `IFS` words are joined and parted; only `read` needs an empty one.
    """
    match = _ASSIGNMENT.match(text)
    if match is None or not evaluated(match[1]):
        return False
    value = match[2].strip("'\"")
    return not (value == "" and program == "read" if match[1] == "IFS" else _TAME_VALUE.fullmatch(value))
