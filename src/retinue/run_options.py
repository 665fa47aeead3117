"""What a program may say of a run beside its prompt, as types: for `Retinue` and for who calls it.

A misspelt option is an error of the type checker, and a `TypeError` where nobody checks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypedDict, cast

from msgspec import Struct

from retinue.attachments import Attached
from retinue.engine.approve_function import Approve
from retinue.engine.config import Answering
from retinue.tools.base import Function, Tool
from retinue.types import AgentSpec, Deps, Effort, Limits, ModelGiven, ModelSettings

Metadata = Mapping[str, str | int | float | bool]


class ConversationWith(TypedDict, Generic[Deps], total=False):
    """The options of `conversation`: those of a run, for all of its turns. `RunWith` tells of them."""

    label: str
    settings: Mapping[str, Any] | None
    yes: bool | None
    strict_sources: bool
    effort: Effort
    metadata: Metadata
    answering: Answering | None
    client: str
    model: ModelGiven | None
    model_settings: ModelSettings | None
    tools: Iterable[Tool | Function]
    agents: Iterable[AgentSpec]
    limits: Limits | None
    approve: Approve | None
    instructions: str | Callable[[Deps], str | Awaitable[str]] | None


class RunWith(ConversationWith[Deps], Generic[Deps], total=False):
    """The options of `run`, `run_sync`, `ask`, `stream`, `start`, `once` and `map`.

    `label` is what lists call the run. `yes` approves all that no rule denies or asks about.
    `attachments` are paths, from the instance's folder, pictures (an `Image`, bytes, a URL), or what `attach`
    returns. `settings` are dotted
    names, for this run. `strict_sources` sends an answer back to be mended that cites what was never fetched
    or read. `effort` is how hard the models of the run are asked to think, whatever its agent says.
    `drawn_from` names the file that the prompt was taken from, if it is not what the person says: the run has
    then read private data, and `said` alone is what the person said.
    `metadata` is stored with the run: lists can be filtered by it, tools see it. `answering` is for this run
    what it is for the instance; `client` is who had another program start it. `traceparent` names the span of
    another program that the spans of this run hang below.

    `model` is that of the run's agent, or several of which the next is asked where one fails for good;
    `model_settings` are how it is asked. `tools` and `agents` are the run's own, beside those of the
    instance: its agent holds them, and hands them on. `limits` are the lower ones of these and the agent's.
    `approve` is asked instead of the instance's. `instructions` come after the agent's prompt: a text, or a
    function of the run's deps that makes it once, when the run starts.
    """

    attachments: Sequence[Attached]
    drawn_from: str
    said: str
    traceparent: str


def for_many_runs(options: RunWith[Deps]) -> RunWith[Deps]:
    """The options as more than one run can read them: a generator would be empty for the second."""
    given = {n: tuple(cast("Any", v)) if isinstance(v, Iterator) else v for n, v in options.items()}
    return cast("RunWith[Deps]", given)


class RunGiven(RunWith[Deps], Generic[Deps], total=False):
    """The same for `run`, `run_sync` and `stream`: with `deps`, what the tools of the run and of its children
    are handed, and `run_id`, the id that it is to have."""

    deps: Deps | None
    run_id: str | None


class RunInfo(Struct, frozen=True, kw_only=True):
    """Which run it is, for `deps_factory`. `metadata` is what the program said of it."""

    run_id: str
    agent: str
    metadata: dict[str, str]
