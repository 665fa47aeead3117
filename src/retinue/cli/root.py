"""Every command by name, where it lives, and how one is invoked.

Only the group that is asked for is imported. A new command or group is one line in `COMMANDS` or `GROUPS`
(and one in help.txt). Called by `main` alone.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer

from retinue.cli import exits

COMMANDS = {
    "ask": "retinue.cli.ask:ask",
    "run": "retinue.cli.ask:run",
    "chat": "retinue.cli.chat.command:chat",
    "research": "retinue.cli.research:research",
    "map": "retinue.cli.map:map_",
    "eval": "retinue.cli.eval:eval_",
    "stats": "retinue.cli.stats:stats",
    "init": "retinue.cli.init:init",
    "setup": "retinue.cli.first_hour:setup",
    "models": "retinue.cli.models:models",
    "doctor": "retinue.cli.doctor:doctor",
    "serve": "retinue.cli.serve:serve",
    "worker": "retinue.cli.worker:worker",
    "acp": "retinue.cli.acp:acp",
}
GROUPS = {
    "agents": "retinue.cli.agents:app",
    "tools": "retinue.cli.tools:app",
    "skills": "retinue.cli.skills:app",
    "mcp": "retinue.cli.mcp:app",
    "runs": "retinue.cli.runs:app",
    "workers": "retinue.cli.workers:app",
    "approvals": "retinue.cli.approvals:app",
    "config": "retinue.cli.config:app",
    "keys": "retinue.cli.keys:app",
}


def invoke(arguments: list[str], *, debug: bool) -> int:
    """Run a command. Errors become one line and a code; with `debug` their traceback comes first."""
    if debug:
        from retinue.cli.process import log_to_stderr

        log_to_stderr("DEBUG", "%(name)s: %(message)s")
    try:
        if arguments[:1] in (["--show-completion"], ["--install-completion"]):
            from retinue.cli import completing

            show = arguments[0] == "--show-completion"
            return completing.shown(arguments[1:]) if show else completing.installed(arguments[1:])
        result = build(arguments[:1])(arguments, prog_name="retinue", standalone_mode=False)
    except SystemExit:
        # Typer and Rich turn a closed pipe into this; nothing else here does.
        raise BrokenPipeError from None
    except typer.TyperException as error:
        return _complain(_usage_line(error), exits.USAGE)
    except (KeyboardInterrupt, asyncio.CancelledError, typer.Abort):
        return _complain("cancelled", exits.CANCELLED)
    except Exception as error:
        if debug:
            from retinue.view.words import clean

            sys.stderr.write(clean(traceback.format_exc()))
        return _complain(exits.line_of(error), exits.code_of(error))
    return result if isinstance(result, int) else exits.OK


def _complain(line: str, code: int) -> int:
    from retinue.view.words import clean

    sys.stderr.write(f"retinue: {clean(line)}\n")
    return code


_BOUNDS = {
    "greater_than_equal": "has to be {ge:g} or more",
    "less_than_equal": "has to be {le:g} or less",
    "int_parsing": "has to be a whole number",
    "int_from_float": "has to be a whole number",
    "float_parsing": "has to be a number",
}
"""What is said of a value of an option that is none, by the kind of what is wrong with it."""


def _usage_line(error: typer.TyperException) -> str:
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "retinue"
    said = _wrong_number(error) or " ".join(error.format_message().split())
    return f"{said} ('{path} --help' shows how)"


def _wrong_number(error: typer.TyperException) -> str:
    """Which option, which value, and what it has to be, where a number is wrong; empty if it is otherwise."""
    faults: Any = getattr(error.__cause__, "errors", None)
    option: Any = getattr(error, "param", None)
    if faults is None or option is None:
        return ""
    fault: dict[str, Any] = faults()[0]
    bound = _BOUNDS.get(fault["type"])
    told = bound and f"{option.get_error_hint()} {fault['input']}: it {bound.format(**fault.get('ctx', {}))}"
    return told or ""


def build(first: list[str]) -> Any:
    """The command tree with the one that is asked for, or with all of them where that is not clear."""
    known = [name for name in first if name in COMMANDS or name in GROUPS]
    app = new_group()
    for name, home in COMMANDS.items():
        if not known or name in known:
            app.command(name)(_load(home))
    for name, home in GROUPS.items():
        if not known or name in known:
            app.add_typer(_load(home), name=name)
    command = typer.main.get_command(app)
    _tell_debug(command)
    return command


def _tell_debug(command: Any) -> None:
    """`--debug` is taken before any command sees it, so the help of each has to be told."""
    for each in getattr(command, "commands", {}).values():
        _tell_debug(each)
    if not hasattr(command, "commands"):
        command.epilog = "Everywhere: --debug shows where an error came from, and logs to stderr."


def _load(home: str) -> Any:
    module, _, name = home.partition(":")
    return getattr(import_module(module), name)


def new_group(help: str = "", examples: Sequence[str] = ()) -> typer.Typer:
    """A group of commands that prints its help, with examples, when it is called alone."""
    shown = "".join(f"\n  retinue {example}" for example in examples)
    group = typer.Typer(
        help=f"{help}\n\n\b\nExamples:{shown}" if examples else help,
        rich_markup_mode=None,  # Rich's help pages look nice and take half a second to load
        add_completion=False,  # `completing` does that
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )

    def alone(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            sys.stdout.write(context.get_help() + "\n")

    group.callback(invoke_without_command=True)(alone)
    return group
