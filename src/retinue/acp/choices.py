"""What a person may set for a session: its mode, model, effort, who delegates, which agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from acp import RequestError, schema

from retinue.app import Retinue
from retinue.models.providers import PROVIDERS, find, key_place
from retinue.types import EFFORTS, Effort

Mode = Literal["ask", "accept-edits", "plan", "yes"]
Config = Literal["model", "effort", "policy", "agent"]
_MODES: dict[Mode, tuple[str, str]] = {
    "ask": ("Ask", "whatever changes something asks first, unless a rule allows it"),
    "accept-edits": ("Accept edits", "files of the project are changed without asking; commands ask"),
    "plan": ("Plan", "reads only: nothing is changed and no command runs"),
    "yes": ("Yes", "everything runs that no rule denies or asks about"),
}
_CHANGES = ("effect:write", "effect:execute", "effect:spend")
_AS_SET = "default"


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Of one session. Empty: as it is set."""

    mode: Mode = "ask"
    model: str = ""
    effort: Effort = ""
    policy: str = ""
    agent: str = ""
    begun: bool = False
    """The agent and the effort of a run are those it was started with."""

    def with_mode(self, wanted: str) -> Choices:
        if wanted not in get_args(Mode):
            raise _unknown("mode", wanted, get_args(Mode))
        return replace(self, mode=cast("Mode", wanted))

    def with_option(self, name: str, value: str | bool, retinue: Retinue) -> Choices:
        if name == "mode":
            return self.with_mode(str(value))
        if name not in get_args(Config):
            raise _unknown("option", name, ("mode", *get_args(Config)))
        if self.begun and name in ("effort", "agent"):
            raise RequestError.invalid_params(
                {"details": f"the {name} of a conversation is the one that it began with: begin a new one"}
            )
        known = [each.value for each in _values(cast("Config", name), self, retinue)]
        if name != "model" and value not in known:
            raise _unknown(name, str(value), known)
        found = "" if value == _AS_SET else str(value)
        return replace(self, **cast("Any", {name: found}))

    def settings(self, retinue: Retinue) -> dict[str, Any]:
        """For the run from here on; said in full, since what was said before still counts."""
        rules = retinue.settings.approvals
        deny = (*rules.deny, *(_CHANGES if self.mode == "plan" else ()))
        allow = (*rules.allow, *(("effect:write",) if self.mode == "accept-edits" else ()))
        policy = self.policy or retinue.settings.delegation.policy
        return {"approvals.deny": deny, "approvals.allow": allow, "delegation.policy": policy}

    @property
    def yes(self) -> bool:
        return self.mode == "yes"


def modes(choices: Choices) -> schema.SessionModeState:
    known = [schema.SessionMode(id=id, name=name, description=what) for id, (name, what) in _MODES.items()]
    return schema.SessionModeState(current_mode_id=choices.mode, available_modes=known)


def options(
    choices: Choices, retinue: Retinue
) -> list[schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean]:
    """What can be set now. What a run was started with is offered before it starts."""
    said: Mapping[Config, tuple[str, str, Any]] = {
        "model": ("Model", "asked from the next message on", "model"),
        "effort": ("Effort", "how hard the models think, where they can be told", "thought_level"),
        "policy": ("Delegation", "flat: only the first agent delegates; nested: its children too", None),
        "agent": ("Agent", "who answers", None),
    }
    found: list[schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean] = []
    for name, (title, what, category) in said.items():
        if choices.begun and name in ("effort", "agent"):
            continue
        found.append(
            schema.SessionConfigOptionSelect(
                type="select",
                id=name,
                name=title,
                description=what,
                category=category,
                current_value=getattr(choices, name) or _AS_SET,
                options=list(_values(name, choices, retinue)),
            )
        )
    return found


def _values(name: Config, choices: Choices, retinue: Retinue) -> Iterable[schema.SessionConfigSelectOption]:
    usual = {
        "model": retinue.model_name,
        "effort": "as the agent says",
        "policy": retinue.settings.delegation.policy,
        "agent": retinue.settings.default_agent,
    }[name]
    yield schema.SessionConfigSelectOption(value=_AS_SET, name=f"Default ({usual})")
    values: Iterable[str] = {
        "model": _models(retinue, choices.model),
        "effort": EFFORTS,
        "policy": ("flat", "nested"),
        "agent": sorted(retinue.agents.agents),
    }[name]
    for value in values:
        yield schema.SessionConfigSelectOption(value=value, name=value)


def _models(retinue: Retinue, chosen: str) -> list[str]:
    """The models whose providers can be asked with the keys that are there, and the one that was chosen."""
    found: dict[str, None] = {}
    for name in PROVIDERS:
        provider = find(name, settings=retinue.settings, environ=retinue.environ)
        if provider is None or not key_place(provider, retinue.settings, retinue.environ):
            continue
        for model in (provider.model, provider.small):
            if model:
                found[f"{name}:{model}"] = None
    found["offline"] = None
    return [*found, *([chosen] if chosen and chosen not in found else [])]


def _unknown(what: str, value: str, known: Iterable[str]) -> RequestError:
    return RequestError.invalid_params(
        {"details": f"there is no {what} {value!r}; there are {', '.join(known)}"}
    )
