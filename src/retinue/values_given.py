"""What a setting may be beyond what its type says.

`config set` and the server ask here before they write anything: a model must have a provider, an agent must
be there, a rule must be readable, and nothing that looks like a key may end up in a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from retinue.errors import ConfigError

if TYPE_CHECKING:
    from retinue.settings import Settings

_KEY = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|pplx|tvly|hf|nvapi)[-_][\w-]{16,}|\bAIza[\w-]{30,}|\bgh[pousr]_\w{20,}|\bBSA\w{20,}"
)
_BALANCED = re.compile(r"[^()]*(?:\(.*\))?")


def check_value(name: str, value: Any, settings: Settings, agent: Callable[[str], object]) -> None:
    """Raise a `ConfigError` for a value that would be read, and then fail every command.

    `agent` gives the agent of a name, or raises one.
    """
    for text in _texts(value):
        if _KEY.search(text):
            raise ConfigError(
                f"the value of {name} looks like a key, and keys are never written to a file",
                fix="set it in the environment, e.g. export OPENAI_API_KEY=…",
            )
    if name in ("model", "small_model") and isinstance(value, str):
        _check_model(value, settings)
    if name in ("approvals.allow", "approvals.ask", "approvals.deny"):
        _check_rules(_texts(value))
    if name == "web.allow_hosts":
        from retinue.web.guard import parse_rule as parse_host

        for host in _texts(value):
            parse_host(host)
    if name in ("knowledge.agent", "default_agent") and isinstance(value, str):
        _check_agent(name, value, agent)
    if name == "knowledge.base_urls" and isinstance(value, dict):
        _check_addresses(cast("dict[str, Any]", value))


def _check_agent(name: str, value: str, agent: Callable[[str], object]) -> None:
    try:
        agent(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.message}", fix=error.fix) from None


def _check_addresses(value: dict[str, Any]) -> None:
    from retinue.tools.knowledge.sources import SOURCES

    for source, address in value.items():
        if source not in SOURCES:
            raise ConfigError(
                f"knowledge.base_urls names no known source: {source}", fix=f"known: {', '.join(SOURCES)}"
            )
        if not re.match(r"https?://[^/]", str(address)):
            raise ConfigError(
                f"knowledge.base_urls: {address!r} is no address", fix=f"write it like https://{address}"
            )


def _texts(value: Any) -> list[str]:
    """Every text in a value as TOML has it."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return _texts(list(cast("dict[str, Any]", value).values()))
    return (
        [text for one in cast("list[Any]", value) for text in _texts(one)] if isinstance(value, list) else []
    )


def _check_model(name: str, settings: Settings) -> None:
    from retinue.models.connect import check_provider

    check_provider(name, settings=settings)


def _check_rules(rules: Sequence[str]) -> None:
    from retinue.authority.rules import parse_rule

    for rule in rules:
        parse_rule(rule)
        if not _BALANCED.fullmatch(rule.strip()):
            raise ConfigError(f"cannot read the rule {rule!r}", fix="write it like 'bash(git status*)'")
