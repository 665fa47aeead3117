"""What `retinue map` works on: lines, rows of a table, objects, or files, and what is asked about each."""

from __future__ import annotations

import csv
import errno
import io
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from retinue.errors import ConfigError
from retinue.reading import Unreadable, read_named, real_path, text_of
from retinue.types import AgentSpec

KINDS = ("lines", "csv", "jsonl", "files")
BY_SUFFIX = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
MOST_BYTES = 100_000_000
"""Of a file of inputs: all of them are in memory at once."""
_IN_PARTS = "split it: each part is a 'retinue map' of its own"
_PLACE = re.compile(r"\{([^{}\n]+)\}")


@dataclass(frozen=True, kw_only=True)
class MapInputs:
    """The inputs, each a mapping: a line has `line`, a file `path`, a row its columns."""

    kind: str
    rows: Sequence[Mapping[str, Any]]
    prompt: str | None
    key: str | None
    drawn_from: str = ""
    """The file whose text becomes the prompts. A path is no text of it, and what is piped in is said."""

    @property
    def key_of(self) -> Callable[[Mapping[str, Any]], str] | None:
        """What tells inputs apart: the column that was named, or a file's path; else what is asked."""
        name = self.key or ("path" if self.kind == "files" else None)
        return None if name is None else lambda row: str(row[name])

    def prompt_for(self, spec: AgentSpec) -> Callable[[Mapping[str, Any]], str | Mapping[str, Any]]:
        """What an agent is asked about an input: the template filled in, or the input as it is."""
        if self.prompt is not None:
            template = self.prompt
            return lambda row: _filled(template, row)
        if self.kind in ("lines", "files"):
            return lambda row: str(next(iter(row.values())))
        if spec.input_schema is None:
            raise ConfigError(
                f"{spec.name} takes a text, and each input has several columns",
                fix='say what to ask with --prompt, for example --prompt "Sum this up: {text}"',
            )
        return lambda row: row


def read_inputs(
    words: Sequence[str], *, kind: str | None, prompt: str | None, key: str | None, cwd: Path | None
) -> MapInputs:
    """The inputs that a person named. Files are taken from the folder the command is run in."""
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"--as {kind!r} is not known", fix=f"one of {', '.join(KINDS)}")
    kind = kind or _kind_of(words)
    if kind == "files":
        rows = [{"path": _seen_from(Path(word), cwd)} for word in words]
    elif len(words) > 1:
        raise ConfigError(f"{len(words)} inputs are named, and --as {kind} reads one", fix="--as files")
    else:
        rows = _rows(kind, _text(words[0], (cwd or Path()).absolute()), words[0])
    if not rows:
        raise ConfigError(f"{words[0]} has no input: nothing to do")
    _check_columns(rows, prompt, key)
    drawn = "" if kind == "files" or words[0] == "-" else words[0]
    return MapInputs(kind=kind, rows=rows, prompt=prompt, key=key, drawn_from=drawn)


def _kind_of(words: Sequence[str]) -> str:
    if len(words) > 1:
        return "files"
    return BY_SUFFIX.get(Path(words[0]).suffix.lower(), "lines")


def _seen_from(path: Path, cwd: Path | None) -> str:
    """A file as the agents call it: from the project's folder, if it is in there."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    folder, whole = (cwd or Path()).resolve(), path.resolve()
    return str(whole.relative_to(folder)) if whole.is_relative_to(folder) else str(whole)


def _text(word: str, project: Path) -> str:
    if word == "-":
        piped = sys.stdin.buffer.read(MOST_BYTES + 1)
        if len(piped) > MOST_BYTES:
            raise ConfigError(f"standard input has more than {MOST_BYTES:,} bytes", fix=_IN_PARTS)
        return piped.decode("utf-8-sig", "replace")
    try:
        return text_of(read_named(word, MOST_BYTES, project=project), word)
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {word}", fix="name a file, several files, or '-' for what is piped in"
        ) from None
    except OSError as error:
        if not isinstance(error, Unreadable):
            raise ConfigError(f"{word} cannot be opened: {error.strerror}") from None
        fixes = {
            errno.EXDEV: f"if you mean it, name {real_path(word)}",
            errno.EACCES: f"if you mean it, name {real_path(word)}",
            errno.EILSEQ: "--as files, if agents read it",
            errno.EFBIG: _IN_PARTS,
        }
        raise ConfigError(f"{word} {error.why}", fix=fixes.get(error.errno or 0)) from None


def _rows(kind: str, text: str, named: str) -> list[dict[str, Any]]:
    if kind == "lines":
        return [{"line": line.strip()} for line in text.splitlines() if line.strip()]
    if kind == "jsonl":
        return [_object(line, place) for place, line in enumerate(text.splitlines(), 1) if line.strip()]
    reader = csv.DictReader(
        io.StringIO(text, newline=""), delimiter="\t" if named.lower().endswith(".tsv") else ","
    )
    rows: list[dict[str, Any]] = []
    for row in reader:
        found = cast("dict[Any, Any]", row)
        if None in found or None in found.values():
            raise ConfigError(
                f"{named}, line {reader.line_num}: it has not as many columns as the first line",
                fix="a text with a comma in it stands in quotes",
            )
        rows.append(row)
    return rows


def _object(line: str, place: int) -> dict[str, Any]:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"line {place} is not JSON: {error}") from None
    if isinstance(value, str):
        return {"line": value}
    if not isinstance(value, dict):
        raise ConfigError(f"line {place} is neither an object nor a text")
    return cast("dict[str, Any]", value)


def _check_columns(rows: Sequence[Mapping[str, Any]], prompt: str | None, key: str | None) -> None:
    """Every name in --prompt and --key is there, in each input: before anything is paid for."""
    wanted = {*_PLACE.findall(prompt or ""), *([key] if key else [])}
    for place, row in enumerate(rows, 1):
        for name in sorted(wanted - row.keys()):
            raise ConfigError(f"input {place} has no {name!r}", fix=f"it has: {', '.join(row)}")


def _filled(template: str, row: Mapping[str, Any]) -> str:
    return _PLACE.sub(lambda found: str(row[found[1]]), template)
