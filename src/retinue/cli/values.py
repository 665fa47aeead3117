"""Tools that rules of `config set` name, and what was probably meant. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence


def meant(tool: str) -> str:
    """A question after the built-in tool that was probably meant, or nothing."""
    from retinue.agents.toolnames import RESERVED
    from retinue.settings import similar

    return similar(tool, sorted(RESERVED))


def unknown_tools(rules: Sequence[str]) -> list[str]:
    """Tools that rules name and that are not built in: your own or an agent's name, or a slip."""
    from retinue.agents.toolnames import CLAUDE, RESERVED
    from retinue.authority.rules import parse_rule

    named = [parse_rule(rule).tool for rule in rules]
    return [
        tool for tool in named if tool and "*" not in tool and tool not in RESERVED and tool not in CLAUDE
    ]
