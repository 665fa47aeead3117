"""What can be typed next at the shell: commands, options and values, for bash, zsh and fish.

The scripts in `shells/` hand over the line up to the cursor and get back lines of a value, a tab and what it
is. Nothing is printed where nothing is known: the shell offers files then. Called by `main` alone. It asks
nobody but this machine, and an error is no offer.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from retinue.cli import exits
from retinue.cli.live_values import Offered, offered_for

VARIABLE, LINE, BREAKS = "_RETINUE_COMPLETE", "_RETINUE_LINE", "_RETINUE_BREAKS"
MOST_ABOUT = 80
SHELLS = ("bash", "zsh", "fish")
ABOVE = (
    ("--help", "all of the help"),
    ("--version", "the version"),
    ("--debug", "show where an error came from"),
    ("--db", "another database"),
    ("--show-completion", "print the completion of a shell"),
    ("--install-completion", "set up the completion of a shell"),
)
"""Options that stand before a command."""


def completed(environ: Mapping[str, str]) -> int:
    """Print what could follow."""
    words, last = split(environ.get(LINE, ""))
    try:
        found = sorted(offers(words, last))
    except Exception:  # a person is typing: nothing may come in between
        return exits.OK
    bash = environ.get(VARIABLE) == "bash"
    skipped = _before_break(last, environ.get(BREAKS, "")) if bash else 0
    for value, about in found:
        line = value[skipped:] if bash else f"{value}\t{' '.join(about.split())[:MOST_ABOUT]}"
        sys.stdout.write("".join(each for each in line if each.isprintable() or each == "\t") + "\n")
    return exits.OK


def _before_break(word: str, breaks: str) -> int:
    """Characters of a word that bash takes for words of their own, since they end in ':' or '='."""
    return max((word.rfind(each) + 1 for each in ":=" if each in breaks), default=0)


def split(line: str) -> tuple[list[str], str]:
    """The words of a line after the program's name, and the one that is being typed."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:  # a quotation that is still open
        words = line.split()
    if not line or line[-1].isspace():
        words.append("")
    return words[1:-1], words[-1] if len(words) > 1 else ""


def offers(words: list[str], last: str) -> Iterator[Offered]:
    """What could stand in the place of the last word."""
    from retinue.cli.root import build

    if words[-1:] in (["--show-completion"], ["--install-completion"]):
        yield from ((shell, "") for shell in SHELLS if shell.startswith(last))
        return
    command: Any = build(words[:1])
    path: list[str] = []
    rest = list(words)
    while hasattr(command, "commands") and rest:
        word = rest.pop(0)
        if word in command.commands:
            command = command.commands[word]
            path.append(word)
        elif not word.startswith("-"):
            return
    if hasattr(command, "commands"):
        found = [(name, _first_line(each)) for name, each in command.commands.items() if not each.hidden]
        yield from _beginning(found if not last.startswith("-") else () if path else ABOVE, last)
    else:
        yield from _of_command(" ".join(path), command, rest, last)


def _first_line(command: Any) -> str:
    return cast("str", command.get_short_help_str(limit=80))


def _of_command(path: str, command: Any, words: list[str], last: str) -> Iterator[Offered]:
    options = {name: param for param in command.params for name in (*param.opts, *param.secondary_opts)}
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    waiting, placed, only_arguments = None, 0, False
    for word in words:
        if waiting is not None:
            waiting = None
        elif only_arguments or not word.startswith("-") or word == "-":
            placed += 1
        elif word == "--":
            only_arguments = True
        else:
            param = options.get(word)
            waiting = None if param is None or param.is_flag or param.count else param
    if waiting is None and last.startswith("-") and not only_arguments:
        known = {name: param for name, param in options.items() if name.startswith("--")}
        yield from _beginning(((name, param.help or "") for name, param in known.items()), last)
        yield from _beginning((("--help", "help for this command, with examples"),), last)
        return
    if waiting is None and arguments:
        waiting = arguments[placed] if placed < len(arguments) else arguments[-1]
        if placed >= len(arguments) and waiting.nargs != -1:
            return
    if waiting is not None:
        yield from _beginning(_values(path, waiting, words), last)


def _values(path: str, param: Any, words: list[str]) -> Iterable[Offered]:
    descriptor = getattr(param, "type_descriptor", None)
    if getattr(descriptor, "choices", None):
        return [(str(getattr(each, "value", each)), "") for each in cast("Any", descriptor).choices]
    return offered_for(path, cast("str", param.name), words)


def _beginning(found: Iterable[Offered], last: str) -> Iterator[Offered]:
    return ((value, about) for value, about in found if value.startswith(last))


# -- setting up a shell --------------------------------------------------------------------------------------


def script(shell: str) -> str:
    return (Path(__file__).parent / "shells" / f"retinue.{shell}").read_text("utf-8")


def shown(arguments: list[str]) -> int:
    """`--show-completion SHELL`"""
    sys.stdout.write(script(_shell(arguments)))
    return exits.OK


def installed(arguments: list[str]) -> int:
    """`--install-completion SHELL`: a file in the place where the shell looks, and what is still to do."""
    from retinue.view.paint import note

    shell = _shell(arguments)
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = {
        "bash": data / "bash-completion" / "completions" / "retinue",
        "zsh": Path.home() / ".zfunc" / "_retinue",
        "fish": config / "fish" / "completions" / "retinue.fish",
    }[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(shell), "utf-8")
    note(f"written to {path}; it counts in shells that you open from now on", "green")
    if shell == "bash":
        note(f"without the package bash-completion, add to ~/.bashrc: source {shlex.quote(str(path))}", "dim")
    if shell == "zsh":
        note("~/.zshrc needs this line: fpath+=~/.zfunc; autoload -Uz compinit; compinit", "dim")
    return exits.OK


def _shell(arguments: list[str]) -> str:
    from retinue.errors import ConfigError

    said = arguments[0] if arguments else os.path.basename(os.environ.get("SHELL", ""))
    if said not in SHELLS:
        raise ConfigError(
            f"there is no completion for {said!r}" if said else "which shell?",
            fix=f"--show-completion {' | '.join(SHELLS)}",
        )
    return said
