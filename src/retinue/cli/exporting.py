"""A whole workflow as a file: a page to read, or every event as a line of JSON. Secrets are blanked out.

For `runs export`, and `/export` in the chat; `write_new` for `retinue research` too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from retinue.errors import ConfigError
from retinue.events import AnyEvent
from retinue.reading import lies_in


def write_new(path: Path, data: bytes, *, project: Path) -> None:
    """Write a file that was not there. A link of the project leads nowhere: not a last one that dangles, nor
    a folder that leads out of it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(place_for_new(path, project=project), flags, 0o666)
    except FileExistsError:
        raise ConfigError(f"{path} is there already, and is not replaced", fix="name another file") from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    with os.fdopen(file, "wb") as opened:
        opened.write(data)


def place_for_new(path: Path, *, project: Path) -> str:
    """Where a new file comes to lie. Raises if its folder is not there, if nothing can be written there, or
    if it leads out of the project by a link of the project's; `..` and other links are the person's choice.
    """
    anchor, *parts = path.absolute().parent.parts
    folder = anchor
    for part in parts:
        further = os.path.realpath(os.path.join(folder, part))
        if part != ".." and lies_in(folder, project) and not lies_in(further, project):
            raise ConfigError(
                f"{path.parent} leads out of {project} by a link", fix="name a folder without links"
            )
        folder = further
    if not os.path.isdir(folder):
        raise ConfigError(f"there is no folder {path.parent}", fix="make it first, or name another")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"nothing can be written in {path.parent}", fix="name another folder")
    return os.path.join(folder, path.name)


def exported(
    events: Sequence[AnyEvent], *, html: bool, secrets: Iterable[str], interrupted: bool = False
) -> bytes:
    """What is written, without `secrets` and what looks like one."""
    from retinue.engine.scrub import scrub
    from retinue.events import encode
    from retinue.story import with_facts
    from retinue.view.words import clean, escaped

    shown = scrub(with_facts(events), secrets)
    if html:
        from retinue.view.page import page

        return clean(page(shown, interrupted=interrupted)).encode("utf-8", "replace")
    return "".join(escaped(encode(event).decode()) + "\n" for event in shown).encode()
