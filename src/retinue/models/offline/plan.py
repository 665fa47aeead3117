"""The rules of `planner`: see the layout, find the files that the task matches, write a numbered plan.

Three moves: look around and search; read the best places; report. The plan names files that were seen and
says what kind of step each one needs; it does not pretend to know the change itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from retinue.models.offline import search
from retinue.models.offline.rank import RankedFile, definition_name
from retinue.models.offline.results import Hit, clip, hits_in, lines_in, paths_in, unique
from retinue.models.offline.scene import Move, Say, Scene, SceneItem, Wish
from retinue.models.offline.tour import BUILD
from retinue.models.offline.words import Terms, terms_of

MAX_TURNS = 4
_VERBS = re.compile(
    r"(?i)\b(?:please|plan|implement|add|create|build|write|make|introduce|support|refactor|change|extend|fix|a|an|new)\b"
)
_OPTION = re.compile(r"(?i)(?:^|\s)[`'\"]?--?[a-z][\w-]*|\b(?:flag|option|switch)(?:e?s)?\b")
_OPTIONS = r"\.add_argument\(|\.option\(|typer\.(Option|Argument)\("
"""How options of a command line are declared: argparse, click and its kin, typer."""
_TESTS = "**/test_*.py"
_GUIDE = re.compile(r"(?i)^(?:readme|contributing|agents)\.(?:md|rst|txt)$")


def decide(scene: Scene) -> Move:
    terms = terms_of(_VERBS.sub(" ", scene.task))
    places = _with_options(scene, search.rank_all(scene, terms))
    ask = None
    if scene.turn < MAX_TURNS:
        ask = scene.ask(_look(scene, terms))
        if ask is None:
            ask = scene.ask(search.reads(scene, _sources(places)))
    return ask if ask is not None else _report(scene, terms, places)


def _look(scene: Scene, terms: Terms) -> list[Wish | None]:
    wishes: list[Wish | None] = [scene.wish("ls", path=".")]
    if _OPTION.search(scene.task):
        wishes.append(scene.wish("grep", pattern=_OPTIONS, max_results=80))
    wishes += search.everywhere(scene, terms, "")
    wishes.extend(scene.wish("glob", pattern=f"**/{PurePosixPath(path).name}") for path in terms.paths)
    if terms.words:
        wishes.append(scene.wish("glob", pattern=f"**/test*{terms.words[0].stem}*"))
    wishes.append(scene.wish("glob", pattern=_TESTS))
    return wishes


def _with_options(scene: Scene, places: Sequence[RankedFile]) -> list[RankedFile]:
    """A new option goes where the others are declared, though none of its words is there yet."""
    found: dict[str, list[Hit]] = {}
    for one in scene.results("grep"):
        if one.arguments.get("pattern") == _OPTIONS:
            for hit in hits_in(one.text):
                found.setdefault(hit.path, []).append(hit)
    known = {place.path for place in _sources(places)}
    score = places[0].score if places else 1.0
    declared = [
        RankedFile(path=path, score=score, lines=tuple(hits[:4]), terms=frozenset({"command-line options"}))
        for path, hits in sorted(found.items(), key=lambda pair: -len(pair[1]))
        if path not in known
    ]
    return [*places, *_sources(declared)[:2]]


def _sources(places: Sequence[RankedFile]) -> list[RankedFile]:
    return [place for place in places if not _is_test(place.path) and not _is_doc(place.path)]


def _is_test(path: str) -> bool:
    return bool(re.search(r"(?:^|/)tests?/|(?:^|/)test_|_test\.|\.test\.|\.spec\.", path))


def _is_doc(path: str) -> bool:
    return bool(re.search(r"\.(?:md|rst|txt)$|(?:^|/)docs?/", path))


def _report(scene: Scene, terms: Terms, places: Sequence[RankedFile]) -> Say:
    top = unique(path for one in scene.results("ls") for path in paths_in(one.text))
    goal = clip(scene.task, 200)
    near = [one for one in places if one.score >= places[0].score * 0.35]
    sources = _sources(near)[:4] or _sources(places)[:1]
    tests = [one for one in places if _is_test(one.path) and len(one.terms) * 2 >= len(terms.all)][:2]
    docs = [one for one in places if re.match(r"(?i)docs?/|readme|changelog", one.path)][:1]
    lines = [f"**Goal:** {goal}"]
    constraints = scene.fields.get("constraints", "").strip()
    if constraints:
        lines.append(f"**Constraints:** {clip(constraints, 200)}")
    lines += ["", *_approach(terms, sources), ""]
    steps = _steps(scene, terms, sources, tests, docs, top)
    lines += [f"{number}. {step}" for number, step in enumerate(steps, 1)]
    command = next((command for name, command in BUILD.items() if name in top), "") or _tested_by(scene)
    lines += [
        "",
        f"**Check:** `{command}`" if command else "**Check:** run the project's tests; how was not found.",
    ]
    words = ", ".join(
        f"`{term.text}`" for term in terms.all if not any(term.text in one.terms for one in places)
    )
    if words:
        lines.append(f"**Not found in the code:** {words}. These parts are new.")
    lines.append(
        "**Open:** the plan comes from names and positions alone. Read each place before changing it."
    )
    items = tuple(
        SceneItem(title=step, path=place.path, line=_line(place), text=step)
        for step, place in zip(steps[1:] or steps, sources, strict=False)
    )
    return Say(text="\n".join(lines), items=items)


def _tested_by(scene: Scene) -> str:
    """How the tests run where no build file says so, by what they are called."""
    found = [path for one in scene.results("glob") for path in paths_in(one.text)]
    return "pytest" if any(re.search(r"(?:^|/)test_\w+\.py$", path) for path in found) else ""


def _approach(terms: Terms, sources: Sequence[RankedFile]) -> list[str]:
    if not sources:
        wanted = ", ".join(f"`{term.text}`" for term in terms.all) or "the task"
        return [f"**Approach:** nothing in the code matches {wanted}, so this is new ground."]
    best = sources[0]
    inside = f" (`{best.defines}`)" if best.defines else ""
    return [
        f"**Approach:** build on the code that is nearest to the task, `{best.path}:{_line(best)}`{inside}."
    ]


def _steps(
    scene: Scene,
    terms: Terms,
    sources: Sequence[RankedFile],
    tests: Sequence[RankedFile],
    docs: Sequence[RankedFile],
    top: Sequence[str],
) -> list[str]:
    steps: list[str] = []
    guides = [name for name in top if _GUIDE.match(name)]
    if guides:
        steps.append(f"Read `{guides[0]}` for the conventions of the project.")
    for number, place in enumerate(sources):
        names = _names_near(scene, place)
        inside = f", in {', '.join(f'`{name}`' for name in names[:3])}" if names else ""
        verb = "Make the change in" if number == 0 else "Adapt"
        has = ", ".join(sorted(place.terms)[:4])
        steps.append(f"{verb} `{place.path}:{_line(place)}`{inside} (matches: {has}).")
    if not sources:
        folder = next(
            (name for name in top if name.rstrip("/") in ("src", "lib", "app", "pkg")), "the source folder"
        )
        steps.append(f"Create a new module under `{folder}` for it (new).")
    if tests:
        steps += [f"Extend the tests in `{place.path}:{_line(place)}`." for place in tests]
    else:
        folder = next(
            (name.rstrip("/") for name in top if name.rstrip("/") in ("tests", "test", "spec")), "tests"
        )
        what = terms.all[0].text if terms.all else "the change"
        steps.append(f"Add a test under `{folder}/` for {what} (new): none was found that covers it.")
    steps += [f"Update `{place.path}:{_line(place)}`." for place in docs]
    return steps


def _line(place: RankedFile) -> int:
    return place.lines[0].line if place.lines else 1


def _names_near(scene: Scene, place: RankedFile) -> list[str]:
    """What is defined in the lines that were read, or in the hits."""
    names = [definition_name(hit.text) for hit in place.lines]
    for one in scene.results("read"):
        if one.arguments.get("path") == place.path:
            names += [definition_name(text) for _, text in sorted(lines_in(one.text).items())]
    return unique(name for name in names if name)
