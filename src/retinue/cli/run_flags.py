"""The options of commands that begin runs, declared once: `ask`, `run`, `map` and `eval` take them.

A command that is decorated with `with_run_flags` has them as options of its own, and is handed what was said
as one `RunFlags`. What each option is called and what its help says is in `options`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

from retinue.cli import options as o


@dataclass(frozen=True, kw_only=True)
class RunFlags:
    """As they are listed in help."""

    model: o.ModelChain = None
    small_model: o.SmallModel = None
    effort: o.Effort = None
    cwd: o.Cwd = None
    db: o.Db = None
    max_turns: o.MaxTurns = None
    timeout: o.Timeout = None
    max_cost: o.MaxCost = None
    policy: o.Policy = None
    attach: o.Attach = None
    tools: o.Tools = None
    label: o.Label = ""
    yes: o.Yes = False
    sandbox: o.Sandbox = False
    wait_approvals: o.WaitApprovals = False
    wait_limits: o.WaitLimits = False
    json: o.ReportJson = False
    messages: o.Messages = False
    events: o.Events = False
    quiet: o.Quiet = False
    sources: o.Sources = False
    strict_sources: o.StrictSources = False
    show_prompt: o.ShowPrompt = False

    @property
    def models(self) -> str | None:
        """The model, or a chain of them with commas."""
        return ",".join(self.model) if self.model else None

    @property
    def settings(self) -> dict[str, Any]:
        """Those that are settings of this run alone."""
        return limits_of(self.max_turns, self.timeout, self.max_cost, self.policy, sandbox=self.sandbox)


def with_run_flags(*, but: Collection[str] = ()) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command these options after its own, all `but` some; it takes them as `flags`."""
    hints = get_type_hints(RunFlags, include_extras=True)
    shared = [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(RunFlags)
        if one.name not in but
    ]

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        own = [one for one in signature(command, eval_str=True).parameters.values() if one.name != "flags"]

        @wraps(command)
        def taking(**given: Any) -> int:
            flags = RunFlags(**{one.name: given.pop(one.name) for one in shared})
            return command(**given, flags=flags)

        every = [*(one.replace(kind=Parameter.KEYWORD_ONLY) for one in own), *shared]
        taking.__annotations__ = {one.name: one.annotation for one in every}
        vars(taking)["__signature__"] = Signature(every)
        return taking

    return decorate


def limits_of(
    max_turns: int | None,
    timeout: str | None,
    max_cost: float | None,
    policy: str | None,
    *,
    sandbox: bool = False,
) -> dict[str, Any]:
    """The flags as settings of this run alone."""
    from retinue.cli.units import seconds
    from retinue.errors import ConfigError

    if max_cost is not None and not 0 < max_cost < math.inf:
        raise ConfigError(
            f"--max-cost {max_cost:g}: it has to be greater than 0, and finite", fix="for example 0.50"
        )
    found: dict[str, Any] = {
        "limits.max_turns": max_turns,
        "limits.max_cost": max_cost,
        "delegation.policy": policy,
        "approvals.sandbox": "project" if sandbox else None,
    }
    if timeout is not None:
        # For the root alone and for the tree: an agent's own, longer timeout must not win.
        found["limits.timeout"] = found["limits.tree_seconds"] = seconds(timeout, what="--timeout")
    return {name: value for name, value in found.items() if value is not None}
