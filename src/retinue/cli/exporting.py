"""A whole workflow as a file: a page to read, or every event as a line of JSON. Secrets are blanked out.

For `runs export`, and `/export` in the chat; `write_new` for `retinue research` too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from retinue.errors import ConfigError
from retinue.events import AnyEvent


def write_new(path: Path, data: bytes, *, project: Path) -> None:
    """Write a file that was not there. A link of the project leads nowhere: not a last one that dangles, nor
    a folder that leads out of it."""
    inside = path.is_relative_to(project)
    if inside and not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(project)):
        raise ConfigError(f"{path.parent} leads out of {project}", fix="name a folder without links")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o666)
    except FileExistsError:
        raise ConfigError(f"{path} is there already, and is not replaced", fix="name another file") from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    with os.fdopen(file, "wb") as opened:
        opened.write(data)


def exported(events: Sequence[AnyEvent], *, html: bool, interrupted: bool = False) -> bytes:
    """What is written."""
    from retinue.engine.scrub import scrub, secrets_of
    from retinue.events import encode
    from retinue.story import with_facts
    from retinue.view.words import clean, escaped

    shown = scrub(with_facts(events), secrets_of(os.environ.items()))
    if html:
        from retinue.view.page import page

        return clean(page(shown, interrupted=interrupted)).encode("utf-8", "replace")
    return "".join(escaped(encode(event).decode()) + "\n" for event in shown).encode()
