"""The conversation a chat begins with: a new one, or an earlier one that it was told to go on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.cli.chat.talk import Talk


async def open_conversation(talk: Talk, resume: str) -> None:
    """`resume` is an id, the beginning of one, `last`, or `here`: the last one of this folder."""
    from retinue.cli.opening import find_run

    if not resume:
        return
    if resume == "here":
        earlier = await talk.session.earlier(1)
        if not earlier:
            talk.tell("there is no earlier conversation in this folder: this is a new one", style="dim")
            return
        row = earlier[0]
    else:
        row = await find_run(talk.session.retinue, resume)
    await talk.session.take_up(row, talk.view.past)
