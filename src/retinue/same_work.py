"""Whether work is the same that was done before: a digest of all that a program says of it.

Used by `Retinue.map`, for the ids of its runs, by `Retinue.once`, which refuses other work under an id that
was given away, and by `testing.evaluate`. What a function does and what is in `deps` no digest can know, and
of what a tool holds only plain values: whoever calls says whose they are, with metadata, a name or a key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from retinue.attachments import Attachment
from retinue.errors import ConfigError
from retinue.events import RunStarted
from retinue.types import AgentSpec

_MANNER = frozenset(
    {
        *("label", "metadata", "attachments", "drawn_from", "said", "client", "answering", "approve", "yes"),
        *("traceparent", "limits", "settings", "instructions"),
    }
)
"""Options of a run that do not make it another one, or are told apart otherwise."""
_MANNER_OF_SETTINGS = ("limits.", "approvals.")
_MANNER_OF_AGENTS = frozenset(
    {
        *("icon", "description", "origin", "limits", "timeout", "max_turns", "patient", "background"),
        *("lifecycle", "policy", "children"),
    }
)
"""Of an agent that is asked: how far it may go, and what nobody tells its model. More of it is no other work:
whoever raises a limit wants what is missing."""


def work_digest(*known: Any) -> str:
    """Of whatever can be written down; a function or a model counts by its name."""
    written = msgspec.json.encode(known, enc_hook=_called, order="deterministic")
    return hashlib.sha256(written).hexdigest()[:16]


def _called(each: object) -> str:
    """The name of what cannot be written down: a function, a model."""
    return getattr(each, "name", None) or getattr(each, "__qualname__", type(each).__name__)


def given_to(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run that make it another one."""
    settings: Mapping[str, Any] = options.get("settings") or {}
    found = {name: value for name, value in options.items() if name not in _MANNER and value}
    kept = {name: value for name, value in settings.items() if not name.startswith(_MANNER_OF_SETTINGS)}
    return {**found, **({"settings": kept} if kept else {})}


def told_by(spec: AgentSpec) -> dict[str, Any]:
    """What of an agent makes its work another one."""
    return {n: getattr(spec, n) for n in spec.__struct_fields__ if n not in _MANNER_OF_AGENTS}


TOOLS = "tools"


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedWith:
    """What a piece of work is asked with beside its prompt. `team` are the program's agents below `spec`;
    `prompt` and `told` are the texts that functions made for it, or the functions where that is not known;
    `given` are the options of its run; `held` is what the program's tools hold, by their names."""

    folder: str
    spec: AgentSpec
    team: Sequence[AgentSpec]
    prompt: object
    told: object
    given: Mapping[str, Any]
    files: Sequence[Attachment]
    held: Mapping[str, tuple[str, ...] | None]

    def digest(self, *more: Any) -> str:
        """What it is known by in a batch, with `more` of which it depends."""
        of_team = [told_by(each) for each in self.team]
        known = (told_by(self.spec), self.prompt, self.told, given_to(self.given), self.files)
        held = {name: each for name, each in self.held.items() if each}
        return work_digest(
            self.folder, *more, *known, *([of_team] if of_team else []), *([held] if held else [])
        )

    def digests(self) -> dict[str, str]:
        """The same for one run, each by what it is of. An agent of a file is known by its name and the
        folder: its next version goes on with what an earlier one began. So does another model."""
        given = {name: value for name, value in self.given.items() if name != "model"}
        agents = [told_by(each) for each in (self.spec, *self.team)]
        found: dict[str, Any] = {
            "folder": self.folder,
            "agent": [agents, self.prompt] if self.spec.origin == "code" else [],
            "instructions": self.told,
            "attachments": list(self.files),
            "options": given_to(given),
            TOOLS: {name: each for name, each in self.held.items() if each},
        }
        return {name: work_digest(value) for name, value in found.items() if value}


def refuse_other_work(
    began: RunStarted,
    *,
    agent: str,
    prompt: str,
    metadata: Mapping[str, str],
    instructions: str | None,
    asked: Mapping[str, str] | None,
) -> None:
    """Refuse to hand out, or to go on with, a run that was begun for something else. What that is stays
    untold: it may be somebody else's. None: nobody knows what they would be now, or what they were."""
    options = began.options
    changed = {
        "agent": began.spec.name != agent,
        "metadata": options.metadata != metadata,
        "instructions": instructions is not None and options.instructions != instructions,
        # A guard may have mended it, or kept it out of the log.
        "prompt": not (options.guards or began.spec.input_guards) and began.prompt != prompt,
    }
    differs = {what: None for what, is_other in changed.items() if is_other}
    if asked is not None:
        # What tools hold was not written down at first.
        names = sorted({*asked, *options.asked} - ({TOOLS} - options.asked.keys()))
        differs |= {what: None for what in names if asked.get(what) != options.asked.get(what)}
    if differs:
        names = " and ".join(f"the {what}" for what in differs)
        raise ConfigError(
            f"{began.run_id} is the id of another run, which differs in {names}",
            fix="give an id of its own to each piece of work: put into it whose it is and what is asked",
        )
