"""What the name of an option says of it: that the program runs, loads or is set up by what it is given.

Called by `programs`, for programs of which no table is known to be whole. Names of options are much the same
everywhere, so what a person did not think of who allowed `mytool *` is found without knowing the program.
Letters alone (`-x`) say nothing: for these there are tables.
"""

from __future__ import annotations

import re

from retinue.authority.shell.plain import names

_PARTS = names("""
    addon agentlib agentpath askpass browser cmd command compiler config distributor editor eval exec execute
    executable hook interpreter javaagent launcher linker load loader pager plugin postprocessor preload
    preprocessor processor program rcfile rsh script shell toolexec viewer wrapper
    """)
"""Words within a name."""
_WHOLE = names("conf configfile import initfile require settings startup-file use")
_WORDS = names("add agent ask browse com compile con edit int link page post pre pro process tool view")
"""Words of their own that begin like one of those."""
_TAKES_AWAY = re.compile(r"(?:no|ignore|skip|disable|without|list|show|print)-")
_OPTION = re.compile(r"(--?)([A-Za-z][\w.-]+)(?:[=:,].*)?", re.S)


def runs_by_name(word: str) -> bool:
    """Whether an option is one by which programs run something, load code, or take other settings."""
    match = _OPTION.fullmatch(word)
    if match is None or (match[1] == "-" and len(match[2]) < 3):
        return False
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", match[2]).lower()
    if _TAKES_AWAY.match(name):
        return False
    if match[1] == "-" and name[0] in "fx":  # `-fplugin`, `-Xplugin`
        return _says(name) or _says(name[1:])
    return _says(name) or (match[1] == "--" and _shortened(name))


def _says(name: str) -> bool:
    parts = re.split(r"[-_.]+", name)
    return name in _WHOLE or any(part.removesuffix("s") in _PARTS for part in parts)


def _shortened(name: str) -> bool:
    """Many programs take the beginning of a name for all of it."""
    last = re.split(r"[-_.]+", name)[-1]
    return len(last) > 2 and last not in _WORDS and any(each.startswith(last) for each in _PARTS)
