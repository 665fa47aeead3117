"""An agent file as text: found safe to read, split into frontmatter and body, every value with its line.

Called by `loader` and `check`. It knows YAML and nothing of what the fields mean; it never runs a
constructor of YAML's, follows no alias, and never quotes more of a file than its keys in an error.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from retinue.reading import Folder, Unreadable, read_own

if TYPE_CHECKING:
    from yaml.nodes import Node

MAX_BYTES = 256 * 1024
MAX_FRONTMATTER = 64 * 1024
MAX_DEPTH = 12

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What is wrong or worth knowing about an agent file, where, and what to do about it."""

    file: str
    line: int | None
    level: Level
    message: str
    fix: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.level}: {self.message}" + (f" ({self.fix})" if self.fix else "")


class Invalid(Exception):
    """One mistake in a file. Becomes a `Finding`; never leaves this package."""

    def __init__(self, message: str, *, line: int | None = None, fix: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.fix = message, line, fix

    def at(self, file: str) -> Finding:
        return Finding(file=file, line=self.line, level="error", message=self.message, fix=self.fix)


class NotYaml(Invalid):
    """The frontmatter cannot be read as YAML at all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class YamlValue:
    """A YAML value with the line of its key. `raw` is a scalar as it was written: `1.10`, `yes`, `007`."""

    data: str | int | float | bool | list[YamlValue] | dict[str, YamlValue] | None
    line: int
    raw: str = ""

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.data, list):
            return [item.plain() for item in self.data]
        if isinstance(self.data, dict):
            return {key: item.plain() for key, item in self.data.items()}
        return self.data


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """`fields` by the keys as written; `body_line` is where the system prompt begins."""

    fields: dict[str, YamlValue]
    body: str
    body_line: int
    findings: tuple[Finding, ...] = ()


def read_text(path: Path, inside: Folder | None = None) -> tuple[str, str]:
    """The text of a regular file of a sane size, and its real name in the folder that it must be `inside`.

    Raises `Invalid`.
    """
    try:
        if inside is None:
            data, really = read_own(path, MAX_BYTES), path.name
        else:
            found = inside.read(path.absolute(), MAX_BYTES)
            data, really = found.data, found.name
    except OSError as error:
        raise _unread(error) from None
    try:
        return data.decode("utf-8-sig"), really
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Invalid("is not UTF-8 text", line=line, fix="save the file as UTF-8") from None


def _unread(error: OSError) -> Invalid:
    if error.errno == errno.EXDEV:
        return Invalid(
            "leads out of the project by a link and is not read", fix="copy the file into the project"
        )
    if error.errno == errno.EFBIG:
        return Invalid(
            f"is larger than {MAX_BYTES // 1024} KB",
            fix="keep the prompt short and let the agent read the rest",
        )
    if isinstance(error, Unreadable):
        return Invalid(error.why, fix="an agent is one Markdown file")
    return Invalid(f"cannot be read: {error.strerror}")


def canonical(key: str) -> str:
    """`maxTurns`, `max-turns` and `max_turns` are one name."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower().replace("-", "_").replace(" ", "_")
    return {"allowed_tools": "tools"}.get(snake, snake)


def parse(text: str, file: str, known: Collection[str] = ()) -> Document:
    """Split and read a file's text, or `Invalid`. `known` are the names of fields, for files that are not
    quite YAML."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise Invalid(
            "has no frontmatter", line=1, fix="begin with a line '---', then name and description, then '---'"
        )
    end = next((i for i in range(1, len(lines)) if lines[i].rstrip() in ("---", "...")), None)
    if end is None:
        raise Invalid("the frontmatter is never closed", line=1, fix="end it with a line '---'")
    head = "\n".join(lines[1:end])
    if len(head) > MAX_FRONTMATTER:
        raise Invalid(f"the frontmatter is larger than {MAX_FRONTMATTER // 1024} KB", line=1)
    findings: list[Finding] = []
    head = _visible(head, file, findings, first_line=2)
    try:
        fields = _fields(head)
    except NotYaml as mistake:
        # Files made for other programs often hold unquoted text with a colon in it, or text over several
        # lines: not YAML, but plain enough.
        fields = _loose_fields(head, known, mistake)
        findings.append(
            Finding(
                file=file,
                line=mistake.line,
                level="warning",
                message="not valid YAML; what is not was read as plain text",
                fix="put text that holds ': ' or ' #' in quotes, or write it below '>-' and indented",
            )
        )
    body = _visible("\n".join(lines[end + 1 :]), file, findings, first_line=end + 2)
    skipped = len(body) - len(body.lstrip("\n"))
    return Document(fields=fields, body=body.strip(), body_line=end + 2 + skipped, findings=tuple(findings))


# Control characters, direction overrides and the invisible tag block: they can hide text from the person
# who reviews a file, or drive the terminal that lists it.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


def strip_hidden(text: str) -> str:
    return _HIDDEN.sub("", text)


def _visible(text: str, file: str, findings: list[Finding], *, first_line: int) -> str:
    match = _HIDDEN.search(text)
    if match is None:
        return text
    findings.append(
        Finding(
            file=file,
            line=first_line + text.count("\n", 0, match.start()),
            level="warning",
            message=f"holds invisible characters (U+{ord(match[0]):04X}); they were removed",
            fix="remove them: they can hide text from a reader",
        )
    )
    return strip_hidden(text)


_FREE_TEXT = frozenset({"description", "summary", "tools"})


def _loose_fields(head: str, known: Collection[str], mistake: NotYaml) -> dict[str, YamlValue]:
    """Field by field: each begins at a line with a known name, and free text need not be YAML."""
    fields: dict[str, YamlValue] = {}
    for line, key, chunk in _chunks(head, known):
        name = canonical(key)
        try:
            part = _fields("\n" * (line - 2) + chunk)
        except NotYaml:
            if name not in _FREE_TEXT or key in fields:
                raise mistake from None
            text = chunk.partition(":")[2].strip()
            part = {key: YamlValue(data=text, line=line, raw=text)}
        fields.update(part)
    if not fields:
        raise mistake
    return fields


def _chunks(head: str, known: Collection[str]) -> Iterator[tuple[int, str, str]]:
    """The line, the key and the text of each field."""
    started: tuple[int, str] | None = None
    seen: set[str] = set()
    lines: list[str] = []
    for number, line in enumerate(head.split("\n"), 2):
        match = re.match(r"([A-Za-z][\w-]*):(?:\s|$)", line)
        name = canonical(match[1]) if match else ""
        if match and name in known and name not in seen:
            if started is not None:
                yield *started, "\n".join(lines)
            started, lines = (number, match[1]), []
            seen.add(name)
        lines.append(line)
    if started is not None:
        yield *started, "\n".join(lines)


def _fields(head: str) -> dict[str, YamlValue]:
    """The fields of the frontmatter, which begins on the second line of its file."""
    return yaml_fields(head, what="the frontmatter", first_line=2)


def yaml_fields(text: str, *, what: str, first_line: int = 1) -> dict[str, YamlValue]:
    """The fields of a YAML document, every value with its line; an `Invalid` says what is wrong with it."""
    import yaml

    untyped: Any = yaml
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_bombs(untyped.parse(text, Loader=loader), first_line)
        root: Node | None = untyped.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NotYaml(
            f"{what} is not valid YAML: {error.problem or error.context}",
            line=_line(mark, first_line) if mark else 1,
            fix="quote text that holds ': ', ' #', [ ] or { }, and indent with spaces",
        ) from None
    except yaml.YAMLError as error:
        raise NotYaml(f"{what} is not valid YAML: {str(error).splitlines()[0]}", line=1) from None
    if root is None:
        return {}
    value = _value(root, _line(root.start_mark, first_line), first_line)
    if not isinstance(value.data, dict):
        raise Invalid(f"{what} must be fields like 'name: value'", line=value.line)
    return value.data


def _refuse_bombs(events: Iterator[Any], first_line: int) -> None:
    """Aliases can make a small file huge and deep nesting can exhaust the stack: neither is needed here."""
    from yaml import events as kinds

    depth = 0
    for event in events:
        line = _line(event.start_mark, first_line)
        if isinstance(event, kinds.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise Invalid("YAML anchors and aliases are not allowed", line=line, fix="write the value out")
        if isinstance(event, (kinds.MappingStartEvent, kinds.SequenceStartEvent)):
            depth += 1
        elif isinstance(event, (kinds.MappingEndEvent, kinds.SequenceEndEvent)):
            depth -= 1
        if depth > MAX_DEPTH:
            raise Invalid(f"values are nested deeper than {MAX_DEPTH} levels", line=line)


def _line(mark: Any, first_line: int) -> int:
    """The line in the file: YAML counts from zero."""
    return int(mark.line) + first_line


_CORE = "tag:yaml.org,2002:"


def _value(node: Node, line: int, first_line: int) -> YamlValue:
    from yaml.nodes import MappingNode, ScalarNode, SequenceNode

    if isinstance(node, ScalarNode):
        return _scalar(node.tag, str(node.value), line)
    if isinstance(node, SequenceNode) and node.tag == _CORE + "seq":
        items: list[Node] = node.value
        values = [_value(item, _line(item.start_mark, first_line), first_line) for item in items]
        return YamlValue(data=values, line=line)
    if isinstance(node, MappingNode) and node.tag == _CORE + "map":
        pairs: list[tuple[Node, Node]] = node.value
        found: dict[str, YamlValue] = {}
        for key, inner in pairs:
            at = _line(key.start_mark, first_line)
            if not isinstance(key, ScalarNode):
                raise Invalid("a key must be plain text", line=at)
            name = strip_hidden(str(key.value))
            if name in found:
                raise Invalid(f"'{name}' is given twice", line=at, fix=f"line {found[name].line} has it too")
            found[name] = _value(inner, at, first_line)
        return YamlValue(data=found, line=line)
    raise Invalid(f"the YAML tag {node.tag!r} is not allowed", line=line, fix="remove the tag")


def _scalar(tag: str, raw: str, line: int) -> YamlValue:
    raw = strip_hidden(raw)
    kind = tag.removeprefix(_CORE)
    data: str | int | float | bool | None
    if kind == "null":
        data = None
    elif kind == "bool":
        data = raw.lower() in ("yes", "true", "on", "y")
    elif kind in ("int", "float"):
        data = _number(raw)
    elif kind in ("str", "timestamp", "value"):
        data = raw
    else:
        raise Invalid(f"the YAML tag {tag!r} is not allowed", line=line, fix="remove the tag")
    return YamlValue(data=data, line=line, raw=raw)


def _number(raw: str) -> int | float | str:
    """A number as people write it. YAML's octals and sixties stay text: `010` is nobody's eight here."""
    text = raw.replace("_", "")
    try:
        return int(text) if re.fullmatch(r"[-+]?\d{1,18}", text) else float(text)
    except ValueError:
        return raw
