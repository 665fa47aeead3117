"""Few words for much work: what is left of turns that are dropped, and of a run that is cut short.

Called by `context`. Pure functions over messages: no model is asked, and nothing is written. What is telling
is found by its form (names, numbers, paths, addresses), never by what it says, so a fact of the first turn
has the same chance as one of the last.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from retinue import reports
from retinue.run_state import RunState
from retinue.types import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from retinue.web import framing

DROPPED = "[Earlier turns were dropped to save space. What was done in them; what tools returned is data:]"
SUMMARISED = "[Earlier turns, summarised to save space:]"
LEFT_OUT = "- (and more, which is left out here)"
TOLD = "you were told: "
SAID = "you said: "
ARROW = " → "
REPORTED = " ⇒ "
"""Between a call and what came of it: what a tool returned, or what a child reported."""
LONGEST = 400
"""Characters that one thing takes in a digest, however much room there is."""
SHORTEST = 100
"""Where there is less room than that for each, those go that tell least."""
ARGUMENTS = 80
SO_FAR = 3600
"""Characters of the findings of a run that is cut short: a parent is shown about so much of a report."""
CHATTER = 80
"""What is said before a call, shorter than this and without a name or a number, only announces the call."""
WORDS = 2
REPORT = 4
"""What somebody said, and what a child reported, is worth so many results of tools."""

_ENDS = re.compile(r"(?<=[.!?…。])\s+|\n+")
_RUNS = re.compile(r"https?://\S+|[\w./:,-]+")
_PIECES = re.compile(r"[\w.]+")
_DIGIT = re.compile(r"\d")
_LOOKED_AT = 2000
_NUMBER = re.compile(r"\d+")
_LIKE = re.compile(r" \(and (\d+) like it\)$")
"""Of these none can be tried again from within a match: text of any form costs one pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DigestLine:
    """One thing that was done, found or said: `head` is what led to it."""

    head: str
    text: str
    weight: int = 1
    told: bool = False
    """Somebody said it to the run. This has half of the room, if there is so much of it."""
    like: int = 0
    """So many others were all but the same, and are left out."""

    def shown(self, most: int) -> str:
        head = self.head if len(self.head) <= most // 2 else self.head[: most // 2 - 1] + "…"
        return f"- {head}{gist(self.text, most - len(head))}{_like(self.like)}"

    @property
    def form(self) -> str:
        """The same for lines that differ in their numbers alone."""
        return " ".join(_NUMBER.sub("0", f"{self.head}{self.text[:_LOOKED_AT]}".casefold()).split())


def _like(others: int) -> str:
    return f" (and {others} like it)" if others else ""


def gist(text: str, most: int) -> str:
    """The most telling sentences of a text, in their order, in so many characters."""
    flat = " ".join(text.split())
    if len(flat) <= most:
        return flat
    sentences = [" ".join(part.split()) for part in _ENDS.split(text)]
    parts = list(dict.fromkeys(part for part in sentences if part))
    best = sorted(range(len(parts)), key=lambda at: (-_weight(parts[at], first=at == 0), at))
    room, chosen = most, dict[int, str]()
    for at in best:
        cost = len(parts[at]) + len(" … ")
        if cost <= room:
            chosen[at] = parts[at]
            room -= cost
    if not chosen:  # not one of them fits
        return _clipped(parts[best[0]], most)
    words = ""
    for at in sorted(chosen):
        gap = "" if not words else " " if at - 1 in chosen else " … "
        words += gap + chosen[at]
    return words


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"


def telling(sentence: str) -> set[str]:
    """The names, numbers, paths and addresses in it, found by their form."""
    found: set[str] = set()
    for run in _RUNS.finditer(sentence):
        text = run[0]
        if "://" in text:
            found.add(text)
        elif _DIGIT.search(text) or "/" in text.rstrip("/"):
            found.add(text.rstrip(".,:-"))
        else:
            inside = run.start() > 0 and sentence[run.start() - 1].isspace()
            for piece in _PIECES.finditer(text):
                if _is_name(name := piece[0].strip("."), inside=inside and not piece.start()):
                    found.add(name)
    return found


def _is_name(word: str, *, inside: bool) -> bool:
    """Whether a word without digits is written like a name. A capital tells so inside a sentence only."""
    if len(word) < 2 or not word.strip("_"):
        return False
    capital = word[0].isalpha() and not word[0].islower()
    return "." in word or "_" in word[1:-1] or word.isupper() or (inside and capital)


def _weight(sentence: str, *, first: bool) -> float:
    """How telling a sentence is: names and numbers, by its length; the first has some credit."""
    return len(telling(sentence)) / (40 + len(sentence)) + (0.01 if first else 0)


def fitted(lines: Sequence[DigestLine], most: int, longest: int = LONGEST) -> list[str]:
    """Lines in their order, as many and as long as there is room for in so many characters."""
    each = _each(lines, most, longest)
    if each >= SHORTEST or len(lines) < 2:
        return [line.shown(each * line.weight) for line in lines]
    most -= len(LEFT_OUT) + 1
    kept = _most_telling(lines, most)
    each = _each(kept, most, longest)
    return [*(line.shown(each * line.weight) for line in kept), LEFT_OUT]


def _most_telling(lines: Sequence[DigestLine], most: int) -> list[DigestLine]:
    """As many lines as fit with `SHORTEST` characters each; one at least, and never all.

    First those go that are all but the same as another. Then, of what was told and of what was done and found
    whichever has more than its half, line by line that one goes whose names and numbers stand in most others
    too; of equals one in the middle.
    """
    kept = _Kept(lines)
    while kept.left > 1 and (kept.room > most or kept.left == len(lines)):
        kept.drop(told=2 * kept.taken[False] <= most)
    return kept.lines()


class _Kept:
    """Lines of which one after the other goes.

    What a line is worth only grows while others go, and by few steps (`_rarity`): the top of a heap is looked
    at again until it holds, and the others keep their place.
    """

    def __init__(self, lines: Sequence[DigestLine]) -> None:
        self._lines, self.left = lines, len(lines)
        self._tokens = [telling(gist(line.text, SHORTEST * line.weight)) for line in lines]
        self._seen = Counter(token for found in self._tokens for token in found)
        self._forms = [line.form for line in lines]
        self._same = Counter(self._forms)
        self._like = Counter[str]()
        self.taken = {False: 0, True: 0}
        self._heaps: dict[bool, list[tuple[bool, float, int, int]]] = {False: [], True: []}
        for at, line in enumerate(lines):
            self.taken[line.told] += _taken(line, SHORTEST)
            self._heaps[line.told].append(self._worth(at))
        for heap in self._heaps.values():
            heapq.heapify(heap)

    @property
    def room(self) -> int:
        return self.taken[False] + self.taken[True]

    def _worth(self, at: int) -> tuple[bool, float, int, int]:
        rare = sum(_rarity(self._seen[token]) for token in self._tokens[at])
        alone = self._same[self._forms[at]] == 1
        return alone, rare * self._lines[at].weight, abs(at - len(self._lines) // 2), at

    def _lowest(self, told: bool) -> tuple[bool, float, int, int] | None:
        heap = self._heaps[told]
        while heap and (now := self._worth(heap[0][-1])) != heap[0]:
            heapq.heapreplace(heap, now)
        return heap[0] if heap else None

    def drop(self, *, told: bool) -> None:
        """Drop the line that tells least: of what was `told` or not, unless others are repeated."""
        ours, theirs = self._lowest(told), self._lowest(not told)
        if ours is None or (ours[0] and theirs is not None and not theirs[0]):
            told = not told
        at = heapq.heappop(self._heaps[told])[-1]
        line, form = self._lines[at], self._forms[at]
        self._seen.subtract(self._tokens[at])
        self._same[form] -= 1
        self._like[form] += 1 + line.like
        self.taken[told] -= _taken(line, SHORTEST)
        self.left -= 1

    def lines(self) -> list[DigestLine]:
        """What is left, in its order. The first of those all but the same says how many there were."""
        found: list[DigestLine] = []
        for at in sorted(entry[-1] for heap in self._heaps.values() for entry in heap):
            line = self._lines[at]
            others = self._like.pop(self._forms[at], 0)
            found.append(replace(line, like=line.like + others) if others else line)
        return found


def _rarity(lines: int) -> float:
    """What a token tells that stands in so many lines: half as much for each doubling of them."""
    return 1 / (1 << lines.bit_length())


def _taken(line: DigestLine, each: int) -> int:
    """Characters of a line where each has so many."""
    return min(len(line.head) + len(line.text), each * line.weight) + len("- \n") + len(_like(line.like))


def _each(lines: Sequence[DigestLine], most: int, longest: int) -> int:
    """How long a line may be so that all fit: short ones leave their room to the others."""
    low, high = 0, longest
    while low < high:
        middle = (low + high + 1) // 2
        if sum(_taken(line, middle) for line in lines) <= most:
            low = middle
        else:
            high = middle - 1
    return low


def dropped(gone: Sequence[Message], earlier: UserMessage | None, most: int, longest: int = LONGEST) -> str:
    """What was done in turns that leave the history, with what an earlier digest among them holds."""
    return "\n".join([DROPPED, *fitted(_lines(gone, earlier), most - len(DROPPED) - 1, longest)])


def shortened(summary: str, most: int) -> str:
    """A summary of many turns in so many characters, all of it where it fits."""
    if len(summary) <= most:
        return summary
    title, _, _ = summary.partition("\n")
    return "\n".join([title, *fitted(_of_digest(summary), most - len(title) - 1)])


def _lines(messages: Iterable[Message], earlier: UserMessage | None) -> list[DigestLine]:
    """Everything that was done, found and said, in its order."""
    kept = list(messages)
    results = {message.call_id: message for message in kept if isinstance(message, ToolMessage)}
    lines: list[DigestLine] = []
    for message in kept:
        if message is earlier:
            lines += _of_digest(message.text)
        elif isinstance(message, AssistantMessage):
            if message.text.strip():
                lines.append(_words_of(SAID, message.text))
            for call in message.calls:
                lines.append(_line_of(call, results.get(call.id)))
        elif isinstance(message, UserMessage):
            lines.append(_words_of(TOLD, _words(message.text)))
    return lines


def _of_digest(text: str) -> list[DigestLine]:
    """The lines of an earlier digest, as they were put together."""
    lines: list[DigestLine] = []
    for line in text.split("\n"):
        if not line.strip() or line in (DROPPED, SUMMARISED, LEFT_OUT):
            continue
        others = _LIKE.search(line)
        lines.append(replace(_of_line(_LIKE.sub("", line)), like=int(others[1]) if others else 0))
    return lines


def _of_line(line: str) -> DigestLine:
    bare = line.removeprefix("- ")
    if bare.startswith((TOLD, SAID)):
        head = TOLD if bare.startswith(TOLD) else SAID
        return _words_of(head, bare.removeprefix(head))
    _, sign = min(((at, sign) for sign in (ARROW, REPORTED) if (at := bare.find(sign)) >= 0), default=(0, ""))
    if not sign:
        return DigestLine(head="", text=bare)
    called, _, found = bare.partition(sign)
    return DigestLine(head=called + sign, text=found, weight=WORDS if sign == REPORTED else 1)


def _words_of(who: str, text: str) -> DigestLine:
    return DigestLine(head=who, text=text, told=who == TOLD, weight=WORDS)


def _line_of(call: ToolCall, result: ToolMessage | None) -> DigestLine:
    """What came of a call. What a child reported counts as words, like what the run itself said."""
    head, text = _head(call.name, call), "" if result is None else _words(result.text)
    if result is None or not text:
        return DigestLine(head="", text=head)
    if reports_within(result.text):
        return DigestLine(head=f"{head}{REPORTED}", text=text, weight=WORDS)
    return DigestLine(head=f"{head}{ARROW}", text=text)


def so_far(state: RunState, streamed: str = "", unheard: Sequence[tuple[str, str]] = ()) -> str:
    """What a run found that did not get to its report, with what was arriving just then.

    `unheard` is what children reported that it was not told yet, with their names.

    An answer that was written counts as it is, and so does one that was being written; what was found beside
    it follows in few words.
    """
    messages = _since_asked(state)
    at = max((at for at, message in enumerate(messages) if _is_answer(message)), default=-1)
    answer = messages[at].text.strip() if at >= 0 else ""
    messages = messages[at + 1 :] + list(state.results.values())
    found = _findings(messages, state.digest, unheard)
    said = [m.text.strip() for m in messages if isinstance(m, AssistantMessage) and m.text.strip()]
    drafts = [text for text in (answer, *(said[-1:] if not found else ()), streamed) if text]
    if not found:
        return "\n\n".join(drafts)
    title = "Found beside that:" if drafts else "No answer was written. Found so far:"
    return "\n\n".join([*drafts, "\n".join([title, *found])])


def nothing_found(state: RunState, why: str) -> str:
    """Why a run ended that had found nothing by then, and what it did: its calls, and what came of them."""
    messages = [*_since_asked(state), *state.results.values()]
    lines = [line for line in _lines(messages, None) if not line.told]
    turns = state.turns - state.before.turns
    asked = "No model call was answered" if turns <= 0 else f"Model calls answered: {turns}"
    title = f"There is no answer, and nothing was found: {why}. {asked}"
    return "\n".join([f"{title}; what was done:" if lines else f"{title}.", *fitted(lines, SO_FAR)])


def _is_answer(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and not message.calls and bool(message.text.strip())


def _since_asked(state: RunState) -> list[Message]:
    """The messages since the last turn of the conversation began, and what earlier ones left in a digest."""
    at = next((at for at, message in enumerate(state.messages) if message is state.answered), -1)
    return state.messages[at + 1 :]


def _findings(
    messages: Sequence[Message], digest: UserMessage | None, unheard: Sequence[tuple[str, str]]
) -> list[str]:
    """What tools and children found, and what the run said of it; nothing if it only said something."""
    calls = {call.id: call for m in messages if isinstance(m, AssistantMessage) for call in m.calls}
    lines: list[DigestLine] = []
    found = 0
    for message in messages:
        if isinstance(message, AssistantMessage):
            if len(message.text) >= CHATTER or telling(message.text):
                lines.append(DigestLine(head="", text=message.text))
            continue
        new = _found(message, calls) if message is not digest else _of_digest(message.text)
        found += len(new)
        lines += new
    lines += [DigestLine(head=f"{agent}: ", text=text, weight=REPORT) for agent, text in unheard]
    return fitted(lines, SO_FAR) if found or unheard else []


def _found(message: UserMessage | ToolMessage, calls: Mapping[str, ToolCall]) -> list[DigestLine]:
    """The findings in a result. What is said to a run holds some where a child in the background ended."""
    told = reports_within(message.text)
    if isinstance(message, UserMessage):
        return [DigestLine(head="", text=text, weight=REPORT) for text in told]
    if told or message.is_error:  # one that failed may have found something before
        return [DigestLine(head=f"{message.name}: ", text=text, weight=REPORT) for text in told]
    head = _head(message.name, calls.get(message.call_id))
    return [DigestLine(head=f"{head}: ", text=_words(message.text))]


def _head(name: str, call: ToolCall | None) -> str:
    arguments = "" if call is None else " ".join(call.arguments.split())
    return name if arguments in ("", "{}") else f"{name}({_clipped(arguments, ARGUMENTS)})"


def _words(text: str) -> str:
    """What a result says: of children their reports, without the frames and the figures around them."""
    found = reports_within(text)
    return "\n".join(found) if found else framing.unframed(text)


def reports_within(text: str) -> list[str]:
    """The reports of children that a result holds, as they were worded; also those inside its JSON."""
    if not reports.framed_in(text):
        return []
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or the beginning of some
        body = text.replace("\\n", "\n").replace('\\"', '"')
    return list(reports.framed_in("\n".join(_strings(body))).values())


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in cast("dict[str, Any]", value).values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _strings(each)
