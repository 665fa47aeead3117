"""Whether a question looks as if it needs knowledge from outside, before a main run starts.

Sets of words and a few short patterns: microseconds, no model. Called once per main run when
`knowledge.first` is on. It errs towards no: a missed question can still use the tools, a needless
look-up costs time and money.
"""

from __future__ import annotations

import re

MOST = 2000


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TOKEN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# Files, calls and blocks of code: looked up here, not outside.
_CODE = re.compile(
    r"```|\w\(\)|\w[/\\][\w.-]+\.\w{1,5}\b|\b(?:src|tests?|docs|lib)[/\\]"
    r"|\w\.(?:py|js|tsx?|go|rs|c|h|cpp|java|rb|php|sh|toml|ya?ml|json|md|txt|csv|xlsx?|ini|sql|html|css|log)\b"
)
# One of these alone says that the question is about what is here.
_HERE = _words(
    "codebase code-base repo repository refactor lint linter traceback stacktrace readme changelog "
    "docstring src venv makefile dockerfile monorepo"
)
# These only say so after `this`, `our`, `the attached` …, or two of them, or after a verb of work.
_THINGS = _words(
    "code project file files folder folders directory module modules package function functions method "
    "methods class classes script scripts test tests branch commit commits diff config configuration error "
    "errors bug bugs log logs document pdf spreadsheet workbook sheet table image text page conversation "
    "chat change changes app application server database schema variable variables parameter endpoint "
    "endpoints feature features import imports todo todos parser settings setting button line lines"
)
_POINTING = _words("this these those our my your attached following above given")
_WORK = _words(
    "fix implement refactor rename debug compile run write edit add delete remove create update commit "
    "format make change move build deploy install test review improve optimise optimize translate summarise "
    "summarize rewrite rephrase proofread shorten convert sort count draft"
)
# Talk about the talk itself.
_TALK = re.compile(
    r"^(?:hi|hello|hey|thanks|thank you|ok|okay|yes|no|continue|go on|stop)\b[^?]{0,40}$"
    r"|\b(?:who|what) are you\b|\bwhat can you do\b|\bcan you help\b|\bhow are you\b"
    r"|\b(?:you|we) (?:just|already)\b|\b(?:did|do|should|shall) (?:you|we|i)\b"
    r"|\bwhat(?:'s| is) (?:my|your|our|next)\b"
    r"|^(?:so |and )?(?:what|who)(?:'s| is| are| was| were) (?:this|that|these|those|it|they)\b[\s?.!]*$"
    r"|\btell me (?:a|another|one more) (?:joke|story|tale|riddle|poem)\b"
)
# The answer may have changed since any model was trained.
_NEW = _words(
    "latest newest recent recently current currently today today's tonight yesterday nowadays news breaking "
    "2025 2026 2027 2028 2029 2030"
)
_SPAN = re.compile(
    r"\b(?:this|last|next) (?:week|month|year|season)\b|\bas of (?:now|20\d\d)\b|\bright now\b"
)
_FILLERS = _words("please so and but also hey hi hello ok okay now well then could can would you kindly")
_ASKING = _words(
    "who whom whose what what's who's when's where's which when where why how is are was were does did has "
    "have will explain define describe research compare tell search list name"
)
_WITHIN = re.compile(
    r"\b(?:who|what|which|when|where|why|how (?:many|much|far|old|tall|long|big|high|deep|fast)) "
    r"(?:\w+ ){0,2}(?:is|are|was|were|did|does|has|had|will|invented|discovered|wrote|won|founded)\b"
    r"|\b(?:definition|meaning|capital|population|history|biography|inventor|author|distance) of\b"
    r"|\b(?:look up|find out|how (?:many|much|far|old|tall))\b"
)


def needs_knowledge(question: str) -> bool:
    """True for questions about the world; not for work on files, code or the conversation itself."""
    text = question[:MOST].strip().lower()
    words = _TOKEN.findall(text)
    first = next((word for word in words if word not in _FILLERS), "")
    if not words or _is_here(text, words, first) or _TALK.search(text):
        return False
    if not _NEW.isdisjoint(words) or _SPAN.search(text):
        return True
    return first not in _WORK and (first in _ASKING or bool(_WITHIN.search(text)))


def _is_here(text: str, words: list[str], first: str) -> bool:
    if not _HERE.isdisjoint(words) or _CODE.search(text):
        return True
    things = {place for place, word in enumerate(words) if word in _THINGS}
    if len({words[place] for place in things}) >= 2 or (things and first in _WORK):
        return True
    return any(_POINTING & set(words[max(0, place - 3) : place]) for place in things)
