"""One skill: its folder, the fields of its `SKILL.md`, and its text and files, read when they are used.

Called by `loader` and `check`, and by the tool `skill`. What came with a repository is read inside that
repository alone, and the files of a skill inside its own folder alone. No field grants anything:
`allowed-tools`, hooks and commands in the text are reported and not obeyed.
"""

from __future__ import annotations

import errno
import os
import re
import unicodedata
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from retinue.agents.document import Document, Finding, Invalid, Level, YamlValue, parse, strip_hidden
from retinue.agents.fields import Scope
from retinue.reading import Folder, Unreadable, nothing_kept, read_own, real_path, text_of

FILE = "SKILL.md"
MAX_BYTES = 512 * 1024
MOST_FILES = 200
"""Files of a skill that are listed."""
MOST_LOOKED_AT = 2_000
DEPTH = 4
MOST_NAMES = 20_000
"""Files of a project that are looked through for the other names of one of them."""
MOST_READ = 16_000_000
"""Bytes of one of its files."""
LONGEST_NAME, LONGEST_DESCRIPTION, LONGEST_COMPATIBILITY = 64, 1024, 500
_NAME = re.compile(r"[^\W_][\w.-]{0,63}")
"""Letters and digits of any script, as the format has it."""
_STRICT = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_KNOWN = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_HIDING = "disable-model-invocation"
_NOTHING = "approvals are the person's to give: see 'approvals' in the settings"
# Fields of other programs: what becomes of them here.
_ELSEWHERE = {
    "hooks": "a skill cannot make the host run commands",
    "shell": "a skill cannot make the host run commands",
    "model": "the agent that uses a skill has its model",
    "effort": "the agent that uses a skill has its own",
    "context": "an agent file says who works apart",
    "agent": "an agent names its skills, not the other way round",
    "paths": "the description says when to use it",
    "when-to-use": "the description says when to use it",
    "user-invocable": "every skill that is offered can be used",
    "argument-hint": "a skill takes no arguments",
    "arguments": "a skill takes no arguments",
    "version": "nothing reads it",
    "author": "nothing reads it",
    "tags": "nothing reads it",
}
_MATTER = ("hooks", "shell")
_LEFT_OUT = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """`folder` is where it really is. `owner` is the folder of the project that has it; None for the user's.

    `hidden`: its own file says that no model is to choose it.
    """

    name: str
    description: str
    folder: Path
    scope: Scope
    owner: Folder | None = None
    license: str = ""
    compatibility: str = ""
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    allowed_tools: tuple[str, ...] = ()
    hidden: bool = False
    notes: tuple[Finding, ...] = ()

    def body(self) -> str:
        """Its instructions as they are now. Raises `Invalid`."""
        return _document(self.folder, self.owner and self.owner.anew()).body

    def read(self, file: str) -> tuple[bytes, str]:
        """A file of its own, and its name in the folder: no link leads out of that. Raises `OSError`."""
        kept = nothing_kept if self.owner is None else self.owner.kept
        found = Folder(self.folder, kept).read(file, MOST_READ)
        _refuse_shared(self.folder, found.name, self.owner)
        return found.data, found.name

    def files(self) -> tuple[list[str], bool]:
        """The names of its files but for `SKILL.md`, sorted, and whether these are all."""
        return _files(self.folder)

    def shown_in(self, project: Path | None) -> str:
        """How a model names its folder: from the project if it is in there."""
        if project is not None:
            real = real_path(project)
            if str(self.folder).startswith(real.rstrip("/") + "/"):
                return os.path.relpath(self.folder, real)
        return str(self.folder)


def read_skill(
    folder: Path, *, scope: Scope, owner: Folder | None = None
) -> tuple[Skill | None, str, tuple[Finding, ...]]:
    """The skill of a folder or None, the name it goes by, and every finding.

    Raises `FileNotFoundError` or `NotADirectoryError` where there is none.
    """
    file = str(folder / FILE)
    try:
        really = _really(folder, owner)
        document = _document(folder.absolute(), owner, file)  # by this name: a rule may be about it
    except Invalid as mistake:
        return None, folder.name, (mistake.at(file),)
    fields = {key.lower().replace("_", "-"): value for key, value in document.fields.items()}
    reading = _Fields(file=file, fields=fields, findings=list(document.findings))
    name = reading.name(folder.name)
    made = Skill(
        name=name,
        description=reading.description(),
        folder=really,
        scope=scope,
        owner=owner,
        license=reading.text("license"),
        compatibility=reading.compatibility(),
        metadata=reading.metadata(),
        allowed_tools=reading.allowed_tools(),
        hidden=reading.hides(),
    )
    reading.others()
    if not document.body:
        reading.add("error", document.body_line, "there are no instructions", "write them below the fields")
    found = tuple(reading.findings)
    if any(finding.level == "error" for finding in found):
        return None, name if _NAME.fullmatch(name) else folder.name, found
    return replace(made, notes=found), name, found


def _really(folder: Path, owner: Folder | None) -> Path:
    """Where a folder is when its links are followed, which must not leave its owner.

    A link to any other folder of a project would show what lies there to agents that may not read it.
    """
    if owner is None:
        return Path(real_path(folder))
    try:
        inside = owner.inside(folder.absolute())
    except OSError as error:
        raise _unread(error) from None
    if "skills" not in Path(inside).parts[:-1]:
        raise Invalid(
            f"is in {inside!r}, and a project's skill lies in a folder called 'skills'",
            fix="move it there",
        )
    return owner.path / inside


def _refuse_shared(folder: Path, name: str, owner: Folder | None) -> None:
    """Raise `Unreadable` for a file that has another name outside its skill, in the project or not."""
    if owner is None:
        return
    found = os.stat(folder / name, follow_symlinks=False)
    if found.st_nlink < 2:
        return
    names, whole = owner.names_of(found, MOST_NAMES)
    below = os.path.relpath(folder, owner.path) + "/"
    others = [each for each in names if not each.startswith(below)]
    if others:
        raise Unreadable(errno.EMLINK, f"is the same file as {others[0]!r}, outside the skill", name)
    if len(names) < found.st_nlink:
        why = f"has other names, and not all of more than {MOST_NAMES:,} files were looked at for them"
        why = why if not whole else "is the same file as one outside the project (a hard link)"
        raise Unreadable(errno.EMLINK, why, name)


def _document(folder: Path, owner: Folder | None, file: str = "") -> Document:
    """Its `SKILL.md`, parsed. Raises `Invalid`; and `FileNotFoundError` where there is none."""
    path = folder / FILE
    try:
        if owner is None:
            data = read_own(path, MAX_BYTES)
        else:
            found = owner.read(path, MAX_BYTES)
            data, really = found.data, found.name
            if os.path.basename(really) != FILE:
                raise Unreadable(errno.EINVAL, f"is a link to {really!r}, and may be one only to a {FILE}")
            _refuse_shared((owner.path / really).parent, FILE, owner)
        return parse(text_of(data, file), file or str(path), {*_KNOWN, *_ELSEWHERE, _HIDING})
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise _unread(error) from None


def _unread(error: OSError) -> Invalid:
    if error.errno == errno.EXDEV:
        return Invalid("leads out of the project by a link and is not read", fix="copy it into the project")
    if error.errno == errno.EFBIG:
        return Invalid(
            f"is larger than {MAX_BYTES // 1024} KB", fix="move what is not always needed to references/"
        )
    if isinstance(error, Unreadable):
        return Invalid(error.why, fix=f"a skill is a folder with a {FILE}")
    return Invalid(f"cannot be read: {error.strerror}")


def _files(folder: Path) -> tuple[list[str], bool]:
    own, found, left = Folder(folder), list[str](), MOST_LOOKED_AT
    ahead = [("", 0)]
    while ahead:
        below, depth = ahead.pop()
        try:
            entries, whole = own.list(below or ".", left)
        except OSError:
            continue
        left -= len(entries)
        for name, is_folder in entries:
            path = f"{below}/{name}" if below else name
            if name.startswith(".") or name in _LEFT_OUT or path == FILE:
                continue
            if not is_folder:
                found.append(path)
            elif depth < DEPTH:
                ahead.append((path, depth + 1))
        if not whole or len(found) > MOST_FILES:
            return sorted(found)[:MOST_FILES], False
    return sorted(found), True


@dataclass(kw_only=True, slots=True)
class _Fields:
    """The fields of one file, and the findings as they come up."""

    file: str
    fields: dict[str, YamlValue]
    findings: list[Finding]

    def add(self, level: Level, line: int | None, message: str, fix: str = "") -> None:
        self.findings.append(Finding(file=self.file, line=line, level=level, message=message, fix=fix))

    def line(self, name: str) -> int:
        return self.fields[name].line if name in self.fields else 1

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if value is None or value.data is None:
            return ""
        if isinstance(value.data, (list, dict)):
            self.add("warning", value.line, f"'{name}' is not text and is left out")
            return ""
        return value.raw.strip()

    def name(self, folder: str) -> str:
        name = self.text("name")
        if not name:
            self.add("warning", 1, f"'name' is missing; the folder's own, '{folder}', is used", "add 'name:'")
            name = folder
        # The same name may be written with other characters: some systems do so with names of folders.
        name, folder = (unicodedata.normalize("NFKC", each) for each in (name, folder))
        if not _NAME.fullmatch(name):
            usable = re.sub(r"[\W_]+", "-", name.lower()).strip("-")[:LONGEST_NAME] or "my-skill"
            self.add(
                "error",
                self.line("name"),
                f"the name {name[:80]!r} cannot be used: small letters, digits and '-', at most "
                f"{LONGEST_NAME}",
                f"for example 'name: {usable}'",
            )
        elif not _STRICT.fullmatch(name) or name != name.lower():
            self.add(
                "warning",
                self.line("name"),
                f"the name '{name}' is not as the format wants it: small letters, digits, single '-'",
                "other programs may refuse it",
            )
        elif name != folder:
            self.add(
                "warning",
                self.line("name"),
                f"the folder is called '{folder}' and the skill '{name}'",
                "give both one name: other programs may refuse it",
            )
        return name

    def description(self) -> str:
        text = " ".join(self.text("description").split())
        if not text:
            self.add(
                "error",
                self.line("description"),
                "'description' is missing",
                "say what the skill does and when to use it: a model chooses it by this",
            )
        elif len(text) > LONGEST_DESCRIPTION:
            self.add(
                "warning",
                self.line("description"),
                f"the description has {len(text):,} characters; the first {LONGEST_DESCRIPTION:,} are shown",
                "say when to use it, and leave the rest to the instructions",
            )
        return text[:LONGEST_DESCRIPTION]

    def compatibility(self) -> str:
        text = self.text("compatibility")
        if len(text) > LONGEST_COMPATIBILITY:
            self.add(
                "warning",
                self.line("compatibility"),
                f"'compatibility' has {len(text):,} characters; the format allows {LONGEST_COMPATIBILITY}",
            )
        return text[:LONGEST_COMPATIBILITY]

    def metadata(self) -> dict[str, str]:
        value = self.fields.get("metadata")
        if value is None or value.data is None:
            return {}
        if not isinstance(value.data, dict):
            self.add("warning", value.line, "'metadata' is no mapping and is left out", "like: author: me")
            return {}
        return {strip_hidden(key)[:100]: inner.raw[:500] for key, inner in value.data.items()}

    def allowed_tools(self) -> tuple[str, ...]:
        value = self.fields.get("allowed-tools")
        if value is None:
            return ()
        items = value.data if isinstance(value.data, list) else [value]
        # Blanks or commas part them, but not within brackets.
        names = [part for item in items for part in re.findall(r"[^\s,(]+(?:\([^)]*\))?", item.raw)]
        self.add("warning", value.line, "'allowed-tools' grants nothing here", _NOTHING)
        return tuple(names)

    def hides(self) -> bool:
        value = self.fields.get(_HIDING)
        if value is None or value.data is not True:
            return False
        self.add("note", value.line, f"'{_HIDING}': no model is told of it; an agent that names it has it")
        return True

    def others(self) -> None:
        """Fields that mean nothing here: never obeyed, never fatal, always said."""
        for name, value in self.fields.items():
            if name in _KNOWN or name == _HIDING:
                continue
            if name in _ELSEWHERE:
                level: Level = "warning" if name in _MATTER else "note"
                self.add(level, value.line, f"'{name}' is not obeyed here", _ELSEWHERE[name])
                continue
            near = get_close_matches(name, _KNOWN, n=1, cutoff=0.7)
            fix = f"did you mean '{near[0]}'?" if near else "known fields: " + ", ".join(_KNOWN)
            self.add("warning", value.line, f"unknown field '{strip_hidden(name)[:60]}'", fix)
