"""Which MCP servers there are, where each was written down, and what of it may be used.

Read from the user's `config.toml`, the project's `retinue.toml`, `.mcp.json` of the project and the folders
above it up to the root of the repository, agent files and plugins. The nearest wins; what a program gives
beats all of them. Nothing here starts anything, and the package `mcp` is not needed.

A value like `${TOKEN}` or `${TOKEN:-none}` stands for a variable of ours. A server is given those that it
names, and no others.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from retinue.agents.loader import Catalogue
from retinue.agents.places import upwards
from retinue.agents.plugins import plugins
from retinue.errors import ConfigError
from retinue.masking import masked
from retinue.mcp.command_files import CommandFiles, command_files
from retinue.reading import MOST_SETTINGS, Folder, read_own, text_of
from retinue.settings import LoadedSettings, McpServerSettings
from retinue.settings.files import find_project_file, read_project_file, read_user_file, user_file

PROJECT_FILE = ".mcp.json"
SETTING = "mcp.servers"
MOST_SERVERS = 100
LEAST_SECRET = 6
"""Characters of a value that is masked wherever a server repeats it."""
Scope = Literal["program", "user", "project", "agent", "plugin"]
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+|__+")
_OURS = {"type", "command", "args", "env", "cwd", "url", "headers", "share", "disabled"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig:
    """One server as it was written. `origin` is the file; `folder` is what its relative paths start from.

    `agent`: the agent whose file defines it, which alone is shown its tools.
    """

    name: str
    written: McpServerSettings
    scope: Scope
    origin: str
    folder: Path | None = None
    agent: str = ""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """What stands for variables that are none of the environment, such as the folder of a plugin."""
    environ: Mapping[str, str] | None = None
    """The variables that it is started with; None: those of this process."""

    @property
    def transport(self) -> Literal["stdio", "http", "sse"]:
        if self.written.url is None:
            return "stdio"
        return "sse" if self.written.type == "sse" else "http"

    @property
    def of_repository(self) -> bool:
        """Whether it came with files that somebody else may have written."""
        return self.scope in ("project", "agent", "plugin")

    @property
    def needs(self) -> tuple[str, ...]:
        """The variables of ours that it is given."""
        found = (match[1] for text in self._texts() for match in _VARIABLE.finditer(text))
        return tuple(dict.fromkeys(name for name in found if name not in self.variables))

    def _texts(self) -> Iterator[str]:
        written = self.written
        yield from (written.command or "", *written.args, written.cwd or "", written.url or "")
        yield from (*written.env.values(), *written.headers.values())

    @property
    def command_line(self) -> str:
        """What starts, in one line and without passwords."""
        if self.written.url is not None:
            return str(masked(self.written.url))
        return str(masked(" ".join((self.written.command or "", *self.written.args))))

    @property
    def sha256(self) -> str:
        """What is trusted: how it is started or reached, what it is given, and the files of its folder that
        it is started from."""
        written = self.written
        what = msgspec.to_builtins(
            {
                "command": written.command,
                "args": written.args,
                "env": written.env,
                "cwd": written.cwd,
                "url": written.url,
                "transport": self.transport,
                "headers": written.headers,
                "files": list(self.files.digests),
            }
        )
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()

    @property
    def files(self) -> CommandFiles:
        """What of its repository it is started from, as that is now."""
        if self.folder is None or not self.of_repository or self.written.url is not None:
            return CommandFiles(digests=(), named=())
        environ = os.environ if self.environ is None else self.environ
        return command_files(
            self.top or self.folder,
            self.start_folder(environ, None),
            self.texts(environ),
            environ,
            folders=(self.folder,),
        )

    @property
    def top(self) -> Path | None:
        """The root of the repository, or the folder of the plugin, that it came with."""
        if self.folder is None or not self.of_repository:
            return None
        top = self.folder
        for above in () if self.scope == "plugin" else upwards(self.folder):
            top = above
        return top

    def start_folder(self, environ: Mapping[str, str], project: Path | None) -> Path:
        """Where it starts. One of the person's own is not to find what a repository put there, be it of
        their settings, their environment or a program."""
        folder = self.folder or project or Path("/")
        if self.scope in ("user", "program") and self.written.cwd is None:
            folder = Path.home()
        return folder / os.path.expanduser(self._filled(self.written.cwd or ".", environ))

    def texts(self, environ: Mapping[str, str]) -> list[str]:
        """Its program, then its arguments, then the values of its variables."""
        written = self.written
        texts = (written.command or "", *written.args, *written.env.values())
        return [self._filled(text, environ) for text in texts]

    def _filled(self, text: str, environ: Mapping[str, str]) -> str:
        known = {**environ, **self.variables}
        return _VARIABLE.sub(lambda match: known.get(match[1]) or match[2] or "", text)

    def filled(self, environ: Mapping[str, str]) -> McpServerSettings:
        """With the values of variables. Raises `ConfigError` that names those that are not set."""
        missing = [
            match[1]
            for text in self._texts()
            for match in _VARIABLE.finditer(text)
            if match[2] is None and match[1] not in self.variables and not environ.get(match[1])
        ]
        if missing:
            names = ", ".join(dict.fromkeys(missing))
            raise ConfigError(
                f"the MCP server {self.name} needs {names}, which the environment does not have",
                file=self.origin,
                fix=f"set {names}, or write a value for its absence: ${{{missing[0]}:-…}}",
            )

        def fill(text: str) -> str:
            return self._filled(text, environ)

        written = self.written
        return msgspec.structs.replace(
            written,
            command=None if written.command is None else fill(written.command),
            args=tuple(map(fill, written.args)),
            env={name: fill(value) for name, value in written.env.items()},
            cwd=None if written.cwd is None else fill(written.cwd),
            url=None if written.url is None else fill(written.url),
            headers={name: fill(value) for name, value in written.headers.items()},
        )

    def secrets(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The values that must not be shown, should the server repeat them; the longest first."""
        values = {environ.get(name, "") for name in self.needs}
        values |= {self._filled(value, environ) for value in self.written.headers.values()}
        values |= {value.rpartition(" ")[2] for value in values}  # of a header: what follows its scheme
        return tuple(sorted((v for v in values if len(v) >= LEAST_SECRET), key=len, reverse=True))


@dataclass(frozen=True, kw_only=True, slots=True)
class Configured:
    """The servers by name, and what was wrong with others."""

    servers: Mapping[str, ServerConfig] = field(default_factory=dict[str, ServerConfig])
    problems: tuple[str, ...] = ()


def server_name(written: str) -> str:
    """A name as it stands in the names of tools."""
    return _NOT_IN_NAMES.sub("_", written).strip("_")[:40] or "server"


def configured(
    loaded: LoadedSettings,
    project: Path | None,
    agents: Catalogue,
    environ: Mapping[str, str] | None = None,
) -> Configured:
    """Every server there is, the strongest of each name."""
    found: dict[str, ServerConfig] = {}
    problems: list[str] = []
    sources = (
        _given(loaded),
        _of_project_files(project),
        _of_user(),
        _of_plugins(),
        _of_agents(agents),
    )
    for source in sources:
        for each in source:
            if isinstance(each, str):
                problems.append(each)
            elif len(found) < MOST_SERVERS:
                found.setdefault(each.name, each)
    used = {name: replace(each, environ=environ) for name, each in found.items() if not each.written.disabled}
    return Configured(servers=used, problems=tuple(problems))


def _given(loaded: LoadedSettings) -> Iterator[ServerConfig | str]:
    if loaded.origins.get(SETTING) in ("flag", "environment"):
        for name, written in loaded.settings.mcp.servers.items():
            yield from _checked(name, written, scope="program", origin="the program", folder=None)


def _of_user() -> Iterator[ServerConfig | str]:
    values = read_user_file().values.get(SETTING)
    yield from _of_mapping(values, scope="user", origin=str(user_file()), folder=None)


def _of_project_files(project: Path | None) -> Iterator[ServerConfig | str]:
    if project is None:
        return
    for folder in upwards(project):
        try:
            data = Folder(folder).read(PROJECT_FILE, MOST_SETTINGS).data
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            yield f"{folder / PROJECT_FILE} cannot be read: {error.strerror}"
            continue
        yield from of_json(data, scope="project", origin=str(folder / PROJECT_FILE), folder=folder)
    file = find_project_file(project)
    if file is not None:
        try:
            written = read_project_file(file).values.get(SETTING)
        except ConfigError as error:  # whoever reads the settings says so too
            yield str(error)
            return
        yield from _of_mapping(written, scope="project", origin=str(file), folder=file.parent)


def _of_plugins() -> Iterator[ServerConfig | str]:
    """The servers of plugins: of their `.mcp.json`, or of `mcpServers` in their `plugin.json`."""
    for plugin in plugins():
        if plugin.problem:
            yield f"the plugin {plugin.folder} is not used: {plugin.problem}"
            continue
        variables = {"CLAUDE_PLUGIN_ROOT": str(plugin.folder), "PLUGIN_ROOT": str(plugin.folder)}
        written = plugin.manifest.get("mcpServers", PROJECT_FILE)
        origin = str(plugin.folder / "plugin.json")
        if isinstance(written, dict):
            found = _of_mapping(cast("Any", written), scope="plugin", origin=origin, folder=plugin.folder)
            for each in found:
                yield each if isinstance(each, str) else replace(each, variables=variables)
            continue
        origin = str(plugin.folder / str(written))
        try:
            data = plugin.owner.read(str(written), MOST_SETTINGS).data
        except OSError:
            continue  # it has none
        yield from of_json(data, scope="plugin", origin=origin, folder=plugin.folder, variables=variables)


def of_project(project: Path) -> Iterator[ServerConfig]:
    """The servers that the files of a project name."""
    for each in _of_project_files(project):
        if isinstance(each, ServerConfig) and not each.written.disabled:
            yield each


def _of_agents(agents: Catalogue) -> Iterator[ServerConfig | str]:
    for loaded in agents.agents.values():
        scope: Scope = "agent" if loaded.scope == "project" else "user"
        for each in _of_mapping(
            loaded.servers, scope=scope, origin=str(loaded.path), folder=loaded.path.parent
        ):
            yield each if isinstance(each, str) else replace(each, agent=loaded.spec.name)


def of_json(
    data: bytes, *, scope: Scope, origin: str, folder: Path, variables: Mapping[str, str] | None = None
) -> Iterator[ServerConfig | str]:
    """The servers of a `.mcp.json`, as many programs write it."""
    try:
        whole = json.loads(text_of(data, origin))
    except (ValueError, RecursionError) as error:
        yield f"{origin} is not JSON: {error}"
        return
    written = cast("dict[str, Any]", whole).get("mcpServers") if isinstance(whole, dict) else None
    if not isinstance(written, dict):
        yield f"{origin} has no table 'mcpServers'"
        return
    for each in _of_mapping(cast("Any", written), scope=scope, origin=origin, folder=folder):
        yield each if isinstance(each, str) else replace(each, variables=variables or {})


def _of_mapping(
    values: Any, *, scope: Scope, origin: str, folder: Path | None
) -> Iterator[ServerConfig | str]:
    if not isinstance(values, Mapping):
        return
    for name, value in cast("Mapping[str, Any]", values).items():
        written = value
        if isinstance(value, dict):  # of other programs: what means nothing here is left out
            given = cast("dict[str, Any]", value)
            kept = {key: one for key, one in given.items() if key in _OURS or scope == "user"}
            try:
                written = msgspec.convert(kept, McpServerSettings)
            except msgspec.ValidationError as error:
                yield f"{origin}: the MCP server {name!r} cannot be used: {error}"
                continue
        if not isinstance(written, McpServerSettings):
            yield f"{origin}: the MCP server {name!r} is no table"
            continue
        yield from _checked(str(name), written, scope=scope, origin=origin, folder=folder)


def _checked(
    name: str, written: McpServerSettings, *, scope: Scope, origin: str, folder: Path | None
) -> Iterator[ServerConfig | str]:
    if (written.command is None) == (written.url is None):
        both = "both a command and a url" if written.command is not None else "neither a command nor a url"
        yield f"{origin}: the MCP server {name!r} has {both}: write one of them"
        return
    if written.url is not None and not written.url.startswith(("http://", "https://", "${")):
        yield f"{origin}: the MCP server {name!r} has the url {masked(written.url)!r}: it begins with http"
        return
    called = server_name(name)
    yield ServerConfig(name=called, written=written, scope=scope, origin=origin, folder=folder)


def read_json_file(path: Path) -> dict[str, Any]:
    """A `.mcp.json` that is to be changed, whole; empty if there is none."""
    try:
        data = read_own(path, MOST_SETTINGS)
    except (FileNotFoundError, NotADirectoryError):
        return {"mcpServers": {}}
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from None
    try:
        found = json.loads(text_of(data, str(path)))
    except ValueError as error:
        raise ConfigError(f"is not JSON: {error}", file=str(path), fix="mend it first") from None
    if not isinstance(found, dict):
        raise ConfigError("is no JSON object", file=str(path), fix="mend it first")
    whole = cast("dict[str, Any]", found)
    if not isinstance(whole.setdefault("mcpServers", {}), dict):
        raise ConfigError("'mcpServers' is no table", file=str(path), fix="mend it first")
    return whole


def write_json_file(path: Path, whole: Mapping[str, Any]) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        part.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from None
