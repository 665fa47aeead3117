"""What goes along with the next message: files that the person attached, and what their own commands printed.

Also the files of the project that a message names with an @. Used by `Talk`.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.approvals import Rules
from retinue.attachments import MAX_FILE, Attachment, attach, attach_bytes
from retinue.cli.chat.pasting import MENTION, Entered
from retinue.errors import ConfigError
from retinue.kept_files import kept_by
from retinue.reading import Folder, Kept, Unreadable, real_path

if TYPE_CHECKING:
    from retinue.app import Retinue

Output = tuple[str, str]
"""A name for what a command printed, and that."""
Carries = Path | Output


class Carrying:
    """A list that a message takes along as a whole. What is added later is for the next one."""

    def __init__(self, retinue: Retinue) -> None:
        self.retinue = retinue
        self.things: list[Carries] = []

    def names(self) -> list[str]:
        return [str(each) if isinstance(each, Path) else each[0] for each in self.things]

    async def add(self, path: Path) -> None:
        """Attach a file: at once, so that it goes with a message that is typed while it is looked at. Refused
        where it cannot be read as it is."""
        if path in self.things:
            return
        self.things.append(path)
        try:
            await attach(path, project=self.retinue.cwd)
        except BaseException:
            self.things = [each for each in self.things if each != path]
            if not await asyncio.to_thread(os.path.isfile, path):
                fix = "/attach PATH of a file, text, picture, PDF or table"
                raise ConfigError(f"there is no file {path}", fix=fix) from None
            raise

    def printed(self, name: str, text: str) -> None:
        self.things.append((name, text))

    def drop(self, number: int) -> str:
        """Take one back. Returns its name."""
        name = self.names()[number - 1]
        del self.things[number - 1]
        return name

    def take(self) -> list[Carries]:
        taken, self.things = self.things, []
        return taken

    def put_back(self, taken: Sequence[Carries]) -> None:
        self.things = [*taken, *(each for each in self.things if each not in taken)]

    async def read(self, taken: list[Carries]) -> list[Attachment]:
        """What was taken, read now. What can be read no longer is let go, and nothing is sent without it."""
        found: list[Attachment] = []
        for each in list(taken):
            try:
                if isinstance(each, Path):
                    found.append(await attach(each, project=self.retinue.cwd))
                else:  # attached, not said: nobody wrote it, it may be private, and it vouches for no address
                    found.append(await attach_bytes(each[0], each[1].encode("utf-8", "replace")))
            except ConfigError as error:
                taken.remove(each)
                raise ConfigError(
                    f"{error.message}: it is no longer attached, and your message was not sent",
                    file=error.file,
                    fix="send it again without it (Up), or attach something else",
                ) from None
        return found


async def mentioned(retinue: Retinue, entry: Entered, but: Sequence[Carries]) -> list[Attachment]:
    """The files of the project that the person's own words name with an @."""
    project = retinue.cwd
    named = dict.fromkeys(match[1].rstrip(".,;:!?)") for match in MENTION.finditer(entry.own))
    kept = kept_by(Rules.of(retinue.settings.approvals), project)
    found: list[Attachment] = []
    for name in named:
        path = project / name
        if path not in but and await asyncio.to_thread(os.path.isfile, path):
            data = await asyncio.to_thread(_read, project, name, kept)
            found.append(await attach_bytes(path.name, data))
    return found


def _read(project: Path, name: str, kept: Kept) -> bytes:
    """A file of the project that may be shown to a model. Another is the person's explicit choice."""
    try:
        return Folder(project, kept).read(project / name, MAX_FILE).data
    except OSError as error:
        why = error.why if isinstance(error, Unreadable) else f"cannot be read: {error.strerror}"
        meant = name
        if error.errno == errno.EXDEV:
            why, meant = "is outside of the project", real_path(project / name)
        raise ConfigError(
            f"@{name} {why}; your message was not sent",
            fix=f"/attach {meant} attaches it all the same, if you mean it; or leave out the @",
        ) from None
