"""What rules about paths keep from the tools that look through folders: left out, counted, and said.

A call names a folder, and a rule may close a part of it. Which part depends on the rules and on names
alone, never on what was searched for: nobody learns what is in a closed file from how many were left out.
"""

from __future__ import annotations

from collections.abc import Iterable

from retinue.approvals import Closed
from retinue.authority.hard_links import SharedFiles
from retinue.tools.ripgrep import Scope


class LeftOut:
    """Sorts out the paths of a folder. Each is counted once."""

    def __init__(self, scope: Scope, closed: Closed | None, *, text: bool = False) -> None:
        """`text`: what files say is shown, and not their names alone."""
        self._scope, self._closed, self._text = scope, closed, text
        self._why: dict[str, str] = {}

    @property
    def is_possible(self) -> bool:
        return self._closed is not None and not self._scope.is_file

    def has(self, name: str) -> bool:
        """Whether a path of the jail is left out."""
        if self._closed is None or self._scope.is_file:  # who named the file itself was judged by its name
            return False
        if name not in self._why:  # `look_for_other_names` has some there already
            why = self._closed.why(self._scope.spellings(name), text=self._text)
            if why is None:
                return False
            self._why[name] = why
        return True

    def look_for_other_names(self, names: Iterable[str]) -> None:
        """Leave out hard links of what is left out, under any name. Looks at each file: in a thread."""
        if self._closed is None or self._scope.is_file or self._scope.home:
            return
        with self._scope.files.at(self._scope.path) as (_, jail):
            shared, origin = SharedFiles(jail), self._scope.files.origin
            for name in names:
                others = [*shared.names(name), *(origin.shared.get(name, ()) if origin else ())]
                spelled = [way for other in others for way in self._scope.spellings(other)]
                why = self._closed.why(spelled, text=self._text) if spelled else None
                if why is not None:
                    self._why.setdefault(name, why)

    def rest(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if not self.has(name)]

    def notes(self, one: str = "file", many: str = "files") -> list[str]:
        """What was left out and why, a line for each rule."""
        reasons = list(self._why.values())
        return [
            f"[{count:,} {one if count == 1 else many} left out: {why}]"
            for why in dict.fromkeys(reasons)
            if (count := reasons.count(why))
        ]
