"""The command line. `main` is what the `retinue` command calls.

Help and version are answered from here without loading anything else; a command loads only its own group.
Every error ends here, as one line on stderr and an exit code (see `exits`). Nothing below the command line
imports this package.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing's own would have to import typing

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    arguments, debug = _take_debug(arguments)
    arguments = _db_last(arguments)
    try:
        code = _run(arguments, debug=debug)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _reader_gone()


def _take_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """`--debug` may stand anywhere before a `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [word for word in arguments[:end] if word != "--debug"]
    return kept + arguments[end:], len(kept) < end or bool(os.environ.get("RETINUE_DEBUG"))


def _db_last(arguments: list[str]) -> list[str]:
    """`--db` may stand before the command too; the command takes it."""
    if arguments[:1] == ["--db"] and len(arguments) > 2:
        option, rest = arguments[:2], arguments[2:]
    elif arguments and arguments[0].startswith("--db="):
        option, rest = arguments[:1], arguments[1:]
    else:
        return arguments
    end = rest.index("--") if "--" in rest else len(rest)
    return rest[:end] + option + rest[end:]


def _run(arguments: list[str], *, debug: bool) -> int:
    if "_RETINUE_COMPLETE" in os.environ:
        from retinue.cli.completing import completed

        return completed(os.environ)
    if not arguments and sys.stdin.isatty() and sys.stdout.isatty():
        arguments = ["chat"]
    if not arguments or arguments in (["--help"], ["-h"], ["help"]):
        sys.stdout.write(help_text(short=not arguments))
        return 0
    if arguments in (["--version"], ["-V"]):
        from importlib.metadata import version

        sys.stdout.write(f"retinue {version('retinue')}\n")
        return 0
    from retinue.cli.root import invoke

    return invoke(arguments, debug=debug)


def help_text(*, short: bool = False) -> str:
    """What `retinue --help` prints, and `retinue` alone in a pipe. The line with '%%' ends the short form."""
    with open(os.path.join(os.path.dirname(__file__), "help.txt"), encoding="utf-8") as file:
        text = file.read()
    if short:
        return text.partition("%%\n")[0] + "'retinue --help' says more; each command has its own --help.\n"
    return text.replace("%%\n", "")


def _reader_gone() -> int:
    """Whoever read the output has closed it (`| head`): end quietly."""
    from retinue.cli.exits import CLOSED_PIPE

    # Python flushes stdout at exit; into the void, so that it does not complain.
    void = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(void, stream.fileno())
    return CLOSED_PIPE
