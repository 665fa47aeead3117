"""Every setting there is. To add one, add a field to its table; nothing else has to know it by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, cast

import msgspec
from msgspec import Meta

from retinue.settings.declare import CHAIN, SECONDS, Group, Says, Setting, SettingsTable, fields
from retinue.types import ModelSettings

Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0, extra=SECONDS)]
Dollars = Annotated[float, Meta(gt=0)]
Ceiling = Positive | Literal["auto", "none"]
Patience = Seconds | Literal["auto"]
AgentCalls = Count | Literal["auto"]
Texts = tuple[str, ...]


class LimitSettings(SettingsTable, frozen=True, kw_only=True):
    """How far a run may go. The `tree_` limits are for a root and everything below it together.

    A ceiling of `auto` grows with the number of runs that the delegation policy allows.
    """

    group: ClassVar[Group] = Group(
        title="Limits",
        about="How far a run may go",
        docs="How far a run may go. The `tree_` settings are for a root and everything below it together. "
        "`auto` is 250 model calls, 7,500,000 input tokens and 750,000 output tokens for each run that the "
        "policy allows. See [budgets](../delegation.md#budgets).",
    )
    max_turns: Annotated[Positive, Says("model calls of a root run", "ceiling", per_run=True)] = 25
    subagent_turns: Annotated[
        int,
        Meta(ge=1, le=50),
        Says("model calls of a child that does not say", "ceiling", per_run=True),
    ] = 10
    timeout: Annotated[
        Seconds, Says("seconds a run may take; waiting for a person is free", "ceiling", per_run=True)
    ] = 600
    model_timeout: Annotated[
        Patience,
        Says(
            "seconds a model call may take; auto: 120, or 600 on this machine",
            "ceiling",
            auto=120,
            per_run=True,
        ),
    ] = "auto"
    tool_timeout: Annotated[Seconds, Says("seconds a tool may take", "ceiling", per_run=True)] = 60
    tool_concurrency: Annotated[Positive, Says("tools of one step that run at the same time", "ceiling")] = 8
    tool_output: Annotated[
        int, Meta(ge=1000), Says("characters of a tool result the model is shown", "ceiling")
    ] = 50_000
    report_bytes: Annotated[
        int, Meta(ge=256), Says("bytes of a child's report its parent is shown", "ceiling")
    ] = 4096
    tree_turns: Annotated[Ceiling, Says("model calls of a whole tree", "ceiling", auto=250, per_run=True)] = (
        "auto"
    )
    tree_input_tokens: Annotated[
        Ceiling, Says("input tokens of a whole tree", "ceiling", auto=7_500_000, per_run=True)
    ] = "auto"
    tree_output_tokens: Annotated[
        Ceiling, Says("output tokens of a whole tree", "ceiling", auto=750_000, per_run=True)
    ] = "auto"
    tree_seconds: Annotated[Seconds | None, Says("seconds of a whole tree", "ceiling", per_run=True)] = 3600
    longest_park: Annotated[
        Seconds,
        Says(
            "seconds a run waits for a provider's limit to reset; a longer wait is an error",
            "ceiling",
            per_run=True,
        ),
    ] = 21_600
    max_cost: Annotated[Dollars | None, Says("US dollars a whole tree may cost", "ceiling", per_run=True)] = (
        None
    )


DelegationTool = Literal["agents", "spawn_agent", "delegate_task", "parallel_tasks", "subagent", "background"]
WAYS: tuple[DelegationTool, ...] = ("agents", "spawn_agent", "parallel_tasks")
"""The ways to delegate that are offered where nobody set others; under `nested` with `subagent`."""


class DelegationSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Delegation",
        about="Who may start children, and how many",
        docs="Who may delegate, and how. See [delegation](../delegation.md).",
    )
    enabled: Annotated[bool, Says("sub-agents on or off", "switch", approver=True, per_run=True)] = True
    tools: Annotated[
        tuple[DelegationTool, ...] | Literal["auto"],
        Says(
            "the ways to delegate a model is offered; auto: agents, spawn_agent and parallel_tasks, with the "
            "policy nested subagent too",
            "shorter",
            auto=WAYS,
        ),
    ] = "auto"
    policy: Annotated[
        Literal["flat", "nested"], Says("flat: only the root delegates", "switch", per_run=True)
    ] = "flat"
    max_depth: Annotated[Positive, Says("nested: levels, the root included", "ceiling", per_run=True)] = 3
    max_children: Annotated[
        Count, Says("flat: children for each message of a person", "ceiling", per_run=True)
    ] = 3
    nested_children: Annotated[
        Count, Says("nested: children for each message of a person", "ceiling", per_run=True)
    ] = 27
    agent_calls: Annotated[
        AgentCalls,
        Says(
            "agents called as tools for each message; auto: 24, or as many as children if that is more",
            "ceiling",
            auto=24,
            per_run=True,
        ),
    ] = "auto"
    concurrency: Annotated[Positive, Says("children that run at the same time", "ceiling", per_run=True)] = 8
    parent_ends: Annotated[
        Literal["cancel", "wait", "leave"],
        Says(
            "what becomes of background children when their parent finishes first: it waits, stops them, or "
            "leaves them at work, and what they report opens its next turn",
            "free",
        ),
    ] = "wait"
    summary: Annotated[
        Literal["cut", "model"],
        Says("an over-long report is cut, or summarised by the small model", "switch"),
    ] = "cut"
    corrections: Annotated[Count, Says("tries to mend an answer that does not fit its schema", "ceiling")] = 2

    @property
    def ways(self) -> tuple[DelegationTool, ...]:
        """The ways to delegate that a model is offered."""
        if self.tools != "auto":
            return self.tools
        return (*WAYS, "subagent") if self.policy == "nested" else WAYS


class ApprovalSettings(SettingsTable, frozen=True, kw_only=True):
    """Rules like `bash(git status*)`, `write(docs/**)`, `effect:network`, `agent:planner`, `risk:medium`."""

    group: ClassVar[Group] = Group(
        title="Approvals",
        about="What runs without asking, and what never does",
        docs="What runs without asking, what asks, what never runs. See [rules](../delegation.md#rules).",
    )
    allow: Annotated[Texts, Says("rules for what runs without asking", "trusted")] = ()
    ask: Annotated[Texts, Says("rules for what always asks a person", "adds")] = ()
    deny: Annotated[Texts, Says("rules for what never runs", "adds")] = ()
    auto_risk: Annotated[
        Literal["none", "low", "medium", "high"], Says("approve without asking up to this risk", "trusted")
    ] = "none"
    auto: Annotated[
        Literal["off", "sandboxed"],
        Says("sandboxed: commands in the sandbox without network run without asking", "trusted"),
    ] = "off"
    reviewer: Annotated[
        Literal["off", "small"],
        Says("small: the small model clears harmless calls before a person is asked", "trusted"),
    ] = "off"
    sandbox: Annotated[
        Literal["off", "project"],
        Says("project: commands write in the project and see no keys (Linux)", "trusted"),
    ] = "off"
    sandbox_network: Annotated[bool, Says("commands in the sandbox reach the network", "trusted")] = False
    delegation: Annotated[
        Literal["all", "made-up", "none"],
        Says("which delegation asks: all of it, agents that a model makes up, or none", "switch"),
    ] = "made-up"
    answer_within: Annotated[
        Seconds | None,
        Says("seconds a person has to answer a question; none: it waits", "ceiling", per_run=True),
    ] = None
    unanswered: Annotated[
        Literal["stop", "reject"],
        Says("what a question comes to that nobody answered within that time", "switch", per_run=True),
    ] = "reject"
    callback_seconds: Annotated[
        Seconds, Says("longest a program's own `approve` function may take for one answer", "trusted")
    ] = 86_400


class ContextSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Context",
        about="What the model is shown",
        docs="What a model is shown of a long conversation.",
    )
    max_tokens: Annotated[
        int, Meta(ge=1000), Says("size of the history a model is shown", "ceiling", approver=True)
    ] = 100_000
    keep_turns: Annotated[Positive, Says("newest turns that are never pruned", "free", approver=True)] = 6
    threshold: Annotated[
        float, Meta(gt=0, le=1), Says("share of max_tokens that triggers pruning", "free", approver=True)
    ] = 0.8
    mode: Annotated[
        Literal["prune", "summarize"], Says("what becomes of old turns", "switch", approver=True)
    ] = "prune"
    instructions: Annotated[bool, Says("show AGENTS.md of the project to the root agent", "switch")] = True
    skill_tokens: Annotated[
        Count, Says("most the names and descriptions of skills take in a prompt; 0 offers none", "ceiling")
    ] = 4000
    error_tokens: Annotated[Count, Says("most the last error takes in a prompt", "free")] = 400
    attachment_tokens: Annotated[
        Count, Says("most all attached files together take in a prompt", "ceiling")
    ] = 50_000
    knowledge_tokens: Annotated[int, Meta(ge=64), Says("most that was looked up first takes", "free")] = 1000
    task_tokens: Annotated[Count, Says("most the list of tasks takes in a prompt", "free")] = 600
    goal_tokens: Annotated[Count, Says("most the goals take in a prompt", "free")] = 300
    memory_tokens: Annotated[Count, Says("most the newest of the memory takes in a prompt", "free")] = 800
    vault_tokens: Annotated[Count, Says("most the names in the vault take in a prompt", "free")] = 400


class WorkspaceSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Workspace",
        about="The files of a run",
        docs="A run's private `/home/agent`. See [web](../web.md#the-workspace).",
    )
    quota_mb: Annotated[Positive, Says("size of a run's /home/agent", "ceiling")] = 256
    kept_mb: Annotated[
        Count, Says("size of the files that a workflow keeps with its log, packed; 0 keeps none", "ceiling")
    ] = 32
    root: Annotated[
        str | None,
        Says("folder for workspaces; the system's temp folder if unset", "trusted", restart=True),
    ] = None


class UndoSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Undo",
        about="Taking back what runs changed",
        docs="What is recorded so that changes can be taken back. See [undo](../undo.md).",
    )
    enabled: Annotated[bool, Says("record what runs change in the project", "trusted")] = True
    file_mb: Annotated[Positive, Says("a larger file is not looked after by commands", "trusted")] = 10
    files: Annotated[
        Positive, Says("in a project with more files and folders, commands are not recorded", "trusted")
    ] = 50_000
    kept_mb: Annotated[Count, Says("size of what a workflow keeps to be put back, packed", "trusted")] = 200


class IsolationSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Isolation",
        about="Copies of the project for agents that write",
        docs="Agents with `isolation: worktree`. See [isolation](../isolation.md).",
    )
    ignored: Annotated[
        bool, Says("copy what git ignores as well, such as `.env` and `node_modules`", "trusted")
    ] = False


class WebSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Web", about="Searching and fetching", docs="Fetching and searching. See [web](../web.md)."
    )
    search: Annotated[
        tuple[Literal["ddgs", "searxng", "brave", "tavily"], ...],
        Says("search backends, the next used when one fails", "shorter", restart=True),
    ] = ("ddgs",)
    searxng_url: Annotated[str | None, Says("address of a SearXNG server", "trusted", restart=True)] = None
    brave_url: Annotated[str, Says("address of Brave's search", "trusted", restart=True)] = (
        "https://api.search.brave.com"
    )
    tavily_url: Annotated[str, Says("address of Tavily's search", "trusted", restart=True)] = (
        "https://api.tavily.com"
    )
    allow_hosts: Annotated[
        Texts,
        Says(
            "hosts or networks that may be fetched although private, e.g. 'wiki.corp:8080'",
            "trusted",
            restart=True,
        ),
    ] = ()
    robots: Annotated[bool, Says("respect robots.txt", "trusted", restart=True)] = True
    max_bytes: Annotated[int, Meta(ge=1000), Says("largest body that is read", "ceiling", restart=True)] = (
        5_000_000
    )
    timeout: Annotated[Seconds, Says("seconds one fetch may take", "ceiling", restart=True)] = 30
    host_interval: Annotated[
        float,
        Meta(ge=0),
        Says(
            "seconds between two fetches of one host, by all processes of a database", "trusted", restart=True
        ),
    ] = 0.5
    inline_bytes: Annotated[
        int, Meta(ge=1000), Says("a larger page is saved to the workspace", "ceiling", restart=True)
    ] = 50_000
    cache_ttl: Annotated[
        float,
        Meta(ge=0, extra=SECONDS),
        Says("seconds a fetched page is used again", "free", approver=True, restart=True),
    ] = 3600
    proxy: Annotated[str | None, Says("fetch through this proxy", "trusted", restart=True)] = None


ExtraSource = Literal["crossref", "semanticscholar", "pubmed", "openalex", "hackernews"]


class SourceSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Sources",
        about="How claims are held against their sources",
        docs="How the claims of a report are held against their sources. See [claims](../web.md#claims).",
    )
    judge: Annotated[
        str,
        Says(
            "who decides on claims that the program cannot: 'off', 'small' for the small model, or a model",
            "trusted",
        ),
    ] = "off"


class KnowledgeSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Knowledge",
        about="Looking questions up first",
        docs="The knowledge sources. See [knowledge](../knowledge.md).",
    )
    first: Annotated[
        bool,
        Says(
            "let the knowledge agent run before a question that needs it",
            "switch",
            approver=True,
            per_run=True,
            any_client=True,
            restart=True,
        ),
    ] = False
    agent: Annotated[str, Says("the agent that runs first", "free", approver=True, restart=True)] = (
        "web-knowledge"
    )
    timeout: Annotated[
        Seconds, Says("seconds the agent that runs first may take", "ceiling", approver=True, restart=True)
    ] = 30
    request_timeout: Annotated[
        Seconds,
        Says(
            "seconds one lookup may take, waiting for its turn and retries included",
            "ceiling",
            approver=True,
            restart=True,
        ),
    ] = 20
    cache_ttl: Annotated[
        float,
        Meta(ge=0, extra=SECONDS),
        Says("seconds an answer of a source is used again", "free", approver=True, restart=True),
    ] = 3600
    contact: Annotated[
        str | None, Says("operator's URL or e-mail, sent in the User-Agent", "trusted", restart=True)
    ] = None
    extra: Annotated[
        tuple[ExtraSource, ...], Says("more sources than the eight", "shorter", restart=True)
    ] = ()
    base_urls: Annotated[
        dict[str, str], Says("another address for a source, by name", "trusted", restart=True)
    ] = msgspec.field(default_factory=dict[str, str])


class CodeSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Code", about="The sandbox", docs="Code mode. See [knowledge](../knowledge.md#code-mode)."
    )
    engine: Annotated[
        Literal["auto", "monty", "cpython"],
        Says("the sandbox for code mode; auto: cpython where it can be sealed", "trusted", restart=True),
    ] = "auto"
    timeout: Annotated[Seconds, Says("seconds one snippet may compute", "ceiling", restart=True)] = 30
    memory_mb: Annotated[int, Meta(ge=8), Says("megabytes one snippet may use", "ceiling", restart=True)] = (
        128
    )
    output: Annotated[
        int, Meta(ge=100), Says("characters of output that are kept", "ceiling", restart=True)
    ] = 20_000
    calls: Annotated[Count, Says("tool calls one snippet may make", "ceiling", restart=True)] = 50


class SheetSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Spreadsheets",
        about="Help with workbooks",
        docs="Attached spreadsheets. See [knowledge](../knowledge.md#spreadsheets).",
    )
    enabled: Annotated[
        bool, Says("spreadsheet helpers and guidance with a workbook attached", "free", approver=True)
    ] = True


class ServerSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Server", about="This page", docs="The page and the API: `retinue serve`."
    )
    host: Annotated[str, Says("address that `retinue serve` listens on", "trusted", restart=True)] = (
        "127.0.0.1"
    )
    port: Annotated[
        int, Meta(ge=0, le=65535), Says("port of `retinue serve`; 0 takes any", "trusted", restart=True)
    ] = 8484


class WorkerSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Workers",
        about="Runs on other machines",
        docs='Runs that workers do (`engine = "workers"`), and workers themselves: `retinue worker`. See '
        "[workers](../workers.md).",
    )
    queue: Annotated[
        str,
        Meta(pattern="^[a-z0-9][a-z0-9_.-]*$"),
        Says("the queue that runs are put into: workers serve some", "trusted", per_run=True),
    ] = "default"
    priority: Annotated[
        int,
        Meta(ge=-1000, le=1000),
        Says("which runs of a queue are begun first: those with the higher number", "trusted", per_run=True),
    ] = 0
    slots: Annotated[
        int, Meta(ge=2), Says("workflows that a worker works on at the same time", "trusted")
    ] = 20
    park_after: Annotated[
        Seconds,
        Says(
            "seconds after which a worker lets go of a workflow that only waits for a person or a limit",
            "trusted",
        ),
    ] = 2
    grace: Annotated[
        Seconds,
        Says(
            "seconds in which a worker that is told to stop finishes what its models and tools do", "trusted"
        ),
    ] = 20


class TerminalSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Terminal",
        about="How the terminal calls you",
        docs="How the terminal calls you. See [the chat](../chat.md#when-you-are-needed).",
    )
    notify: Annotated[
        Literal["bell", "desktop", "off"],
        Says(
            "when you are needed: the bell, also a notification of the desktop (OSC 9), or nothing", "trusted"
        ),
    ] = "bell"
    notify_after: Annotated[Seconds, Says("seconds without a key before that", "trusted")] = 10


class TelemetrySettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="Telemetry",
        about="Spans and metrics for OpenTelemetry",
        docs="Spans and metrics for an OpenTelemetry collector, beside its usual environment variables. "
        "See [telemetry](../telemetry.md).",
    )
    enabled: Annotated[
        Literal["auto", "on", "off"],
        Says("auto: send spans and metrics where a collector is named", "trusted", restart=True),
    ] = "auto"
    endpoint: Annotated[
        str | None,
        Says("address of a collector, over `OTEL_EXPORTER_OTLP_ENDPOINT`", "trusted", restart=True),
    ] = None
    content: Annotated[
        bool,
        Says("prompts, answers, arguments and results are sent too", "trusted", restart=True),
    ] = False

    def is_on(self, environ: Mapping[str, str]) -> bool:
        """Whether what happens is sent to a collector."""
        if self.enabled == "off" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return False
        named = ("ENDPOINT", "TRACES_ENDPOINT", "METRICS_ENDPOINT")
        told = any(environ.get(f"OTEL_EXPORTER_OTLP_{each}") for each in named)
        return self.enabled == "on" or bool(self.endpoint) or told


class McpServerSettings(SettingsTable, frozen=True, kw_only=True):
    """One MCP server: a program of this machine (`command`), or an address (`url`)."""

    command: Annotated[str | None, Says("the program that is the server", "trusted")] = None
    args: Annotated[Texts, Says("its arguments", "trusted")] = ()
    env: Annotated[
        dict[str, str],
        Says("variables that it is given; `${NAME}` is the value of ours, and it gets no others", "trusted"),
    ] = msgspec.field(default_factory=dict[str, str])
    cwd: Annotated[
        str | None,
        Says(
            "the folder it starts in, from the project; else your home, or its file's folder",
            "trusted",
        ),
    ] = None
    url: Annotated[str | None, Says("the address of a server that runs elsewhere", "trusted")] = None
    type: Annotated[
        Literal["stdio", "http", "streamable-http", "sse"] | None,
        Says("how it is spoken to; by default stdio for a command, http for an address", "trusted"),
    ] = None
    headers: Annotated[
        dict[str, str], Says("headers that are sent to it; `${NAME}` is the value of a variable", "trusted")
    ] = msgspec.field(default_factory=dict[str, str])
    share: Annotated[
        Literal["tree", "run"], Says("one process for a run and all below it, or one for each run", "trusted")
    ] = "tree"
    timeout: Annotated[Seconds | None, Says("seconds one call of it may take", "trusted")] = None
    disabled: Annotated[bool, Says("it is not used", "trusted")] = False


class McpSettings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="MCP", about="Servers with tools for agents", docs="MCP servers. See [MCP](../mcp.md)."
    )
    servers: Annotated[
        dict[str, McpServerSettings],
        Says("servers by name; one of a repository starts only when it is trusted", "free", restart=True),
    ] = msgspec.field(default_factory=dict[str, McpServerSettings])
    search_above: Annotated[
        Count, Says("with more tools than these, they are found with `mcp_search_tools`", "free")
    ] = 30
    start_timeout: Annotated[Seconds, Says("seconds a server may take to start", "ceiling")] = 20
    sampling: Annotated[
        Literal["refuse", "ask"],
        Says("whether a server may have the small model write for it, if you agree each time", "trusted"),
    ] = "refuse"
    message_mb: Annotated[
        Positive, Says("a server that sends more in one message is ended, in megabytes", "ceiling")
    ] = 16


class UsualSettings(ModelSettings, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a provider's models are asked where nobody says, as it is written in a file."""

    stop: str | tuple[str, ...] = ()  # pyright: ignore[reportIncompatibleVariableOverride] # a tuple once it is made
    timeout: float | str | None = None  # pyright: ignore[reportIncompatibleVariableOverride] # a number once it is made


class ProviderSettings(SettingsTable, frozen=True, kw_only=True):
    """One more OpenAI-compatible provider, or other settings for a known one."""

    wire: Annotated[
        Literal["openai", "responses", "anthropic", "gemini"] | None,
        Says("the format it speaks; of a provider that is not known, `openai`", "trusted"),
    ] = None
    base_url: Annotated[str | None, Says("its address", "trusted")] = None
    key_env: Annotated[Texts, Says("environment variables that hold keys, tried in turn", "trusted")] = ()
    model_settings: Annotated[
        UsualSettings, Says("how its models are asked where nobody says: temperature, top_p, …", "trusted")
    ] = UsualSettings()


class Price(SettingsTable, frozen=True, kw_only=True):
    """US dollars per million tokens."""

    input: Annotated[float, Meta(ge=0), Says("for a million input tokens", "trusted")]
    output: Annotated[float, Meta(ge=0), Says("for a million output tokens", "trusted")]


class Settings(SettingsTable, frozen=True, kw_only=True):
    group: ClassVar[Group] = Group(
        title="General", about="The model and the agent that answers", docs="General"
    )
    model: Annotated[
        Annotated[str, Meta(extra=CHAIN)] | None,
        Says(
            "the model, 'provider:name' or 'offline'; of several, the next if one fails for good", "trusted"
        ),
    ] = None
    small_model: Annotated[str | None, Says("a cheaper model for helpers and summaries", "trusted")] = None
    db: Annotated[str | None, Says("sqlite:///path or postgresql://…", "trusted", restart=True)] = None
    engine: Annotated[
        Literal["local", "workers"],
        Says(
            "who does the runs: this process, or the workers of a PostgreSQL database",
            "trusted",
            restart=True,
        ),
    ] = "local"
    keyring: Annotated[
        Texts, Says("providers whose key is in the system's keyring; 'retinue keys set' writes it", "trusted")
    ] = ()
    default_agent: Annotated[str, Says("the agent that `retinue ask` runs", "free", approver=True)] = (
        "general"
    )
    plugins: Annotated[
        Texts,
        Says("folders with a plugin.json: their agents, skills and MCP servers; in your own file", "trusted"),
    ] = ()
    limits: LimitSettings = LimitSettings()
    delegation: DelegationSettings = DelegationSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    context: ContextSettings = ContextSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    undo: UndoSettings = UndoSettings()
    isolation: IsolationSettings = IsolationSettings()
    web: WebSettings = WebSettings()
    sources: SourceSettings = SourceSettings()
    knowledge: KnowledgeSettings = KnowledgeSettings()
    code: CodeSettings = CodeSettings()
    sheets: SheetSettings = SheetSettings()
    server: ServerSettings = ServerSettings()
    workers: WorkerSettings = WorkerSettings()
    terminal: TerminalSettings = TerminalSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    mcp: McpSettings = McpSettings()
    providers: Annotated[dict[str, ProviderSettings], Says("more providers, by name", "trusted")] = (
        msgspec.field(default_factory=dict[str, ProviderSettings])
    )
    prices: Annotated[dict[str, Price], Says("prices of models that are not known", "trusted")] = (
        msgspec.field(default_factory=dict[str, Price])
    )


@lru_cache(maxsize=1)
def declared() -> dict[str, Setting]:
    """Every setting by its dotted name."""
    found: dict[str, Setting] = {}
    inside = fields(Settings)
    for name in Settings.__struct_fields__:
        if name in inside:
            found[name] = inside[name]
        else:
            for setting in fields(tables()[name]).values():
                found[f"{name}.{setting.name}"] = _named(setting, f"{name}.{setting.name}")
    return found


def _named(setting: Setting, name: str) -> Setting:
    return Setting(name=name, type=setting.type, default=setting.default, says=setting.says)


@lru_cache(maxsize=1)
def tables() -> dict[str, type[SettingsTable]]:
    """Every table by its name in a file; the settings outside a table by an empty one."""
    usual = Settings()
    return {"": Settings} | {
        name: type(value)
        for name in Settings.__struct_fields__
        if isinstance(value := getattr(usual, name), SettingsTable)
    }


def values_of(settings: Settings) -> dict[str, Any]:
    """The values of all settings by their dotted names, as JSON has them."""
    found: dict[str, Any] = {}
    for name in declared():
        table, _, key = name.rpartition(".")
        holder = getattr(settings, table) if table else settings
        found[name] = _plain(msgspec.to_builtins(getattr(holder, key)))
    return found


def _plain(value: Any) -> Any:
    """As JSON and TOML have it: lists, and no tuples."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast("list[Any]", value)]
    return value


def defaults() -> dict[str, Any]:
    """Every setting by its dotted name, with its default."""
    return values_of(Settings())
