"""What the API says about the server itself: agents, tools, settings, figures, and who is asking."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from retinue.server.fields import Given, Shown, Text, encodable, not_too_much
from retinue.server.models import ReportOut, RunOut, Total
from retinue.server.security import Role
from retinue.types import Effect, Risk

# -- agents and tools ------------------------------------------------------------------------------


class FindingOut(Shown):
    file: str
    line: int | None
    level: Literal["error", "warning", "note"]
    message: str
    fix: str


class AgentOut(Shown):
    name: str
    description: str
    icon: str
    scope: Literal["project", "user", "builtin", "code"] = Field(description="where it comes from")
    file: str | None
    tools: list[str] | None = Field(description="null: every tool of its parent")
    disallowed_tools: list[str]
    model: str
    max_turns: int | None
    timeout: float | None
    mode: Literal["tools", "code"]
    skills: list[str] | None = Field(description="null: as a main agent all, as a child none")
    effort: str = Field(description="how hard its model is asked to think; empty: as hard as its parent's")
    isolation: str = Field(description="'worktree': as a child it works in a copy of the project")
    memory: bool
    background: bool
    limits: dict[str, JsonValue]
    input_schema: dict[str, JsonValue] | None
    output_schema: dict[str, JsonValue] | None
    output_format: str
    findings: list[FindingOut] = Field(description="what 'check' says about its file")
    default: bool = Field(description="the agent of a question that names none")


class AgentDetail(AgentOut):
    prompt: str
    prompt_html: str


class AgentList(Shown):
    agents: list[AgentOut]
    problems: list[FindingOut] = Field(description="files that could not be used")


class ToolOut(Shown):
    name: str
    description: str
    effect: Effect
    risk: Risk
    repeatable: bool
    aliases: list[str]
    arguments: dict[str, JsonValue] = Field(description="JSON schema")
    origin: str = Field(description="its file or option; empty: Retinue's own, or a program's")


class ToolFileOut(Shown):
    file: str
    names: list[str] = Field(description="the tools it would have, as far as its text tells")
    why: str = Field(description="why it is not loaded, and what to do")


class ToolList(Shown):
    tools: list[ToolOut]
    waiting: list[ToolFileOut] = Field(description="files of tools that are not loaded: nobody trusted them")


class SkillOut(Shown):
    name: str
    description: str
    scope: Literal["project", "user", "builtin"] = Field(description="where it comes from")
    folder: str
    license: str
    compatibility: str
    allowed_tools: list[str] = Field(description="what it says that it may use; it grants nothing")
    hidden: bool = Field(description="no model is told of it, but an agent that names it")
    files: list[str] = Field(description="beside SKILL.md")
    findings: list[FindingOut]


class SkillList(Shown):
    skills: list[SkillOut]
    problems: list[FindingOut] = Field(description="skills that could not be used")


class ServerOut(Shown):
    name: str
    origin: str = Field(description="the file that it is written in")
    scope: Literal["program", "user", "project", "agent", "plugin"]
    command: str = Field(description="what starts, or the address; without passwords")
    transport: Literal["stdio", "http", "sse"]
    trust: Literal["yours", "trusted", "started", "new", "changed"]
    trust_says: str
    state: Literal["running", "ready", "failed", "not listed yet", "waits"]
    tools: list[str]
    variables: list[str] = Field(description="names of the variables that it is given")
    problem: str


class ServerList(Shown):
    servers: list[ServerOut]
    problems: list[str] = Field(description="what is wrong with files that name servers")


# -- settings --------------------------------------------------------------------------------------


class SettingOut(Shown):
    name: str
    value: JsonValue
    default: JsonValue
    description: str
    origin: str = Field(description="'default', a file, 'environment' or 'flag'")
    variable: str = Field(description="the environment variable that sets it")
    arguments: dict[str, JsonValue] = Field(description="JSON schema of its value")
    needs: Role = Field(description="the role that may change it")
    per_run: bool = Field(description="may be given for one run")
    restart: bool = Field(description="a change counts after a restart")


class SettingGroup(Shown):
    """A table of settings; those outside a table have an empty name."""

    name: str
    title: str
    about: str


class SettingList(Shown):
    settings: list[SettingOut]
    groups: list[SettingGroup] = Field(description="in the order to show them in")
    warnings: list[str]
    file: str = Field(description="the user's file, where changes are kept")
    model: str = Field(description="the model that a question gets now")
    models: list[str] = Field(description="names to choose from; others are possible")


class ChangeSettings(Given):
    """Dotted names to values; null takes a setting out of the file, so that the default counts again."""

    settings: Annotated[dict[str, JsonValue], AfterValidator(encodable), Field(min_length=1, max_length=100)]


# -- the rest --------------------------------------------------------------------------------------


class TotalsOut(Shown):
    key: str
    runs: int
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float
    unpriced: int = Field(description="runs whose cost is not known")
    duration_ms: int


class Stats(Shown):
    by: Literal["agent", "model", "day", "outcome"]
    totals: list[TotalsOut]


class Side(Shown):
    """One of two runs."""

    run: RunOut
    total: Total
    report: ReportOut | None
    tools: dict[str, int] = Field(description="calls by tool, in the whole tree")
    agents: dict[str, int] = Field(description="runs by agent, in the whole tree")


class Comparison(Shown):
    a: Side
    b: Side
    diff: str = Field(description="of the two reports, unified")


class Health(Shown):
    status: Literal["ok"]


class Me(Shown):
    name: str
    role: Role
    open: bool = Field(description="no token is needed here")
    version: str
    project: str
    model: str
    default_agent: str


class Login(Given):
    token: Annotated[str, Field(min_length=1, max_length=500)]


class LoggedIn(Shown):
    name: str
    role: Role


class LoggedOut(Shown):
    ok: bool


class Texts(Given):
    texts: Annotated[list[Text], AfterValidator(not_too_much)] = Field(max_length=50, description="Markdown")


class Rendered(Shown):
    html: list[str]
