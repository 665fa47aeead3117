"""What `retinue doctor` looks at, each thing by itself. Nothing is changed, and no key is ever shown."""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import sys
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from retinue.builtin_tools import EXTRAS
from retinue.cli.extras import install
from retinue.errors import ConfigError, RetinueError
from retinue.masking import masked

if TYPE_CHECKING:
    from retinue.agents import Catalogue, Finding
    from retinue.models.providers import Provider
    from retinue.settings import LoadedSettings, Settings
    from retinue.settings.trusted_folders import TrustedFolders

State = Literal["ok", "note", "problem"]
REACH_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at. `fix` is what to do about it."""

    group: str
    name: str
    state: State
    text: str
    fix: str = ""


def program() -> list[Check]:
    from importlib.metadata import version

    python = platform.python_version()
    old = sys.version_info < (3, 11)
    return [
        Check(group="program", name="retinue", state="ok", text=version("retinue")),
        Check(
            group="program",
            name="python",
            state="problem" if old else "ok",
            text=f"{python} at {sys.executable}",
            fix="Retinue needs Python 3.11 or newer" if old else "",
        ),
        Check(group="program", name="system", state="ok", text=f"{platform.system()} {platform.release()}"),
    ]


def machine() -> list[Check]:
    """What the tools and sandboxes stand on."""
    from retinue.jail import Jail
    from retinue.tools.ripgrep import find_rg

    rg = find_rg()
    with Jail(Path("/")) as jail:
        with_openat2 = jail.method == "openat2"
    return [
        Check(
            group="tools",
            name="ripgrep",
            state="ok" if rg else "note",
            text=rg or "not found; searching works, but slowly",
            fix="" if rg else "pip install ripgrep",
        ),
        Check(
            group="tools",
            name="path jail",
            state="ok",
            text="openat2 (the kernel keeps paths inside)"
            if with_openat2
            else "step by step (no openat2 here; as safe, a little slower)",
        ),
        _landlock(),
    ]


def _landlock() -> Check:
    version = 0
    if sys.platform == "linux":
        from retinue.sandbox.seal import landlock_version

        version = landlock_version()
    return Check(
        group="tools",
        name="Landlock",
        state="ok" if version >= 1 else "note",
        text=f"version {version}"
        if version >= 1
        else "not there: code mode has the small language of code.engine = 'monty'",
        fix="" if version >= 1 else "a kernel from 5.13 on with Landlock gives it the whole language",
    )


def commands(settings: Settings, cwd: Path, environ: Mapping[str, str]) -> list[Check]:
    """Whether commands can run in the sandbox, in this folder."""
    from retinue.sandbox.commands.view import CommandPlace, Trials

    network = settings.approvals.sandbox_network
    place = CommandPlace(project=cwd, workspace=None, writable=True, network=network)
    why = Trials().why_not(place, environ)
    on = settings.approvals.sandbox != "off"
    text = ("on" if on else "can be switched on") if why is None else f"cannot be used here: {why}"
    return [
        Check(
            group="tools",
            name="sandbox for commands",
            state="ok" if why is None else "problem" if on else "note",
            text=text,
            fix='every command asks; approvals.sandbox = "off" if that is meant' if why and on else "",
        )
    ]


def servers(loaded: LoadedSettings, cwd: Path) -> list[Check]:
    """The MCP servers by name, and whether they may start. Starts none."""
    from retinue.cli.mcp_servers import servers_of

    app = servers_of(cwd, loaded)
    found = [
        Check(
            group="MCP servers",
            name=each.name,
            state="problem" if each.problem else "note" if each.state == "waits" else "ok",
            text=each.problem or f"{each.trust}, {len(each.tools)} tools: {each.command}",
            fix=f"retinue mcp test {each.name}" if each.problem else _to_trust(each.name, each.state),
        )
        for each in app.status()
    ]
    problems = (
        Check(group="MCP servers", name="file", state="problem", text=each, fix="mend it")
        for each in app.configured.problems
    )
    return [*found, *problems]


def _to_trust(name: str, state: str) -> str:
    return f"retinue mcp trust {name}" if state == "waits" else ""


def extras() -> list[Check]:
    found: list[Check] = []
    for name, modules in EXTRAS.items():
        missing = [module for module in modules if find_spec(module) is None]
        found.append(
            Check(
                group="extras",
                name=name,
                state="note" if missing else "ok",
                text=f"not installed ({', '.join(missing)})" if missing else "installed",
                fix=install(name) if missing else "",
            )
        )
    return found


ALWAYS_YES = (
    "high is --yes for every run: commands, files that run later, files with secrets and composed addresses "
    "pass unasked; better none, with approvals.auto = sandboxed"
)


def configuration(loaded: LoadedSettings) -> list[Check]:
    """Where each value that is not a default came from, and what was left out."""
    from retinue.settings import values_of

    values = values_of(loaded.settings)
    found = [
        Check(group="settings", name=name, state="ok", text=f"{_safe(values.get(name))}  from {origin}")
        for name, origin in sorted(loaded.origins.items())
    ]
    found += [
        Check(group="settings", name="warning", state="problem", text=warning) for warning in loaded.warnings
    ]
    if loaded.settings.approvals.auto_risk == "high":
        found.append(Check(group="settings", name="approvals.auto_risk", state="note", text=ALWAYS_YES))
    return found or [Check(group="settings", name="all", state="ok", text="defaults")]


def _safe(value: object) -> str:
    """A value for the screen: an address may hold a password."""
    return str(masked(value))


def agents(cwd: Path, trusted: TrustedFolders) -> list[Check]:
    from retinue.agents import load_agents
    from retinue.kept_files import kept_here

    catalogue = load_agents(cwd, trusted=trusted, kept=kept_here(cwd))
    broken = (*catalogue.problems, *_unusable(cwd, catalogue))
    files = {problem.file for problem in broken}
    usable = (name for name, each in catalogue.agents.items() if each.spec.origin not in files)
    found = [Check(group="agents", name="found", state="ok", text=", ".join(sorted(usable)))]
    from retinue.agents.plugins import plugins

    for plugin in plugins():
        unused = f"not obeyed: {', '.join(plugin.unused())}" if plugin.unused() else "used"
        state = "problem" if plugin.problem else "ok"
        found.append(
            Check(
                group="agents",
                name=f"plugin {plugin.name}",
                state=state,
                text=f"{plugin.folder}: {plugin.problem or unused}",
                fix="mend it, or take it out of 'plugins'" if plugin.problem else "",
            )
        )
    return found + [
        Check(
            group="agents",
            name="broken",
            state="problem",
            text=f"{problem.file}{f':{problem.line}' if problem.line else ''}: {problem.message}",
            fix=problem.fix,
        )
        for problem in broken
    ]


def _unusable(cwd: Path, catalogue: Catalogue) -> list[Finding]:
    """Files that can be read, of agents that cannot begin here."""
    from retinue.cli.agents import findings_of, own_files

    told = {(problem.file, problem.message) for problem in catalogue.problems}
    try:
        found = findings_of(own_files(cwd), cwd)
    except RetinueError:
        return []  # said where settings and tools are looked at
    return [each for each in found if each.level == "error" and (each.file, each.message) not in told]


async def database(settings: Settings) -> list[Check]:
    from retinue.store.connect import connect, default_url
    from retinue.store.prune import strays_of

    url = settings.db or default_url()
    path = sqlite_path(url)
    where = Check(group="database", name="address", state="ok", text=_safe(url))
    if path is not None and not path.exists():
        above = next((each for each in path.absolute().parents if each.exists()), Path("/"))
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            return [
                where,
                Check(
                    group="database",
                    name="file",
                    state="problem",
                    text=f"cannot be made: {above} cannot be written",
                    fix="make it writable, or set another place with --db or RETINUE_DB",
                ),
            ]
        return [where, Check(group="database", name="file", state="ok", text="will be made by the first run")]
    damage = await asyncio.to_thread(_damage, path, settings.db or "") if path is not None else []
    if damage:
        return [where, *damage]
    try:
        store = connect(url)
        await store.open()
        try:
            size, strays = await store.size(), await strays_of(store)
        finally:
            await store.close()
    except RetinueError as error:
        return [where, Check(group="database", name="opens", state="problem", text=str(error))]
    from retinue.store.migrate import newest
    from retinue.view.words import size as in_words

    sound = "sound, " if path is not None else ""
    return [
        where,
        Check(group="database", name="state", state="ok", text=f"{sound}schema {newest()}, {in_words(size)}"),
        *([_strays(strays, settings.db or "")] if strays else []),
    ]


def _strays(root_ids: Sequence[str], db: str) -> Check:
    from retinue.view.words import count

    return Check(
        group="database",
        name="strays",
        state="problem",
        text=f"it keeps something of {count(len(root_ids), 'workflow')} that it does not have any more, "
        f"or never had: {', '.join(root_ids[:3])}{' …' if len(root_ids) > 3 else ''}",
        fix=f"retinue runs prune --strays{_given(db)}",
    )


def _given(db: str) -> str:
    return f" --db {shlex.quote(db)}" if db else ""  # it may be set for this one command


def sqlite_path(url: str) -> Path | None:
    from urllib.parse import unquote

    scheme, separator, rest = url.partition("://")
    if not separator:
        return None if url in ("memory:", "sqlite:") else Path(url)
    return Path("/" + unquote(rest).lstrip("/")) if scheme.startswith("sqlite") and rest else None


def _damage(path: Path, db: str) -> list[Check]:
    from retinue.store.sqlite_file import check

    fix = f"retinue doctor{_given(db)} --salvage-to {shlex.quote(str(path.with_suffix('.saved.db')))}"

    try:
        wrong = check(path)
    except RetinueError as error:  # it says nothing about the file: a full disk
        return [Check(group="database", name="opens", state="problem", text=str(error))]
    except OSError as error:
        wrong = [str(error)]
    return [
        Check(
            group="database",
            name="damaged",
            state="problem",
            text=f"{path}: {text}",
            fix=fix if index == 0 else "",
        )
        for index, text in enumerate(wrong)
    ]


async def models(settings: Settings, environ: Mapping[str, str]) -> list[Check]:
    """Which model would be used and why, whether it can be reached, and for which providers a key is set."""
    from retinue.models.connect import check_provider
    from retinue.models.providers import default_model

    name, why = default_model(settings, environ)
    try:
        check_provider(name, settings=settings)
    except ConfigError as error:
        unknown = Check(
            group="models",
            name="model",
            state="problem",
            text=f"{error.message} ({why})",
            fix=error.fix or "",
        )
        return [unknown, _keys(settings, environ)]
    whole = _with_model(name, settings, environ)
    found = [Check(group="models", name="model", state="ok", text=f"{whole} ({why})")]
    if name == "offline":
        found[0] = Check(
            group="models",
            name="model",
            state="note",
            text=f"offline: answers by rules ({why})",
            fix="export OPENAI_API_KEY=… or retinue config set model ollama:NAME",
        )
    else:
        found += [await _reach(each.strip(), settings, environ) for each in name.split(",")]
    return [*found, _keys(settings, environ)]


def _with_model(name: str, settings: Settings, environ: Mapping[str, str]) -> str:
    """The name for people, with the model that its provider alone stands for."""
    from retinue.models.providers import find, split
    from retinue.view.words import model

    if "," in name:
        return ", ".join(_with_model(each.strip(), settings, environ) for each in name.split(","))
    if name.startswith(("http://", "https://")) or name == "offline":
        return name
    provider_name, named = split(name, settings=settings)
    provider = None if named else find(provider_name, settings=settings, environ=environ)
    return f"{provider_name}:{provider.model}" if provider and provider.model else model(name)


def _keys(settings: Settings, environ: Mapping[str, str]) -> Check:
    from retinue.models.keys import find_keys
    from retinue.models.providers import PROVIDERS, find, key_variables

    counts: dict[str, int] = {}
    for name in sorted({*PROVIDERS, *settings.providers}):
        try:
            provider = find(name, settings=settings, environ=environ)
        except ConfigError:
            continue
        number = len(find_keys(environ, key_variables(provider))) if provider else 0
        if number:
            counts[name] = number
    told = [f"{name} ({number})" if number > 1 else name for name, number in counts.items()]
    told += [f"{name} (in the keyring)" for name in settings.keyring]
    text = ", ".join(told) or "none in the environment"
    return Check(group="models", name="keys", state="ok", text=text)


async def _reach(name: str, settings: Settings, environ: Mapping[str, str]) -> Check:
    """Ask the provider what models it has: that needs the address and the key, and costs nothing."""
    from retinue.models import providers
    from retinue.models.connect import check_scheme

    try:
        if name.startswith(("http://", "https://")):
            provider, model = (
                providers.Provider(name=name, base_url=name.partition("#")[0], own_address=False),
                "",
            )
            keys: tuple[str, ...] = ()
            bearer = True
        else:
            provider_name, model = providers.split(name, settings=settings)
            provider = providers.find(provider_name, settings=settings, environ=environ)
            if provider is None:
                return Check(group="models", name="reachable", state="note", text=f"{name}: not looked at")
            keys, bearer = providers.keys_of(provider, environ, keyring=settings.keyring)
        check_scheme(provider)
        return await _listed(provider, keys, bearer, model)
    except ConfigError as error:
        return Check(
            group="models", name="reachable", state="problem", text=error.message, fix=error.fix or ""
        )


async def _listed(provider: Provider, keys: tuple[str, ...], bearer: bool, model: str) -> Check:
    from retinue.models.connect import advice
    from retinue.models.http import Client, HttpRefused
    from retinue.models.keys import KeyPool
    from retinue.models.listing import headers_of

    base, wire = provider.base_url.rstrip("/"), provider.wire
    url = {"anthropic": f"{base}/v1/models", "gemini": f"{base}/v1beta/models"}.get(wire, f"{base}/models")
    headers = headers_of(wire, keys[0] if keys else None, bearer=bearer)
    try:
        async with Client() as client:
            body = await client.get(url, headers=headers, timeout=REACH_SECONDS)
    except HttpRefused as error:
        usual = "check the key" if error.status in (401, 403) else "check the address"
        return Check(
            group="models",
            name="reachable",
            state="problem",
            text=f"{base} answers {error.status}",
            fix=advice(provider, error.status) or usual,
        )
    except OSError as error:
        text = KeyPool(keys).mask(str(error) or type(error).__name__)
        return Check(
            group="models",
            name="reachable",
            state="problem",
            text=f"{base} cannot be reached: {text}",
            fix="is the server running, and the address right?",
        )
    known = f'"{model}"'.encode() in body.replace(b"models/", b"") or not model
    return Check(
        group="models",
        name="reachable",
        state="ok" if known else "note",
        text=f"{base} answers" + ("" if known else f", but does not list {model}"),
    )


async def everything(
    loaded: LoadedSettings, cwd: Path, environ: Mapping[str, str] | None = None
) -> list[Check]:
    from retinue.agents import load_agents
    from retinue.cli.own_checks import own_things
    from retinue.rules_given import with_slips

    environ = os.environ if environ is None else environ

    def settings() -> list[Check]:
        return configuration(with_slips(loaded, load_agents(cwd, trusted=loaded.trusted).agents))

    return [
        *program(),
        *await _looked("models", models(loaded.settings, environ)),
        *await _looked("database", database(loaded.settings)),
        *await _looked("agents", asyncio.to_thread(agents, cwd, loaded.trusted)),
        *await _looked("own tools", asyncio.to_thread(own_things, cwd, loaded.trusted)),
        *machine(),
        *await _looked("tools", asyncio.to_thread(commands, loaded.settings, cwd, environ)),
        *await _looked("MCP servers", asyncio.to_thread(servers, loaded, cwd)),
        *extras(),
        *await _looked("settings", asyncio.to_thread(settings)),
    ]


async def _looked(group: str, looking: Awaitable[list[Check]]) -> list[Check]:
    """What was found. What keeps a part from being looked at, a broken file above all, is a problem of that
    part and ends none of the others."""
    try:
        return await looking
    except RetinueError as error:
        return [Check(group=group, name="not looked at", state="problem", text=str(error))]
