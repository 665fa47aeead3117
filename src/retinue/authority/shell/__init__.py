"""Rules for shell commands, by a real grammar and not by a list of dangerous signs.

`read` takes a command apart. `covers` says whether patterns of allow rules speak of all that it would run,
`forbids` whether the pattern of a deny or ask rule speaks of any of it. All three are total: they raise
nothing, whatever the text, and take bounded time. The grammar is loaded with the first command.
"""

from __future__ import annotations

from retinue.authority.shell.allow import covers, exact, literal
from retinue.authority.shell.deny import Forbids, forbids
from retinue.authority.shell.moving import rebased
from retinue.authority.shell.reading import Reading, read
from retinue.authority.shell.uncovered import uncovered

__all__ = [
    "Forbids",
    "Reading",
    "covers",
    "exact",
    "forbids",
    "literal",
    "read",
    "rebased",
    "uncovered",
]
