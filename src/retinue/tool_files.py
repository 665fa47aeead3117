"""Tools without a program: functions of `.retinue/tools/*.py` and of `--tools module:function`; and whatever
else of Python a person names at the command line (`module_named`).

Called by the command line before it opens an app. A file of a folder runs as code of the person's own, so it
is loaded only if they said so of these very bytes: by the hash that `retinue tools trust` wrote down; a file
of a project only in a folder that is trusted as well. The bytes that were hashed are the bytes that run. What
is not loaded is said, with the names of its functions as they are written; nothing of it is run to find out.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Literal, cast

from retinue.agents.places import upwards
from retinue.builtin_tools import BUILT_IN
from retinue.errors import ConfigError, told
from retinue.file_lock import locked
from retinue.reading import (
    MOST_SETTINGS,
    Folder,
    Kept,
    Unreadable,
    lies_in,
    list_own,
    nothing_kept,
    read_own,
    real_path,
)
from retinue.settings.files import user_file
from retinue.settings.trusted_folders import TrustedFolders
from retinue.tools.base import Tool, as_tool

FOLDER = ".retinue/tools"
MOST_FILES = 100
MOST_BYTES = 1_000_000
MOST_PARSED = 200_000
"""Bytes of a file whose functions are looked for before anybody trusts it."""
STATES = {
    "trusted": "trusted",
    "folder": "of a repository: read it, then 'retinue tools trust' lets it be loaded, and nothing else",
    "new": "new: read it, then 'retinue tools trust' lets it be loaded",
    "changed": "changed since you trusted it: read it, then 'retinue tools trust' lets it be loaded",
}
"""Whether a file is loaded, and what to do if it is not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFile:
    """A file of tools as it was read. `names` are its functions, found without running it."""

    path: Path
    data: bytes
    state: Literal["trusted", "folder", "new", "changed"]
    names: tuple[str, ...] = ()
    of_project: bool = False

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def why_not(self) -> str:
        return f"{self.path} is {STATES[self.state]}"

    def compiled(self) -> CodeType:
        """Nothing of it is run. Raises `ConfigError` if it is not Python."""
        try:
            return compile(self.data, str(self.path), "exec")
        except (SyntaxError, ValueError) as error:
            line, why = (error.lineno, error.msg) if isinstance(error, SyntaxError) else (None, str(error))
            raise ConfigError(
                f"is not Python: {why}", file=str(self.path), line=line, fix="mend it, or take it away"
            ) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class CodePlace:
    """A folder that code came from which runs outside of the sandbox, such as `tools`: it may import from
    there, now or when called."""

    what: Literal["tools", "checks"]
    folder: Path

    def __str__(self) -> str:
        return f"the {self.what} of {self.folder}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFiles:
    """The tools that were loaded, where each came from, and the files that were not.

    `withheld` is why a tool that some agent may name is not there. `places`: the folders of projects, and of
    modules that were named, that the tools and other code of this command came from.
    `broken`: what is wrong with files that cannot be loaded, for those who only look.
    """

    tools: tuple[Tool, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    waiting: tuple[ToolFile, ...] = ()
    places: tuple[CodePlace, ...] = ()
    broken: tuple[ConfigError, ...] = ()

    def started_from(self, folder: Path) -> list[str]:
        """The code of this folder, or of one above it in its project, that runs outside of the sandbox."""
        shared = (
            each for each in self.places if lies_in(folder, each.folder) or lies_in(each.folder, folder)
        )
        return [str(each) for each in dict.fromkeys(shared)]

    def beside(self, places: Iterable[CodePlace]) -> ToolFiles:
        """The same where other code was loaded as well."""
        return replace(self, places=(*self.places, *places))

    @property
    def withheld(self) -> dict[str, str]:
        return {name: file.why_not for file in self.waiting for name in file.names}


def load_tools(
    cwd: Path,
    named: Iterable[str] = (),
    *,
    trusted: TrustedFolders,
    home: Path | None = None,
    ask: Callable[[ToolFile], bool] = lambda file: False,
    kept: Kept = nothing_kept,
    looking: bool = False,
) -> ToolFiles:
    """The tools of the folders and those that are `named`. `ask`: whether a person trusts a file from now on.
    `kept`: what of a project is not read.

    Raises `ConfigError` for what cannot be loaded: a run without a tool that was declared would not say so.
    Who is only `looking` gets the rest, and is told of these files in `broken`.
    """
    made: dict[str, Tool] = {}
    origins: dict[str, str] = {}
    waiting: list[ToolFile] = []

    places: dict[str, object] = {}

    def add(tools: Iterable[Tool], origin: str, place: object) -> None:
        """The nearest wins, as with agent files; two of one place do not share a name."""
        for tool in tools:
            if tool.name in BUILT_IN:
                raise ConfigError(
                    f"{tool.name!r} is a tool of Retinue's own ({origin})",
                    fix="give yours another name: '@tool(name=…)'",
                )
            if tool.name not in made:
                made[tool.name], origins[tool.name], places[tool.name] = tool, origin, place
            elif places[tool.name] == place:
                raise ConfigError(
                    f"two tools are named {tool.name!r}: in {origins[tool.name]} and in {origin}",
                    fix="give one of them another: '@tool(name=…)'",
                )

    came_from: list[CodePlace] = []
    for each in dict.fromkeys(named):
        tools, place = _named(each, cwd)
        add(tools, f"--tools {each}", "--tools")
        came_from.append(place)
    broken: list[ConfigError] = []
    tell = broken.append if looking else refuse
    for file in find_tool_files(cwd, trusted, home, kept, tell):
        if file.state in ("new", "changed") and ask(file):
            trust_file(file)
        elif file.state != "trusted":
            waiting.append(file)
            continue
        try:
            add(tools_of_file(file), str(file.path), file.path.parent)
        except ConfigError as error:
            tell(error)
            continue
        if file.of_project:
            came_from.append(CodePlace(what="tools", folder=file.path.parent.parent.parent))
    return ToolFiles(
        tools=tuple(made.values()),
        origins=origins,
        waiting=tuple(waiting),
        places=tuple(came_from),
        broken=tuple(broken),
    )


def refuse(error: ConfigError) -> None:
    raise error


def find_tool_files(
    cwd: Path,
    trusted: TrustedFolders,
    home: Path | None = None,
    kept: Kept = nothing_kept,
    tell: Callable[[ConfigError], None] = refuse,
) -> list[ToolFile]:
    """Every file of tools: those of the project, the nearest first, then the user's. Runs none.

    `tell` hears of what cannot be read.
    """
    known = _known()
    home = Path(os.path.abspath(Path.home() if home is None else home))
    found: list[ToolFile] = []
    for folder in upwards(cwd, home):
        try:
            found += _of_project(Folder(folder, kept), trusted, known, tell)
        except ConfigError as error:
            if trusted.has(folder):  # else a stranger's folder would keep every command from working
                tell(error)
    for name in _python_files(lambda most: list_own(home / FOLDER, most)):
        path = home / FOLDER / name
        try:
            read = _read(path, lambda path=path: read_own(path, MOST_BYTES))
        except ConfigError as error:
            tell(error)
            continue
        found.append(_file(path, read, known, folder_trusted=True))
    return found


def _of_project(
    owner: Folder, trusted: TrustedFolders, known: Mapping[str, str], tell: Callable[[ConfigError], None]
) -> list[ToolFile]:
    folder = owner.path
    found: list[ToolFile] = []
    for name in _python_files(lambda most: owner.list(FOLDER, most)):
        path = folder / FOLDER / name
        try:
            data = _read(path, lambda path=path: owner.read(path, MOST_BYTES).data)
        except ConfigError as error:
            if trusted.has(folder):
                tell(error)
            continue
        own = trusted.has(folder) and not owner.is_anothers(f"{FOLDER}/{name}")
        found.append(replace(_file(path, data, known, folder_trusted=own), of_project=True))
    return found


def with_tool_files(cwd: Path) -> list[Path]:
    """Those folders of a project that have files of tools, the nearest first."""
    return [
        folder
        for folder in upwards(cwd)
        if _python_files(lambda most, folder=folder: Folder(folder).list(FOLDER, most))
    ]


def trust_file(file: ToolFile) -> None:
    """Write down that these very bytes are trusted at this path."""
    store = _trust_store()
    with locked(store):
        _write(store, {**_known(), real_path(file.path): file.sha256})


def _write(store: Path, known: dict[str, str]) -> None:
    part = store.with_name(f"{store.name}.{os.getpid()}")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w", encoding="utf-8") as out:
            json.dump(known, out, indent=1, sort_keys=True)
        part.replace(store)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(store)) from None


def _trust_store() -> Path:
    return user_file().parent / "trusted-tools.json"


def _known() -> dict[str, str]:
    """The hashes that were trusted, by the real path of each file."""
    store = _trust_store()
    try:
        found = json.loads(read_own(store, MOST_SETTINGS))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(store)) from None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(
            "is not as it was written", file=str(store), fix="take it away; 'retinue tools trust' writes it"
        )
    return {str(path): str(digest) for path, digest in cast("dict[Any, Any]", found).items()}


def _python_files(listing: Callable[[int], tuple[list[tuple[str, bool]], bool]]) -> list[str]:
    try:
        entries, whole = listing(MOST_FILES)
    except OSError:
        return []  # there is none, or it is not ours to read
    if not whole:
        raise ConfigError(f"{FOLDER} holds more than {MOST_FILES} files", fix="keep tools alone in there")
    return [
        name
        for name, is_folder in entries
        if name.endswith(".py") and not is_folder and not name.startswith((".", "_"))
    ]


def _read(path: Path, read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except OSError as error:
        why = error.why if isinstance(error, Unreadable) else f"cannot be read: {error.strerror}"
        fix = "copy it into the project" if error.errno == errno.EXDEV else "mend it or take it away"
        raise ConfigError(why, file=str(path), fix=fix) from None


def _file(path: Path, data: bytes, known: Mapping[str, str], *, folder_trusted: bool) -> ToolFile:
    file = ToolFile(path=path, data=data, state="new", names=_names(data))
    before = known.get(real_path(path))
    if before == file.sha256:
        state = "trusted"
    else:
        state = "folder" if not folder_trusted else "new" if before is None else "changed"
    return ToolFile(path=path, data=data, state=state, names=file.names)


def _names(data: bytes) -> tuple[str, ...]:
    """What the tools of a file would be called, as far as its text tells. What is no Python has none."""
    if len(data) > MOST_PARSED:
        return ()
    try:
        module = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found = [each for each in module.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return tuple(_given_name(each) or each.name for each in found if not each.name.startswith("_"))


def _given_name(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    for each in function.decorator_list:
        for word in each.keywords if isinstance(each, ast.Call) else ():
            if word.arg == "name" and isinstance(word.value, ast.Constant):
                return str(word.value.value)
    return ""


def tools_of_file(file: ToolFile) -> list[Tool]:
    """Run a file that is trusted and take its tools. Raises `ConfigError` for one that is broken."""
    module = ModuleType(f"retinue_tools_{file.path.stem}_{file.sha256[:8]}")
    module.__file__ = str(file.path)
    sys.modules[module.__name__] = module  # dataclasses and hints look their module up
    code = file.compiled()
    try:
        exec(code, module.__dict__)  # noqa: S102 # it is trusted
    except KeyboardInterrupt:  # a person's own Ctrl-C
        raise
    except BaseException as error:  # it may call `sys.exit`, like a program
        raise ConfigError(
            f"cannot be loaded: {told(error)}",
            file=str(file.path),
            line=_line_in(error, str(file.path)),
            fix="mend it; it must import only what is installed where Retinue is",
        ) from None
    return _tools_in(module, str(file.path))


def _line_in(error: BaseException, path: str) -> int | None:
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _place_of(error: BaseException) -> tuple[str | None, int | None]:
    """Where a module that was named failed: the first line that is neither ours nor Python's own import."""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file not in (__file__, importlib.__file__) and not file.startswith("<frozen"):
            return file, trace.tb_lineno
        trace = trace.tb_next
    return None, None


def _tools_in(module: ModuleType, path: str) -> list[Tool]:
    """What `@tool` made; if there is none of these, every public function of the file."""
    values = [(name, value) for name, value in vars(module).items() if not name.startswith("_")]
    tools = [value for _, value in values if isinstance(value, Tool)]
    if not tools:
        functions = [
            value
            for _, value in values
            if isinstance(value, FunctionType) and value.__module__ == module.__name__
        ]
        tools = [_made(function, path) for function in functions]
    if not tools:
        raise ConfigError("has no tools", file=path, fix="write a function with type hints and a docstring")
    return list({id(tool): tool for tool in tools}.values())


def _made(given: object, where: str) -> Tool:
    try:
        return as_tool(given)
    except TypeError as error:
        raise ConfigError(f"cannot be a tool: {error}", file=where) from None


def _named(spec: str, cwd: Path) -> tuple[list[Tool], CodePlace]:
    """`module:function`, `file.py:function`, or either without a function for all of its tools; and the
    folder that it imports from beside what is installed."""
    module_name, _, name = spec.partition(":")
    if not module_name:
        raise ConfigError(f"--tools {spec!r} names no module", fix="write it like 'my_tools:population'")
    module, place = module_named(module_name, "tools", f"--tools {spec}", cwd)
    if not name:
        return _tools_in(module, f"--tools {spec}"), place
    given = getattr(module, name, None)
    if given is None:
        near = get_close_matches(name, [each for each in vars(module) if not each.startswith("_")], 1)
        raise ConfigError(
            f"there is no {name!r} in {module_name} (--tools {spec})",
            fix=f"did you mean {near[0]!r}?" if near else "name a function of it",
        )
    return [_made(given, f"--tools {spec}")], place


def module_named(
    name: str, what: Literal["tools", "checks"], said: str, cwd: Path
) -> tuple[ModuleType, CodePlace]:
    """A module or a file of Python that a person named, in the words they `said`: its code runs.

    Whoever has it loaded tells commands where it came from: `ToolFiles.places`.
    """
    module = _loaded(name, said, cwd)
    return module, CodePlace(what=what, folder=Path(module.__file__).parent if module.__file__ else cwd)


def _loaded(name: str, said: str, cwd: Path) -> ModuleType:
    try:
        if not name.endswith(".py"):
            return _imported(name, cwd)
        path = cwd / name
        module = ModuleType(f"retinue_tools_{path.stem}")
        module.__file__ = str(path)
        sys.modules[module.__name__] = module
        data = _read(path, lambda: read_own(path, MOST_BYTES))
        exec(compile(data, str(path), "exec"), module.__dict__)  # noqa: S102 # the person named it
    except (ConfigError, KeyboardInterrupt):
        raise
    except BaseException as error:  # as above
        file, line = _place_of(error)
        raise ConfigError(
            f"{name} cannot be loaded: {told(error)} ({said})",
            file=file,
            line=line,
            fix="name a module that Python finds from here, or a file that ends with .py",
        ) from None
    return module


def _imported(name: str, cwd: Path) -> ModuleType:
    """A module by its name. The person named it: as with 'python -m', the working folder counts."""
    sys.path.insert(0, str(cwd))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(cwd))
