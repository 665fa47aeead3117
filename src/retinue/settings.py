"""Every setting, typed, in one place, and where each value came from.

Later wins: defaults, the user's `config.toml`, the project's `retinue.toml`, `RETINUE_*` in the
environment, flags. A project file comes with the repository, so it is not trusted: it may narrow what
agents do, and what would widen it (approvals that allow, higher limits, addresses, the database) counts only
in a folder that the user trusts (`retinue config trust`). `trust` says which is which, `trusted_folders`
which folders those are.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retinue import trust
from retinue.errors import ConfigError
from retinue.masking import masked
from retinue.reading import MOST_SETTINGS, read_own, text_of
from retinue.settings_files import (
    CONFIG_VARIABLE,
    find_project_file,
    flatten,
    read_project_file,
    read_user_file,
    user_file,
)
from retinue.trusted_folders import TrustedFolders

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MOST_MISTAKES = 5

OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, "RETINUE_COMPLETE", "RETINUE_DEBUG", "RETINUE_SERVER_TOKEN"})
"""Variables of ours that are no settings."""


class Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Ceiling = Annotated[int, Field(ge=1)] | Literal["auto", "none"]
Patience = Annotated[float, Field(gt=0)] | Literal["auto"]


class LimitSettings(Table):
    """How far a run may go. The `tree_` limits are for a root and everything below it together.

    A ceiling of `auto` grows with the number of runs that the delegation policy allows.
    """

    max_turns: int = Field(default=25, ge=1, description="model calls of a root run")
    subagent_turns: int = Field(
        default=10, ge=1, le=50, description="model calls of a child that does not say"
    )
    timeout: float = Field(
        default=600, gt=0, description="seconds a run may take; waiting for a person is free"
    )
    model_timeout: Patience = Field(
        default="auto", description="seconds a model call may take; auto: 120, or 600 on this machine"
    )
    tool_timeout: float = Field(default=60, gt=0, description="seconds a tool may take")
    tool_concurrency: int = Field(default=8, ge=1, description="tools of one step that run at the same time")
    tool_output: int = Field(
        default=50_000, ge=1000, description="characters of a tool result the model is shown"
    )
    report_bytes: int = Field(
        default=4096, ge=256, description="bytes of a child's report its parent is shown"
    )
    tree_turns: Ceiling = Field(default="auto", description="model calls of a whole tree")
    tree_input_tokens: Ceiling = Field(default="auto", description="input tokens of a whole tree")
    tree_output_tokens: Ceiling = Field(default="auto", description="output tokens of a whole tree")
    tree_seconds: float | None = Field(default=3600, gt=0, description="seconds of a whole tree")
    max_cost: float | None = Field(default=None, gt=0, description="US dollars a whole tree may cost")


DelegationTool = Literal["agents", "spawn_agent", "delegate_task", "parallel_tasks", "subagent", "background"]


class DelegationSettings(Table):
    enabled: bool = Field(default=True, description="sub-agents on or off")
    tools: tuple[DelegationTool, ...] = Field(
        default=("agents", "spawn_agent", "parallel_tasks"),
        description="the ways to delegate a model is offered",
    )
    policy: Literal["flat", "nested"] = Field(default="flat", description="flat: only the root delegates")
    max_depth: int = Field(default=3, ge=1, description="nested: levels, the root included")
    max_children: int = Field(default=3, ge=0, description="flat: children a workflow may start")
    nested_children: int = Field(default=27, ge=0, description="nested: children a workflow may start")
    concurrency: int = Field(default=8, ge=1, description="children that run at the same time")
    parent_ends: Literal["cancel", "wait"] = Field(
        default="cancel", description="what becomes of background children when their parent finishes first"
    )
    summary: Literal["cut", "model"] = Field(
        default="cut", description="an over-long report is cut, or summarised by the small model"
    )
    corrections: int = Field(
        default=2, ge=0, description="tries to mend an answer that does not fit its schema"
    )


class ApprovalSettings(Table):
    """Rules like `bash(git status*)`, `write(docs/**)`, `effect:network`, `agent:planner`, `risk:medium`."""

    allow: tuple[str, ...] = Field(default=(), description="rules for what runs without asking")
    ask: tuple[str, ...] = Field(default=(), description="rules for what always asks a person")
    deny: tuple[str, ...] = Field(default=(), description="rules for what never runs")
    auto_risk: Literal["none", "low", "medium", "high"] = Field(
        default="none", description="approve without asking up to this risk"
    )
    auto: Literal["off", "sandboxed"] = Field(
        default="off", description="sandboxed: commands in the sandbox without network run without asking"
    )
    sandbox: Literal["off", "project"] = Field(
        default="off", description="project: commands write in the project and see no keys (Linux)"
    )
    sandbox_network: bool = Field(default=False, description="commands in the sandbox reach the network")
    callback_seconds: float = Field(
        default=86_400, gt=0, description="longest a program's own `approve` function may take for one answer"
    )


class ContextSettings(Table):
    max_tokens: int = Field(default=100_000, ge=1000, description="size of the history a model is shown")
    keep_turns: int = Field(default=6, ge=1, description="newest turns that are never pruned")
    threshold: float = Field(default=0.8, gt=0, le=1, description="share of max_tokens that triggers pruning")
    mode: Literal["prune", "summarize"] = Field(default="prune", description="what becomes of old turns")
    instructions: bool = Field(default=True, description="show AGENTS.md of the project to the root agent")
    error_tokens: int = Field(default=400, ge=0, description="most the last error takes in a prompt")
    attachment_tokens: int = Field(
        default=50_000, ge=0, description="most all attached files together take in a prompt"
    )
    knowledge_tokens: int = Field(default=1000, ge=64, description="most that was looked up first takes")
    task_tokens: int = Field(default=600, ge=0, description="most the list of tasks takes in a prompt")
    goal_tokens: int = Field(default=300, ge=0, description="most the goals take in a prompt")
    memory_tokens: int = Field(
        default=800, ge=0, description="most the newest of the memory takes in a prompt"
    )
    vault_tokens: int = Field(default=400, ge=0, description="most the names in the vault take in a prompt")


class WebSettings(Table):
    search: tuple[Literal["ddgs", "searxng", "brave", "tavily"], ...] = Field(
        default=("ddgs",), description="search backends, the next used when one fails"
    )
    searxng_url: str | None = Field(default=None, description="address of a SearXNG server")
    brave_url: str = Field(default="https://api.search.brave.com", description="address of Brave's search")
    tavily_url: str = Field(default="https://api.tavily.com", description="address of Tavily's search")
    allow_hosts: tuple[str, ...] = Field(
        default=(),
        description="hosts or networks that may be fetched although private, e.g. 'wiki.corp:8080'",
    )
    robots: bool = Field(default=True, description="respect robots.txt")
    max_bytes: int = Field(default=5_000_000, ge=1000, description="largest body that is read")
    timeout: float = Field(default=30, gt=0, description="seconds one fetch may take")
    inline_bytes: int = Field(default=50_000, ge=1000, description="a larger page is saved to the workspace")
    cache_ttl: float = Field(default=3600, ge=0, description="seconds a fetched page is used again")
    proxy: str | None = Field(default=None, description="fetch through this proxy")


ExtraSource = Literal["crossref", "semanticscholar", "pubmed", "openalex", "hackernews"]


class KnowledgeSettings(Table):
    first: bool = Field(
        default=False, description="let the knowledge agent run before a question that needs it"
    )
    agent: str = Field(default="web-knowledge", description="the agent that runs first")
    timeout: float = Field(default=30, gt=0, description="seconds the agent that runs first may take")
    request_timeout: float = Field(
        default=20, gt=0, description="seconds one lookup may take, waiting for its turn and retries included"
    )
    cache_ttl: float = Field(default=3600, ge=0, description="seconds an answer of a source is used again")
    contact: str | None = Field(default=None, description="operator's URL or e-mail, sent in the User-Agent")
    extra: tuple[ExtraSource, ...] = Field(default=(), description="more sources than the eight")
    base_urls: dict[str, str] = Field(default={}, description="another address for a source, by name")


class CodeSettings(Table):
    engine: Literal["monty", "cpython"] = Field(default="monty", description="the sandbox for code mode")
    timeout: float = Field(default=30, gt=0, description="seconds one snippet may compute")
    memory_mb: int = Field(default=128, ge=8, description="megabytes one snippet may use")
    output: int = Field(default=20_000, ge=100, description="characters of output that are kept")
    calls: int = Field(default=50, ge=0, description="tool calls one snippet may make")


class WorkspaceSettings(Table):
    quota_mb: int = Field(default=256, ge=1, description="size of a run's /home/agent")
    root: str | None = Field(
        default=None, description="folder for workspaces; the system's temp folder if unset"
    )


class SheetSettings(Table):
    enabled: bool = Field(
        default=True, description="spreadsheet helpers and guidance with a workbook attached"
    )


class ServerSettings(Table):
    host: str = Field(default="127.0.0.1", description="address that `retinue serve` listens on")
    port: int = Field(default=8484, ge=0, le=65535, description="port of `retinue serve`; 0 takes any")


class ProviderSettings(Table):
    """One more OpenAI-compatible provider, or other settings for a known one."""

    wire: Literal["openai", "responses", "anthropic", "gemini"] = Field(
        default="openai", description="the format it speaks"
    )
    base_url: str | None = Field(default=None, description="its address")
    key_env: tuple[str, ...] = Field(
        default=(), description="environment variables that hold keys, tried in turn"
    )


class Price(Table):
    """US dollars per million tokens."""

    input: float = Field(ge=0, description="for a million input tokens")
    output: float = Field(ge=0, description="for a million output tokens")


class Settings(Table):
    model: str | None = Field(default=None, description="the model, 'provider:name' or 'offline'")
    small_model: str | None = Field(default=None, description="a cheaper model for helpers and summaries")
    db: str | None = Field(default=None, description="sqlite:///path or postgresql://…")
    default_agent: str = Field(default="general", description="the agent that `retinue ask` runs")
    limits: LimitSettings = LimitSettings()
    delegation: DelegationSettings = DelegationSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    context: ContextSettings = ContextSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    web: WebSettings = WebSettings()
    knowledge: KnowledgeSettings = KnowledgeSettings()
    code: CodeSettings = CodeSettings()
    sheets: SheetSettings = SheetSettings()
    server: ServerSettings = ServerSettings()
    providers: dict[str, ProviderSettings] = Field(default={}, description="more providers, by name")
    prices: dict[str, Price] = Field(default={}, description="prices of models that are not known")


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Settings, where each value that is not a default came from, and what was left out and why."""

    settings: Settings
    origins: dict[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[str, ...] = ()
    trusted: TrustedFolders = field(default_factory=TrustedFolders)
    """The folders that the user trusts."""


def load(
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    """Read every source and merge. `flags` are dotted names to values."""
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    warnings: list[str] = []

    def add(found: Mapping[str, Any], origin: str) -> None:
        for name, value in found.items():
            values[name] = value
            origins[name] = origin

    found, trusted = read_user_file()
    add(found, str(user_file()))
    project = find_project_file(cwd)
    if project is not None:
        found, own = read_project_file(project)
        found.pop("trust", None)
        both: dict[str, str] = {}
        if not (own and trusted.has(project.parent)):
            found, left_out = trust.narrowed(found, {**defaults(), **values})
            if left_out:
                warnings.append(_left_out(project, left_out, replaced=trusted.replaced(project.parent)))
            both = {name: f"{origins[name]} and {project}" for name in trust.ADDED & origins.keys()}
        add(found, str(project))
        origins.update((name, origin) for name, origin in both.items() if name in found)
    add(_from_environment(environ), "environment")
    warnings += _unknown_variables(environ)
    add(flags or {}, "flag")
    return Loaded(
        settings=build(values, origins),
        origins=origins,
        warnings=tuple(warnings),
        trusted=trusted,
    )


def _left_out(project: Path, names: Sequence[str], *, replaced: bool) -> str:
    folder = project.parent
    why = f"; the folder that you trusted was another one, which was at {folder} before" if replaced else ""
    return (
        f"{project}: {', '.join(names)} ignored, since a repository may narrow and not widen{why}; "
        f"'retinue config trust {folder}' if you wrote this file"
    )


def defaults() -> dict[str, Any]:
    """Every setting by its dotted name, with its default."""
    return flatten(Settings().model_dump())


def names() -> dict[str, Any]:
    """Every setting by its dotted name, with its field."""
    found: dict[str, Any] = {}
    for key, info in Settings.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Table):
            for inner, inner_info in info.annotation.model_fields.items():
                found[f"{key}.{inner}"] = inner_info
        else:
            found[key] = info
    return found


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return "RETINUE_" + name.replace(".", "_").upper()


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names():
        raw = environ.get(variable(name))
        if raw is not None and raw != "":
            found[name] = parse_text(name, raw)
    return found


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A warning for each that is no setting. No error: it may be meant for another version."""
    known = {variable(name) for name in names()} | OTHER_VARIABLES
    return [
        f"{name} in the environment is no setting and does nothing"
        + (f"; {hint}" if (hint := similar(name, known)) else "")
        for name in environ
        if name.startswith("RETINUE_") and name not in known
    ]


def parse_text(name: str, raw: str) -> Any:
    """A value written as text: TOML or JSON where it is that, commas for lists, else the text itself."""
    annotation = str(names()[name].annotation)
    if raw.lower() == "none" and "None" in annotation:
        return None
    if "tuple" in annotation and not raw.lstrip().startswith("["):
        return [part.strip() for part in raw.split(",") if part.strip()]
    if annotation.startswith("<class 'str'>") or annotation in ("str | None", "typing.Optional[str]"):
        return raw
    with contextlib.suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(f"value = {raw}")["value"]
    with contextlib.suppress(ValueError):
        return json.loads(raw)
    return raw


def build(values: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        table, _, key = name.partition(".")
        if key:
            nested.setdefault(table, {})[key] = value
        else:
            nested[table] = value
    try:
        return Settings.model_validate(nested)
    except ValidationError as error:
        found = [_mistake(one, origins) for one in error.errors()[:MOST_MISTAKES]]
    raise found[0] if len(found) == 1 else ConfigError("; ".join(str(one) for one in found))


def _mistake(one: ErrorDetails, origins: Mapping[str, str]) -> ConfigError:
    """What is wrong with one setting, and where it was set."""
    path = [str(part) for part in one["loc"]]
    name = ".".join(path[:2])
    origin = origins.get(name) or origins.get(path[0]) or origins.get(".".join(path))
    line = _line_of(name, origin) if origin else None
    if origin == "environment":
        origin = variable(name)
    if origin == "flag":  # or an argument of `Retinue`: the setting's name says enough
        origin = None
    if one["type"] == "extra_forbidden":
        return ConfigError(
            f"unknown setting '{name}'",
            file=origin,
            line=line,
            fix=similar(name, names()) or "'retinue config list' shows every setting",
        )
    return ConfigError(
        f"{name} = {masked(one.get('input'))!r}: {one['msg']}",
        file=origin,
        line=line,
        fix=f"'retinue config list {name}' shows what is allowed",
    )


def _line_of(name: str, file: str) -> int | None:
    """The line of a file that sets this, written as `key = …` below `[table]` or as `table.key = …`."""
    try:
        lines = text_of(read_own(file, MOST_SETTINGS), file).splitlines()
    except OSError:
        return None
    table = ""
    for number, text in enumerate(lines, 1):
        if head := re.match(r"\s*\[\s*([\w.-]+)\s*\]", text):
            table = f"{head[1]}."
        elif (key := re.match(r"\s*([\w.-]+)\s*=", text)) and f"{table}{key[1]}" == name:
            return number
    return None


def similar(name: str, known: Iterable[str]) -> str:
    """A question after the name that was probably meant, or nothing."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean '{near[0]}'?" if near else ""
