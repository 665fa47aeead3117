"""The rules of the root agent: choose a specialist by the words of the question, or do its work without one.

A question of several parts goes to several agents at once, three at most. What comes back is passed on with
the agent's name; if every agent failed, the root looks for itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from retinue.models.offline import (
    attached,
    deeds,
    digest,
    facts,
    pages,
    plan,
    researching,
    review,
    search,
    sums,
    tour,
)
from retinue.models.offline.results import clip, urls_in, without_frame
from retinue.models.offline.scene import Done, Move, Say, Scene, Wish
from retinue.models.offline.words import terms_of

MAX_CHILDREN = 3

RULES = {
    "code-search": search.decide,
    "code-review": review.decide,
    "planner": plan.decide,
    "web-knowledge": facts.decide,
    "science-research": facts.decide,
    "math-expert": sums.decide,
    "agentic-fetch": pages.decide,
    "summarize": digest.decide_summary,
    "compare": digest.decide_comparison,
    "research": researching.decide,
}


@dataclass(frozen=True, slots=True)
class _Route:
    agent: str
    pattern: str
    weight: float


_ROUTES = (
    _Route("code-search", r"(?i)\b(?:where|which (?:file|function|class|module|line))\b", 2.0),
    _Route(
        "code-search", r"(?i)\b(?:find|locate|defined|definition|implemented|called|used|usages?|grep)\b", 1.5
    ),
    _Route("code-search", r"(?i)\b(?:how (?:does|do|is|are)|what (?:does|handles|calls|happens))\b", 1.2),
    _Route(
        "code-search",
        r"(?i)\bthis (?:project|repo|repository|code\s?base|code|file)\b"
        r"|\b(?:function|method|class|config|module)\b",
        1.0,
    ),
    _Route("code-review", r"(?i)\b(?:review|audit|critique|code smells?)\b", 3.0),
    _Route(
        "code-review",
        r"(?i)\b(?:bugs?|vulnerabilit\w+|security (?:issues?|problems?|holes?)|what(?:'s| is) wrong)\b",
        2.0,
    ),
    _Route(
        "planner",
        r"(?i)^\s*(?:please\s+)?(?:add|implement|build|create|refactor|migrate|introduce|support|extend)\b",
        3.0,
    ),
    _Route(
        "planner",
        r"(?i)\b(?:plan|implement|how (?:would|should|can|could) (?:i|we|you) (?:add|implement|change))\b",
        2.5,
    ),
    _Route(
        "web-knowledge",
        r"(?i)^\s*(?:who|what) (?:is|are|was|were)\b|\bwho (?:invented|wrote|discovered|founded)\b",
        1.6,
    ),
    _Route(
        "web-knowledge",
        r"(?i)\b(?:latest|newest|recent|currently|today|history of|capital of|population)\b",
        1.6,
    ),
    _Route("web-knowledge", r"(?i)\b(?:wikipedia|wikidata|stack ?overflow|look up)\b", 2.5),
    _Route(
        "science-research",
        r"(?i)\b(?:papers?|arxiv|preprints?|literature|publications?|citations?|et al)\b",
        3.0,
    ),
    _Route("science-research", r"(?i)\b(?:asteroids?|astronomy picture|nasa)\b", 2.0),
    _Route(
        "math-expert",
        r"(?i)\b(?:compute|calculate|solve|integrate|derivative|differentiate|factori[sz]e|equation)\b",
        3.0,
    ),
    _Route("math-expert", r"\d\s*[-+*/^×÷]\s*[\d(]|\d\s*%\s*of\b|\bsqrt\b", 2.5),
    _Route("agentic-fetch", r"https?://\S+", 4.0),
    _Route(
        "agentic-fetch",
        r"(?i)\b(?:search the (?:web|internet)|on the web|online|web ?page|web ?site|fetch)\b",
        3.0,
    ),
)
_GREETING = re.compile(
    r"(?i)^\s*(?:hi|hello|hey|thanks|thank you|good (?:morning|evening)|ok|okay|test|ping)\b[\s!.,?]*$"
)
_MAIN = (
    "source",
    "sources",
    "query",
    "target",
    "task",
    "prompt",
    "problem",
    "question",
    "text",
    "input",
    "topic",
    "description",
)


def decide(scene: Scene) -> Move:
    if _GREETING.match(scene.task) or not scene.task.strip():
        return Say(text=_introduction(scene))
    done = deeds.decide(scene)
    if done is not None:
        return done
    staff = [name for name in RULES if name in scene.tools] + _named(scene)
    reports = [one for one in scene.done if one.name in RULES or one.name in staff]
    if scene.known and not reports:
        return Say(text=without_frame(scene.known))
    if scene.attached and not reports:
        move = attached.decide(scene)
        if move is not None:
            return move
    if staff and not reports:
        wishes = [_delegation(scene, agent, part) for agent, part in parts_of(scene, staff)]
        ask = scene.ask(wishes, most=MAX_CHILDREN)
        if ask is not None:
            return ask
    good = [one for one in reports if not one.failed and without_frame(one.text)]
    if good:
        return _pass_on(scene, good, [one for one in reports if one.failed])
    return alone(scene, [one for one in reports if one.failed])


def alone(scene: Scene, failed: list[Done] | None = None) -> Move:
    """Do the work of the specialist that the question calls for, with the tools at hand."""
    log = deeds.commits(scene)
    if log is not None:
        return log
    agents = ranked(scene.task)
    agent = _doable(scene, agents)
    move = RULES[agent](scene) if agent else _unable(scene, agents)
    if failed and isinstance(move, Say):
        said = "; ".join(f"{one.name}: {clip(one.text, 120)}" for one in failed)
        return Say(
            text=f"{move.text}\n\nDelegation failed ({said}), so this was looked up directly.",
            items=move.items,
            unable=move.unable,
        )
    return move


def ranked(question: str) -> list[str]:
    """The agents for a question, the best first, whether they are offered or not."""
    scores = dict.fromkeys(RULES, 0.0)
    for route in _ROUTES:
        if re.search(route.pattern, question):
            scores[route.agent] += route.weight
    if tour.asked_for(question):
        scores["code-search"] += 4.0
    terms = terms_of(question)
    if (terms.names or terms.paths) and not urls_in(question):
        scores["code-search"] += 2.0
    if terms.paths and scores["code-review"]:
        scores["code-review"] += 1.5
    named = len(digest.sources_in(question))
    if named and re.search(r"(?i)\bsummar(?:y|i[sz]e)\b|\bgist\b|\btl;?dr\b", question):
        scores["summarize"] = 6.0
    if named > 1 and re.search(r"(?i)\bcompar(?:e|ison)\b|\bversus\b|\bvs\b", question):
        scores["compare"] = 7.0
    if max(scores.values()) == 0.0 and terms:
        scores["code-search"] = 0.5
    return [name for name in sorted(scores, key=lambda one: -scores[one]) if scores[name] > 0]


def parts_of(scene: Scene, staff: list[str]) -> list[tuple[str, str]]:
    """Who gets which part of the question: the whole to one agent, unless its parts call for several."""
    named = [name for name in _named(scene) if name in staff]
    if named:
        return [(named[0], scene.task)]
    clauses = re.split(
        r"(?i)(?:[;\n]+|(?<=[?.!])\s+|,?\s+(?:and|then)\s+(?:then\s+|also\s+)?"
        r"(?=(?:where|which|who|what|find|review|audit|plan|compute|calculate|solve|search|implement|look up|"
        r"fetch)\b))",
        scene.task,
    )
    chosen: dict[str, str] = {}
    for clause in clauses:
        best = ranked(clause) if len(clause.strip()) > 8 else []
        if best and best[0] in staff:
            chosen[best[0]] = f"{chosen[best[0]]}\n{clause.strip()}" if best[0] in chosen else clause.strip()
    if len(chosen) > 1:
        return list(chosen.items())[:MAX_CHILDREN]
    best = ranked(scene.task)
    return [(best[0], scene.task)] if best and best[0] in staff else []


def _named(scene: Scene) -> list[str]:
    """Agents that the question calls by name, built-in or not: `@sql-expert`, `use sql-expert to …`."""
    called = re.findall(r"(?<![\w/.-])@?([a-z][a-z0-9]*(?:-[a-z0-9]+)+)(?![\w/-])", scene.task)
    called += re.findall(r"@([a-z][\w-]*)", scene.task)
    return [name for name in dict.fromkeys(called) if name in scene.tools]


def _delegation(scene: Scene, agent: str, part: str) -> Wish | None:
    """A call of an agent, its schema filled from the question."""
    schema = scene.tools[agent].schema
    known = schema.get("properties")
    properties = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    part = re.sub(rf"@{re.escape(agent)}\b[,:]?\s*", "", part).strip() or scene.task
    main = next((name for name in _MAIN if name in properties), next(iter(properties), "prompt"))
    wanted: dict[str, Any] = {main: part}
    paths = terms_of(part).paths
    if agent == "code-review" and paths:
        wanted["target"] = paths[0]
    if agent == "code-review":
        focus = review.focus_of(scene)
        wanted["focus"] = focus if focus != "all" else None
    folders = [path for path in paths if "/" in path or "*" in path]
    if "scope" in properties and folders:
        wanted["scope"] = folders[0]
    named = digest.sources_in(part)
    if named and main in ("source", "sources"):
        wanted[main] = named[0] if main == "source" else "\n".join(named)
    urls = urls_in(part)
    if "url" in properties and urls:
        wanted["url"] = urls[0]
    return scene.wish(agent, **wanted)


def _doable(scene: Scene, agents: list[str]) -> str:
    """The first of these whose work can be done with the tools on offer, or for which results exist."""
    needs: dict[str, tuple[str, ...]] = {
        "code-search": ("grep",),
        "code-review": ("read",),
        "planner": ("grep", "glob"),
        "web-knowledge": (
            "wiki_search",
            "duckduckgo",
            "wikidata_search",
            "web_search",
            "stackexchange_search",
        ),
        "science-research": ("arxiv_search", "wiki_search"),
        "agentic-fetch": ("web_fetch", "web_search"),
        "math-expert": ("wolfram_query",),
        "summarize": ("web_fetch", "view", "read"),
        "compare": ("web_fetch", "view", "read"),
        "research": ("web_fetch", "web_search"),
    }
    have = set(scene.tools) | {one.name for one in scene.done}
    for agent in agents:
        if any(name in have for name in needs[agent]):
            return agent
        if agent == "math-expert" and sums.solve(scene.task) is not None:
            return agent
    return ""


def _pass_on(scene: Scene, good: list[Done], failed: list[Done]) -> Say:
    if len(good) == 1:
        text = without_frame(good[0].text)
    else:
        text = "\n\n".join(f"### {one.name}\n{without_frame(one.text)}" for one in good)
    if failed:
        said = "; ".join(f"{one.name}: {clip(one.text, 160)}" for one in failed)
        text += f"\n\n**Did not work:** {said}"
    return Say(text=text)


def _introduction(scene: Scene) -> str:
    can = [name for name in RULES if name in scene.tools]
    staff = f" It can call {', '.join(can)}." if can else ""
    return (
        "No language model is configured, so the offline model answers: it searches, reads and quotes by "
        f"fixed rules.{staff} "
        "Ask for example: what does this project do? where is X defined? review src/file.py; plan a change; "
        "run the tests; write hello.txt saying hi."
    )


def _unable(scene: Scene, agents: list[str]) -> Say:
    have = ", ".join(sorted(scene.tools)) or "none"
    seen = [without_frame(one.text) for one in scene.done if not one.failed]
    if seen:
        found = "\n\n".join(f"- {clip(text, 400)}" for text in seen[-5:])
        return Say(text=f"What the tools returned:\n\n{found}")
    wanted = f"This is work for {agents[0]}, which needs tools that are not here. " if agents else ""
    return Say(
        text="The offline model cannot answer this: it has no knowledge of its own and only quotes what "
        f"tools return. {wanted}Tools offered here: {have}. Configure a model for a real answer.",
        unable=True,
    )
