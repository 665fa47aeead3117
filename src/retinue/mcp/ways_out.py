"""Which servers are started, outside of the sandbox, from what a sealed command may write to.

Asked before a command runs unasked. No list of a server's files can be whole, and a file can be changed
between a look and an import; so what counts is where a server starts and where its words lead. Errs towards
yes, and reads no file of a project.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from retinue.mcp.command_files import words_of
from retinue.mcp.config import ServerConfig
from retinue.reading import lies_in


def is_changed_in(
    folder: Path, server: ServerConfig, environ: Mapping[str, str], project: Path | None
) -> bool:
    """Whether a program may be started from files of this folder: of its repository, or by a path."""
    if server.written.url is not None:
        return False
    top = server.top
    if top is not None and (lies_in(folder, top) or lies_in(top, folder)):
        return True
    start = server.start_folder(environ, project)
    words = words_of(server.texts(environ))
    return any(lies_in(start / word, folder) for word in (".", *words))
