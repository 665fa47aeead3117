"""Tools of the person's own at the command line: loaded for a command, asked about once, listed, trusted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.tool_files import ToolFile, ToolFiles


def tools_of(
    cwd: Path | None,
    named: Sequence[str] = (),
    *,
    quiet: bool = False,
    ask: bool = False,
    looking: bool = False,
) -> ToolFiles:
    """The tools of a folder, of the user and those that are named. What is not loaded is said.

    `ask`: a person at the terminal is asked about files that are new or have changed. `looking`: a file that
    is broken is said and left out; else it is an error.
    """
    from retinue.cli.process import loading_code
    from retinue.kept_files import kept_here
    from retinue.settings.files import read_user_file
    from retinue.tool_files import load_tools
    from retinue.view.paint import note

    trusted = read_user_file().trusted
    here = ask and sys.stdin.isatty() and sys.stderr.isatty()
    folder = (cwd or Path()).absolute()
    with loading_code():
        found = load_tools(
            folder,
            named,
            trusted=trusted,
            ask=_ask if here else lambda file: False,
            kept=kept_here(folder),
            looking=looking,
        )
    for file in () if quiet else found.waiting:
        note(f"! {file.why_not}; its tools are not there: {', '.join(file.names) or 'none'}", "yellow")
    for error in () if quiet else found.broken:
        note(f"! {error}", "red")
    return found


def _ask(file: ToolFile) -> bool:
    """Whether the person trusts a file from now on."""
    from retinue.cli.typed_line import agreed

    what = "has changed since you trusted it" if file.state == "changed" else "is new"
    names = ", ".join(file.names) or "none that can be read from its text"
    lines = file.data.count(b"\n") + 1
    return agreed(
        f"{file.path} {what} ({lines} lines; tools: {names}).\n"
        "Its code runs with all of your rights. Trust it from now on, as it is?"
    )
