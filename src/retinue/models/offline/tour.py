"""The rules for questions about a whole project or a whole file: what it is, and where to begin reading.

Used by `code-search` where a question names nothing that could be searched for: `what does this project do?`
looks at the folder, its README and its entry points; `where is app.py?` looks for the file and at its head.
Everything said is quoted from a file, with its line.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from retinue.models.offline.rank import definition_name, location_factor
from retinue.models.offline.results import Hit, clip, hits_in, lines_in, paths_in, unique
from retinue.models.offline.scene import Move, Say, Scene, SceneItem, Wish

_THING = r"(?:project|repo(?:sitory)?|code\s?base|code|package|library|app|application|program|folder)"
_ASKED = re.compile(
    rf"(?ix)^\W*(?:(?:please|can\ you|could\ you)\s+)?(?:"
    rf"(?:what|how)\s+(?:does|do|is|are)\s+(?:this|the)\s+(?:\w+\s)?{_THING}"
    rf"(?:\s+(?:do|about|for|work|built|all))*"
    rf"|what(?:'s|\s+is)\s+(?:this|here)"
    rf"|(?:explain|describe|introduce|summari[sz]e|sum\ up)\s+(?:this|the)\s+{_THING}(?:\s+to\ me)?"
    rf"|(?:give|show|take)\s+me\s+(?:on\s+)?(?:a|an)\s+(?:\w+\s+)?(?:tour|overview|introduction)\b.*"
    rf"|(?:a\s+)?(?:\w+\s+)?(?:tour|overview|introduction)\b(?:\s+(?:of|to)\s+(?:this|the)\s+{_THING})?"
    rf"|where\s+(?:do|should|can)\s+i\s+(?:begin|start)(?:\s+reading)?"
    rf")\W*$"
)
_ENTRIES = "**/{main,__main__,app,index,cli,lib,server}.*"
_SOURCE = re.compile(r"\.(?:py|js|mjs|ts|tsx|go|rs|rb|java|kt|c|cc|cpp|cs|php|swift)$")
_TOP = r"^(?:export |default |pub |async |public )*(?:class|def|function|func|fn|struct|interface|type)\s+\w+"
_DOC = re.compile(r"(?:README|ARCHITECTURE|CONTRIBUTING|AGENTS)\.(?:md|rst|txt)", re.IGNORECASE)
HEAD = 60
BUILD = {
    "pyproject.toml": "pytest",
    "setup.py": "pytest",
    "package.json": "npm test",
    "Cargo.toml": "cargo test",
    "go.mod": "go test ./...",
    "Makefile": "make test",
    "pom.xml": "mvn test",
    "Gemfile": "bundle exec rake test",
}
"""How the tests run, by the file that says how the project is built."""


def asked_for(task: str) -> bool:
    """Whether a question is about the project as a whole."""
    return _ASKED.match(task.strip().split("\n")[0][:200]) is not None


def decide(scene: Scene) -> Move:
    looked = scene.ask([scene.wish("ls", path="."), scene.wish("glob", pattern=_ENTRIES)])
    if looked is not None and not scene.done:
        return looked
    heads = _heads(scene)
    wishes = [
        scene.wish("read", path=path, offset=1, limit=HEAD)
        for path in (*_documents(scene)[:2], *_entries(scene)[:3])
    ]
    ask = scene.ask(wishes) if not heads else None
    return ask if ask is not None else _project(scene, heads)


def _top(scene: Scene) -> list[str]:
    listed = [one.text for one in scene.results("ls") if not one.text.rstrip().endswith(" is empty")]
    return unique(path for text in listed for path in paths_in(text))


def _documents(scene: Scene) -> list[str]:
    found = [path for path in _top(scene) if _DOC.fullmatch(path)]
    return sorted(found, key=lambda path: (not path.upper().startswith("README"), path))


def _entries(scene: Scene) -> list[str]:
    """Where a program begins: near the top of the tree, and no test."""
    found = [path for one in scene.results("glob") for path in paths_in(one.text) if _SOURCE.search(path)]
    return sorted(found, key=lambda path: (-location_factor(path, ""), path.count("/"), path))


def _heads(scene: Scene) -> dict[str, dict[int, str]]:
    """The first lines of each file that was read."""
    read = {str(one.arguments.get("path", "")): lines_in(one.text) for one in scene.results("read")}
    return {path: lines for path, lines in read.items() if lines}


def _project(scene: Scene, heads: Mapping[str, Mapping[int, str]]) -> Say:
    top = _top(scene)
    if not top:
        why = f" ({clip(scene.failures()[-1].text, 160)})" if scene.failures() else ""
        return Say(text=f"**Answer:** this folder has no files that can be seen{why}.")
    about = {path: _about(path, lines) for path, lines in heads.items()}
    known = {path: hit for path, hit in about.items() if hit is not None}
    first = next(iter(known.values()), None)
    said = (
        f"{clip(first.text, 700)} (`{first.path}:{first.line}`)" if first else "no file says what it is for"
    )
    lines = [f"**Answer:** {said}.", ""] if not said.endswith(")") else [f"**Answer:** {said}", ""]
    built = [f"`{name}` (tests: `{command}`)" for name, command in BUILD.items() if name in top]
    if built:
        lines += [f"**Built with:** {', '.join(built)}", ""]
    folders = [path for path in top if path.endswith("/")]
    files = [path for path in top if not path.endswith("/")]
    lines += ["**Layout:** " + ", ".join(f"`{path}`" for path in (*folders, *files)[:18]), ""]
    begin = [path for path in heads if path in known or _SOURCE.search(path)]
    if begin:
        lines.append("**Begin reading:**")
        lines += [_pointer(path, known.get(path), first) for path in begin]
    items = tuple(SceneItem(title=h.text, path=h.path, line=h.line, text=h.text) for h in known.values())
    return Say(text="\n".join(lines).strip(), items=items)


def _pointer(path: str, hit: Hit | None, first: Hit | None) -> str:
    if hit is None or hit is first:
        return f"- `{path}:1`"
    return f"- `{path}:{hit.line}` {clip(hit.text, 140)}"


def _about(path: str, lines: Mapping[int, str]) -> Hit | None:
    """What a file says of itself: the first paragraph of a text, the first comment of a program."""
    return _paragraph(path, lines) if not _SOURCE.search(path) else _comment(path, lines)


def _paragraph(path: str, lines: Mapping[int, str]) -> Hit | None:
    found: list[str] = []
    at = 0
    fenced = False
    for number, line in sorted(lines.items()):
        plain = re.sub(r"!?\[!?\[?[^\]]*\]\([^)]*\)\]?(?:\([^)]*\))?|<[^>]{1,200}>", "", line)
        plain = re.sub(r"[*_]{2}", "", plain).strip()
        fenced ^= line.lstrip().startswith("```")
        ends = not plain or fenced or re.match(r"(?:#|```|[-=*]{3,}$|\||>)", plain) is not None
        if found and ends:
            break
        if not ends and (found or len(plain) > 20):
            at = at or number
            found.append(plain)
    return Hit(path, at, " ".join(found)) if found else None


def _comment(path: str, lines: Mapping[int, str]) -> Hit | None:
    for number, line in sorted(lines.items())[:15]:
        match = re.match(r"\s*(?:\"\"\"|'''|/\*\*?|//+!?|#(?!!|\s*-\*-)|\*)\s*(\S.{10,})", line)
        if match and not re.search(r"(?i)copyright|licen[sc]e|spdx|eslint|type:|noqa", match[1]):
            return Hit(path, number, re.sub(r"\s*(?:\"\"\"|'''|\*/)\s*$", "", match[1]))
    return None


# ── a file that the question names ──────────────────────────────────────────────────────────────────────


def decide_file(scene: Scene, paths: Sequence[str]) -> Move:
    """Find the file, look at its head and at what it defines, and say so."""
    name = paths[0].strip("/")
    found = _of_name(scene, name)
    if not scene.done:
        wishes: list[Wish | None] = [scene.wish("glob", pattern=f"**/{name}")]
        if not PurePosixPath(name).suffix:
            wishes.append(scene.wish("ls", path=name))
        ask = scene.ask(wishes)
    elif found:
        ask = scene.ask(
            [
                scene.wish("read", path=found[0], offset=1, limit=HEAD),
                scene.wish("grep", pattern=_TOP, path=found[0], max_results=60),
            ]
        )
    else:
        ask = scene.ask([scene.wish("glob", pattern=f"**/*{PurePosixPath(name).suffix}")])
    return ask if ask is not None else _file(scene, name, found)


def _of_name(scene: Scene, name: str) -> list[str]:
    """Files of this name, sources before tests, near ones first."""
    found = [path for one in scene.results("glob") for path in paths_in(one.text)]
    same = [path for path in unique(found) if path == name or path.endswith(f"/{name}")]
    return sorted(same, key=lambda path: (-location_factor(path, ""), path.count("/"), path))


def _file(scene: Scene, name: str, found: Sequence[str]) -> Say:
    if not found:
        return _no_file(scene, name)
    path = found[0]
    head = _heads(scene).get(path, {})
    about = _about(path, head)
    says = f" It says of itself: {clip(about.text, 500)} (`{path}:{about.line}`)" if about else ""
    lines = [f"**Answer:** `{name}` is at `{path}:1`.{says}"]
    hits = [hit for one in scene.results("grep") for hit in hits_in(one.text) if hit.path == path]
    defined = [hit for hit in hits if definition_name(hit.text)]
    if defined:
        lines += ["", "**It defines:**"]
        lines += [f"- `{hit.path}:{hit.line}` {clip(hit.text.rstrip(':{ '), 110)}" for hit in defined[:14]]
        lines += [f"- and {len(defined) - 14} more"] if len(defined) > 14 else []
    elif head and not about:
        lines += [
            "",
            "```",
            *(text[:140].replace("```", "'''") for _, text in sorted(head.items())[:12]),
            "```",
        ]
    if len(found) > 1:
        lines += ["", "**Others of that name:** " + ", ".join(f"`{other}`" for other in found[1:6])]
    items = tuple(SceneItem(title=h.text, path=h.path, line=h.line, text=h.text) for h in defined[:14])
    return Say(text="\n".join(lines), items=items or (SceneItem(title=name, path=path, line=1),))


def _no_file(scene: Scene, name: str) -> Say:
    inside = [path for one in scene.results("ls") for path in paths_in(one.text)]
    if inside:
        shown = "\n".join(f"- `{name}/{path}`" for path in inside[:20])
        return Say(text=f"**Answer:** `{name}` is a folder. In it:\n{shown}")
    listed = [path for one in scene.results("glob") for path in paths_in(one.text)]
    wanted = PurePosixPath(name).name
    near = difflib.get_close_matches(wanted, [PurePosixPath(path).name for path in listed], 3)
    alike = [path for path in listed if PurePosixPath(path).name in near][:4]
    similar = " Similar names: " + ", ".join(f"`{path}`" for path in alike) + "." if alike else ""
    return Say(text=f"**Answer:** there is no file `{name}` in this project.{similar}")
