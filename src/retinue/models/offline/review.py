"""The rules of `code-review`: find the target, read it, run the checks over what was read.

Two or three moves: read the target (or list it, or look for it by name), read the files, report.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from retinue.models.offline.checks import ReviewRemark, names_of, review
from retinue.models.offline.rank import location_factor
from retinue.models.offline.results import clip, hits_in, lines_in, paths_in, unique
from retinue.models.offline.scene import Move, Say, Scene, SceneItem, Wish
from retinue.models.offline.words import terms_of

MAX_FILES = 8
MAX_REMARKS = 14
MAX_TURNS = 5
FOCI = ("bugs", "style", "performance", "security")
_SOURCE = re.compile(
    r"\.(?:py|pyi|js|mjs|cjs|ts|tsx|jsx|go|rs|rb|java|kt|c|h|cc|cpp|hpp|cs|php|swift|scala|sh|sql|vue|svelte|lua)$"
)


def decide(scene: Scene) -> Move:
    focus = focus_of(scene)
    targets = targets_of(scene)
    files = _read_files(scene)
    ask = None
    if scene.turn < MAX_TURNS:
        ask = scene.ask(_more(scene, targets, files), most=MAX_FILES)
    return ask if ask is not None else _report(scene, targets, files, focus)


def focus_of(scene: Scene) -> str:
    said = scene.fields.get("focus", "").strip().lower()
    if said in (*FOCI, "all"):
        return said
    words = scene.task.lower()
    for focus, pattern in (
        ("security", r"securit|vulnerab|inject|secret"),
        ("performance", r"performance|slow|speed|fast"),
        ("style", r"\bstyle|readab|clean"),
        ("bugs", r"\bbugs?\b"),
    ):
        if re.search(pattern, words):
            return focus
    return "all"


def targets_of(scene: Scene) -> list[str]:
    """The paths that the task names."""
    named = terms_of(scene.task).paths
    if named:
        return list(named)
    bare = scene.task.strip().strip("`'\"")
    return [bare] if re.fullmatch(r"[\w.@*/-]{1,200}", bare) else []


def _more(scene: Scene, targets: Sequence[str], files: dict[str, dict[int, str]]) -> list[Wish | None]:
    """What to read or to look for next."""
    if files:
        return _rest(scene, files)
    listed = _listed(scene)
    if listed:
        return [scene.wish("read", path=path) for path in listed[:MAX_FILES]]
    wishes: list[Wish | None] = []
    for target in targets:
        path = target.rstrip("/")
        if "*" in target:
            wishes.append(scene.wish("glob", pattern=target))
        elif _SOURCE.search(path) or "." in PurePosixPath(path).name:
            wishes.append(scene.wish("read", path=path))
            if scene.failures():
                wishes.append(scene.wish("glob", pattern=f"**/{PurePosixPath(path).name}"))
        else:
            wishes.append(scene.wish("glob", pattern="**/*", path=path))
            wishes.append(scene.wish("glob", pattern=f"**/{PurePosixPath(path).name}*"))
    if not targets:
        terms = terms_of(scene.task)
        words = [
            term
            for term in terms.words
            if not re.match(r"(?i)review|check|bug|audit|secur|style|perf", term.text)
        ]
        for term in (*terms.names, *words)[:3]:
            wishes.append(
                scene.wish("grep", pattern=term.pattern, ignore_case=term.kind == "word", max_results=60)
            )
        if not (terms.names or words):
            wishes.append(scene.wish("glob", pattern="**/*.py"))
    return wishes


def _rest(scene: Scene, files: dict[str, dict[int, str]]) -> list[Wish | None]:
    """The next page of a file that was longer than one reading."""
    wishes: list[Wish | None] = []
    for one in scene.results("read"):
        path = str(one.arguments.get("path", ""))
        cut = re.search(
            r"(?im)^.{0,80}\b(?:more lines|truncated|continue with|use offset|offset=)", one.text[-400:]
        )
        last = max(files.get(path, {}), default=0)
        pages = sum(other.arguments.get("path") == path for other in scene.done)
        if cut and last and pages < 3:
            wishes.append(scene.wish("read", path=path, offset=last + 1))
    return wishes


def _listed(scene: Scene) -> list[str]:
    """Files that were found for the target: source before the rest, small set."""
    named = [path for one in scene.results("glob", "ls") for path in paths_in(one.text)]
    counted: dict[str, int] = {}
    for one in scene.results("grep"):
        for hit in hits_in(one.text):
            counted[hit.path] = counted.get(hit.path, 0) + 1
    found = unique([*named, *sorted(counted, key=lambda path: -counted[path])])
    source = [path for path in found if _SOURCE.search(path)]
    return sorted(source, key=lambda path: -location_factor(path, scene.task))


def _read_files(scene: Scene) -> dict[str, dict[int, str]]:
    files: dict[str, dict[int, str]] = {}
    for one in scene.results("read"):
        lines = lines_in(one.text)
        if lines:
            files.setdefault(str(one.arguments.get("path", "?")), {}).update(lines)
    return files


def _report(scene: Scene, targets: Sequence[str], files: dict[str, dict[int, str]], focus: str) -> Say:
    if not files:
        return _unread(scene, targets)
    remarks = [remark for path, lines in files.items() for remark in review(path, lines, focus)]
    remarks.sort(key=lambda one: ("high", "medium", "low").index(one.severity))
    read = ", ".join(
        f"`{path}` ({len(lines)} line{'' if len(lines) == 1 else 's'})" for path, lines in files.items()
    )
    checked = (
        f"**Checked:** {read}; focus {focus}; {len(names_of(focus))} patterns, no understanding of the logic."
    )
    if not remarks:
        kinds = "; ".join(names_of(focus)[:6])
        said = f"**Verdict:** none of the checks found anything.\n\nLooked for, among others: {kinds}."
        return Say(text=f"{said}\n\n{checked}")
    shown = remarks[:MAX_REMARKS]
    lines = [_verdict(remarks), ""]
    for number, remark in enumerate(shown, 1):
        lines.append(f"{number}. **{remark.severity}** `{remark.path}:{remark.line}` {remark.what}")
        lines.append(f"   `{clip(remark.code.replace('`', chr(39)), 90)}`. Fix: {remark.mend}.")
    if len(remarks) > len(shown):
        lines.append(f"\nand {len(remarks) - len(shown)} more of lower severity.")
    lines += ["", checked]
    return Say(text="\n".join(lines), items=tuple(_item(remark) for remark in shown))


def _verdict(remarks: Sequence[ReviewRemark]) -> str:
    counts = {level: sum(one.severity == level for one in remarks) for level in ("high", "medium", "low")}
    said = ", ".join(f"{count} {level}" for level, count in counts.items() if count)
    return f"**Verdict:** {len(remarks)} finding{'s' if len(remarks) != 1 else ''}: {said}."


def _item(remark: ReviewRemark) -> SceneItem:
    return SceneItem(
        title=remark.what,
        path=remark.path,
        line=remark.line,
        text=f"{remark.what}. {remark.mend}.",
        severity=remark.severity,
    )


def _unread(scene: Scene, targets: Sequence[str]) -> Say:
    wanted = ", ".join(f"`{target}`" for target in targets) or f"“{clip(scene.task, 80)}”"
    why = clip(scene.failures()[-1].text, 200) if scene.failures() else "no file of that name was found"
    tried = unique(
        f"{one.name} {one.arguments.get('path') or one.arguments.get('pattern') or ''}" for one in scene.done
    )
    calls = ", ".join(f"`{one}`" for one in tried[:8]) or "nothing: no tool to read with was offered"
    return Say(
        text=f"**Verdict:** nothing was reviewed: {wanted} could not be read ({why}).\n\n**Tried:** {calls}."
    )
