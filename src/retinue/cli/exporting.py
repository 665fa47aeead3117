"""A whole workflow as a file: a page to read, or every event as a line of JSON. Secrets are blanked out.

For `runs export` and `/export` in the chat.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from retinue.events import AnyEvent


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
