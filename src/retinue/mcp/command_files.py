"""Which files of a repository a server is started from: they are trusted with its command, by their bytes.

Asked by `mcp.config` for the hash of a server, and by whoever keeps sealed commands from changing what the
command names. Every word of the command, its arguments and its variables is looked up in the folder it starts
in; programs in Python, JavaScript and of the shell are followed to the files that they name themselves. Reads
bounded amounts, follows no link out of the repository, and runs nothing. What a program finds in another way,
and what is installed (`node_modules`, environments of Python), is not looked into.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import stat
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

from retinue.reading import Folder, real_path

MOST_FILES = 1000
"""Files whose bytes count; of more, those that are found first."""
MOST_LISTED = 2000
"""Entries of a folder that is itself the program."""
MOST_READ = 20_000_000
"""Bytes of one file; a larger one counts by its size and the time of its last change."""
MOST_TOGETHER = 100_000_000
"""Bytes of all files; what is found after that counts in the same way."""
SETTLED = 2.0
"""Seconds since its last change, after which a file is known again by its times."""
MOST_HASHED = 4096
_PARSING = threading.Lock()
"""What is done about warnings is the whole process's: two at once would leave it changed."""
_hashed: dict[tuple[str, int, int, int, int, int], str] = {}
MOST_FOLLOWED = 1_000_000
"""Bytes of a file that is looked through for others."""
MOST_PARSED = 200_000
"""Bytes of a file that is looked through as Python."""
MOST_LOOKED_UP = 3000
"""Words that are looked up in all: whoever fills a repository also writes these."""
MOST_WORDS = 5000
MOST_LETTERS = 4096
MOST_NAMED = 50
"""Files that sealed commands are kept from changing."""
_SIGNS = re.compile(r"[\s'\"`;|&()<>{}\[\]=,$:@]+")
_SUFFIXES = (".py", ".js", ".mjs", ".cjs", ".ts", ".json", ".sh")
_ENTRIES = ("__main__.py", "__init__.py", "package.json", "index.js", "index.mjs", "index.cjs", "index.ts")
_SCRIPTS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
_RELATIVE = re.compile(r"['\"`](\.{1,2}(?:/[^'\"`\n]*)?)['\"`]")
_INTERPRETERS = re.compile(
    r"(?:python|pypy|node|deno|bun|ruby|perl|php|lua|tsx|ts-node|npx|uvx|pipx|uv|go|cargo|java|dotnet|"
    r"poetry|pdm|rye|hatch|pipenv|npm|pnpm|yarn)[\d.]*"
)
_MANIFESTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx", "node", "tsx", "ts-node"),
        (
            *("package.json", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "pnpm-workspace.yaml"),
            *("bunfig.toml", "tsconfig.json"),
        ),
    ),
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    **dict.fromkeys(
        ("poetry", "pdm", "rye", "hatch", "uv", "uvx"),
        ("pyproject.toml", "uv.toml", "poetry.toml", ".python-version"),
    ),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "deno": ("deno.json", "deno.jsonc"),
    "cargo": ("Cargo.toml", "build.rs", ".cargo/config.toml", ".cargo/config", "src/main.rs"),
    "go": ("go.mod", "go.work", "main.go"),
    "rake": ("Rakefile",),
    "bundle": ("Gemfile",),
    "pipenv": ("Pipfile",),
    "docker": (
        "compose.yaml",
        "compose.yml",
        "docker-compose.yaml",
        "docker-compose.yml",
        "Dockerfile",
        "compose.override.yaml",
        "compose.override.yml",
        "docker-compose.override.yml",
    ),
}
"""What programs read by themselves in the folder where they start, to learn what to run."""
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_SUBCOMMANDS = {"run", "exec", "x", "dlx", "tool", "start"}
_WITH_A_VALUE = {
    *("-m", "-r", "-p", "-C", "-X", "-W", "--require", "--import", "--loader", "--experimental-loader"),
    *("--from", "--with", "--directory", "--project", "--package", "--prefix", "--cwd", "--env-file"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandFiles:
    """`digests`: a line for each file, sorted. `named`: where those are that the command's words name."""

    digests: tuple[str, ...]
    named: tuple[str, ...]


def command_files(
    top: Path, start: Path, texts: Sequence[str], environ: Mapping[str, str], folders: Iterable[Path] = ()
) -> CommandFiles:
    """The files below `top` that a command is made of. `texts` are its program, then its arguments, then the
    values of its variables; `start` is where it starts, its words may be meant from `folders` as well."""
    return _Search(top, start, tuple(folders)).run(texts, environ)


def read_all_anew() -> None:
    """Forget what was read: who maps a file into memory changes it without changing its times."""
    _hashed.clear()


def words_of(texts: Iterable[str]) -> list[str]:
    """Texts, and the words in them, that may each be a path; `~` is filled in."""
    found = dict.fromkeys(each for text in texts for each in (text, *_words(text)))
    return [os.path.expanduser(each) for each in found if "\0" not in each and len(each) <= MOST_LETTERS]


class _Search:
    def __init__(self, top: Path, start: Path, folders: tuple[Path, ...]) -> None:
        self._owner = Folder(top)
        self._top = str(self._owner.path)
        self._inner = self._top.rstrip("/") + "/"
        self._bases = tuple(dict.fromkeys(map(real_path, (start, *folders))))
        self._digests: dict[str, str] = {}
        self._ahead: list[str] = []
        self._left, self._looked_up = MOST_TOGETHER, 0

    def run(self, texts: Sequence[str], environ: Mapping[str, str]) -> CommandFiles:
        if self._inside(self._bases[0], ".") is None:  # by a link that may be another tomorrow
            self._digests[""] = f"starts in {self._bases[0]}"
        program = shutil.which(texts[0], path=environ.get("PATH")) if texts and texts[0] else None
        words = [word for text in texts for word in _words(text)]
        for word in dict.fromkeys((*filter(None, (program,)), *texts, *words)):
            self._word(word, self._bases)
            self._module(word, self._bases)
        named = [path for path in map(self._real, self._digests) if path and os.path.isfile(path)]
        for word in dict.fromkeys(words):
            for name in (*_MANIFESTS.get(_plain(word), ()), f"node_modules/.bin/{word}"):
                self._word(name, self._bases)
        for word in _programs(words):
            self._listed(word)
        self._python_in(words)
        if any(_plain(word) in ("make", "gmake") for word in words):
            for path in sorted(Path(self._bases[0]).glob("*.mk")):
                self._word(str(path), self._bases)
        while self._ahead and len(self._digests) < MOST_FILES:
            self._follow(self._ahead.pop(0))
        return CommandFiles(
            digests=tuple(sorted(self._digests.values())), named=tuple(dict.fromkeys(named))[:MOST_NAMED]
        )

    def _real(self, name: str) -> str:
        try:
            return os.path.join(self._top, self._owner.inside(name)) if name else ""
        except OSError:
            return ""

    def _inside(self, base: str, word: str) -> str | None:
        """A word as a path below the top, the link that it may be not followed; None if it is elsewhere."""
        if not word or "\0" in word or len(word) > MOST_LETTERS:
            return None
        path = os.path.normpath(os.path.join(base, os.path.expanduser(word)))
        if not f"{path}/".startswith(self._inner):
            path = os.path.join(real_path(os.path.dirname(path)), os.path.basename(path))
        return path[len(self._inner) :] or "." if f"{path}/".startswith(self._inner) else None

    def _word(self, word: str, bases: Iterable[str]) -> None:
        """What a word names in one of the folders: a file, one whose ending is left out, or a folder."""
        self._looked_up += 1
        for base in bases if self._looked_up <= MOST_LOOKED_UP else ():
            name = self._inside(base, word)
            if name is None:
                continue
            for each in (name, *(f"{name}{suffix}" for suffix in _SUFFIXES if name != ".")):
                self._add(each)
            if os.path.isdir(os.path.join(self._top, name)):
                for entry in _ENTRIES if word not in (".", "..") else ():
                    self._add(os.path.normpath(f"{name}/{entry}"))

    def _module(self, dotted: str, bases: Iterable[str]) -> None:
        """A module of Python, with the packages that it is in."""
        parts = dotted.split(".")
        self._looked_up += 1
        if self._looked_up > MOST_LOOKED_UP or not all(part.isidentifier() for part in parts):
            return
        for base in bases:
            for count in range(1, len(parts) + 1):
                path = self._inside(base, "/".join(parts[:count]))
                if path is not None:
                    for each in (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py"):
                        self._add(each)

    def _listed(self, word: str) -> None:
        """All files of a folder that is itself the program. Of where it starts: how that begins."""
        for base in self._bases:
            name = self._inside(base, word)
            if name is None or not os.path.isdir(os.path.join(self._top, name)):
                continue
            if os.path.join(self._top, name) in (*self._bases, self._top) or name == ".":
                for entry in _ENTRIES:
                    self._add(os.path.normpath(f"{name}/{entry}"))
                continue
            for path in _files_below(os.path.join(self._top, name)):
                self._add(os.path.relpath(path, self._top))

    def _add(self, name: str) -> None:
        if name in self._digests or len(self._digests) >= MOST_FILES:
            return
        path = os.path.join(self._top, name)
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return
        if not stat.S_ISREG(found.st_mode):
            return
        real = os.path.realpath(path)
        if not real.startswith(self._inner):
            self._digests[name] = f"{name} leads to {real}"
        elif found.st_size > min(MOST_READ, self._left):
            self._digests[name] = f"{name} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
        else:
            try:
                self._digests[name] = f"{name} {self._hash(name, real, found)}"
            except OSError as error:
                self._digests[name] = f"{name} {error.strerror}"
                return
            self._left -= found.st_size
            if found.st_size <= MOST_FOLLOWED:
                self._ahead.append(name)

    def _hash(self, name: str, real: str, found: os.stat_result) -> str:
        """Of a file that is as it was when it was last read, what was found then: a run asks several times.

        The kernel sets the time of a change, and nobody else; what was changed just now is read each time.
        """
        stamp = (real, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = _hashed.get(stamp)
        if known is None:
            known = hashlib.sha256(self._owner.read(name, MOST_READ, named=True).data).hexdigest()
            if time.time() - found.st_ctime > SETTLED:
                if len(_hashed) >= MOST_HASHED:
                    _hashed.clear()
                _hashed[stamp] = known
        return known

    def _python_in(self, words: Iterable[str]) -> None:
        """Python looks for modules where it starts first: by `-m`, `-c`, and from its own programs."""
        if _runs_python(words):
            for base in self._bases:
                self._beside(base)

    # -- what programs name themselves ------------------------------------------

    def _follow(self, name: str) -> None:
        try:
            data = self._owner.read(name, MOST_FOLLOWED, named=True).data
            real = self._owner.inside(name)
        except OSError:
            return
        here = os.path.dirname(os.path.join(self._top, real))
        first = data[:200].partition(b"\n")[0] if data.startswith(b"#!") else b""
        if name.endswith((".py", ".pyw")) or b"python" in first:
            self._follow_python(data if len(data) <= MOST_PARSED else b"", here)
        elif name.endswith(_SCRIPTS) or b"node" in first:
            for found in _RELATIVE.findall(data.decode("utf-8", "replace"))[:MOST_WORDS]:
                self._word(found, (here,))
            for name in ("package.json", "tsconfig.json"):
                self._word(name, (here, *self._bases))
        elif os.path.basename(name) == "package.json":
            self._follow_package(data, here)
        elif name.endswith((".sh", ".bash")) or re.search(rb"\b(?:ba|da|z|k)?sh\b", first):
            words = _words(data.decode("utf-8", "replace"))[:MOST_WORDS]
            self._python_in(words)
            for word in words:
                if "/" in word or "." in word:
                    # `"$(dirname "$0")/x.py"`: what stands before the slash is the script's own folder
                    for each in dict.fromkeys((word, word.lstrip("/"))):
                        self._word(each, (here, *self._bases))

    def _follow_python(self, data: bytes, here: str) -> None:
        self._beside(here)
        try:
            with _PARSING, warnings.catch_warnings(action="ignore"):
                module = ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for node in islice(ast.walk(module), MOST_PARSED):
            if isinstance(node, ast.Import):
                for each in node.names:
                    self._module(each.name, (here, *self._bases))
            elif isinstance(node, ast.ImportFrom):
                base = os.path.normpath(os.path.join(here, *[".."] * max(node.level - 1, 0)))
                bases = (base,) if node.level else (here, *self._bases)
                for each in node.names:
                    self._module(".".join(filter(None, (node.module, each.name))), bases)

    def _beside(self, folder: str) -> None:
        """The names of modules beside a program: one that comes later may stand for one that is imported."""
        name = self._inside(folder, ".")
        if name is None or f"{name}/*" in self._digests:
            return
        try:
            with os.scandir(folder) as entries:
                found = sorted(each.name for each in entries if _is_module(each))
        except OSError:
            return
        digest = hashlib.sha256("\n".join(found).encode("utf-8", "surrogateescape")).hexdigest()
        self._digests[f"{name}/*"] = f"{name}/* {digest}"

    def _follow_package(self, data: bytes, here: str) -> None:
        try:
            whole = json.loads(data)
        except (ValueError, RecursionError):
            return
        if not isinstance(whole, dict):
            return
        package = cast("dict[str, Any]", whole)
        for key in ("main", "module", "bin", "exports", "imports", "scripts"):
            for text in _strings(package.get(key)):
                self._python_in(_words(text))
                for word in (text, *_words(text)):
                    self._word(word, (here,))


def _is_module(entry: os.DirEntry[str]) -> bool:
    """A folder counts whatever is in it now: what comes into it later is a module too, compiled or not."""
    if entry.name.endswith((".py", ".so", ".pyc", ".pyd", ".pth")):
        return True
    return entry.name.isidentifier() and entry.name != "__pycache__" and entry.is_dir(follow_symlinks=True)


def _runs_python(words: Iterable[str]) -> bool:
    return any(_PYTHON.fullmatch(_plain(word)) for word in words)


def _words(text: str) -> list[str]:
    """The words of a text, taken apart at the signs of shells and assignments; of `-Xfile` both."""
    found = [word for word in _SIGNS.split(text)[:MOST_WORDS] if word]
    return [each for word in found for each in ((word, word[2:]) if re.match(r"-\w.", word) else (word,))]


def _plain(word: str) -> str:
    return re.sub(r"[\d.]+$", "", os.path.basename(word))


def _programs(words: Sequence[str]) -> Iterator[str]:
    """The words that may be what an interpreter runs: the first after its name that is no option, and what
    stands behind an option before it; a module is the last of them."""
    for number, word in enumerate(words):
        if not _INTERPRETERS.fullmatch(os.path.basename(word)):
            continue
        before = ""
        for each in words[number + 1 :]:
            if not each.startswith("-") and each not in _SUBCOMMANDS:
                yield each.replace(".", "/") if before == "-m" else each
                if before == "-m" or before not in _WITH_A_VALUE:
                    break
            before = each


def _files_below(folder: str) -> Iterator[str]:
    seen = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in ("node_modules", "__pycache__", ".git"))
        for name in sorted(files):
            seen += 1
            if seen > MOST_LISTED:
                return
            yield os.path.join(place, name)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in cast("dict[str, Any]", value).values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _strings(each)
