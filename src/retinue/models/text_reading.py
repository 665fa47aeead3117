"""Reads calls and answers out of a reply in the text protocol, forgiving the mistakes that models make.

Unclosed tags, Markdown fences, chatter around, wrong case, HTML escapes, quotes and commas that JSON does not
allow, other tags for the same thing (`<tool_call>`, `<function=…>`, `<grep>…</grep>`). Called by
`text_protocol` alone. Text in, reading out: nothing here raises, whatever the text.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from retinue.models.text_mending import load_object, mend, without_fence
from retinue.types import ToolSpec

CODE_TOOL = "run_code"
MAX_OPERATIONS = 64
"""Tags of one reply that are looked at."""

_CALLS = "tool_call|tool_use|function_call|function|invoke|tool"
_THINK = re.compile(r"\s*<(think|thinking)>(.*?)(</\1>|\Z)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"""\bname\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>/]+))""", re.IGNORECASE)
_BARE_NAME = re.compile(r"[\s=:]*([\w.:-]+)")
_BEFORE_JSON = re.compile(r"\s*(?:```[\w+-]*\s*)?")
_CLOSE = re.compile(r"\s*(?:```\s*)?(?:</\s*[\w-]+\s*>)?")
_CODE_END = re.compile(r"</\s*code\s*>", re.IGNORECASE)
_ANSWER_END = re.compile(r"</\s*answer\b", re.IGNORECASE)
_BARE_KEYS = tuple(
    {name, inside} for name in ("name", "tool", "function") for inside in ("arguments", "parameters")
)
_DECODER = json.JSONDecoder(strict=False)
_LONGEST_MARK = 21


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One call: the tool's name and its arguments as JSON text, mended where possible."""

    name: str
    arguments: str
    closed: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class TextReading:
    """`text` is the answer, or what was said before the first operation."""

    text: str
    operations: tuple[Operation, ...] = ()
    thinking: str = ""


def read(raw: str, tools: Sequence[ToolSpec], *, cut: bool = False) -> TextReading:
    """`cut`: the reply ended for want of room, so an operation left open is not whole and is not made."""
    text, thinking = _without_thinking(raw)
    opener = _opener(tuple(each.name for each in tools))
    if "&lt;" in text and opener.search(text) is None and opener.search(html.unescape(text)) is not None:
        text = html.unescape(text)
    bare = _bare_call(text, tools, cut=cut)
    if bare is not None:
        return TextReading(text="", operations=(bare,), thinking=thinking)
    operations: list[Operation] = []
    begin: int | None = None
    position = 0
    for _ in range(MAX_OPERATIONS):
        match = opener.search(text, position)
        if match is not None and not operations and _wraps_a_call(text, match, opener):
            begin, position = match.start(), match.end()
            continue
        if match is None or _kind(match) == "result":
            break  # a result that the model made up, and whatever it concluded from it, do not count
        if _kind(match) == "answer":
            if operations:
                break
            return TextReading(text=_until(text, match.end(), _ANSWER_END), thinking=thinking)
        found = None if _is_quoted(text, match) else _operation(text, match, opener, tools)
        if found is None:
            position = match.end()
            continue
        operation, position = found
        if operation.closed or not cut:
            operations.append(operation)
            begin = match.start() if begin is None else begin
    said = text[:begin] if begin is not None and operations else text
    return TextReading(text=said.strip(), operations=tuple(operations), thinking=thinking)


def _bare_call(text: str, tools: Sequence[ToolSpec], *, cut: bool) -> Operation | None:
    """A reply that is a call and nothing else, without any tag: `{"name": "grep", "arguments": {…}}`."""
    body = without_fence(text).strip()
    if not tools or not body.startswith("{") or (cut and not _is_whole(body)):
        return None
    inner = load_object(body)
    if inner is None or set(inner) not in _BARE_KEYS:
        return None
    name, body = _from_object(inner, "")
    spec = _known(name, tools)
    return None if spec is None else Operation(name=spec.name, arguments=mend(body, spec.schema))


def _is_whole(body: str) -> bool:
    """Whether an object is there to its end, before anything is mended."""
    try:
        _DECODER.raw_decode(body)
    except (ValueError, RecursionError):
        return False
    return True


def _is_quoted(text: str, match: re.Match[str]) -> bool:
    """A tag in a block quote, or in inline code within a sentence: somebody else's words, and no call."""
    before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
    return before.lstrip().startswith(">") or (before.endswith("`") and before.strip("` \t") != "")


def _wraps_a_call(text: str, match: re.Match[str], opener: re.Pattern[str]) -> bool:
    """Small models put `<result>` around the call itself, which is no result at all."""
    if _kind(match) != "result":
        return False
    start = match.end()
    while start < len(text) and text[start].isspace():
        start += 1
    following = opener.match(text, start)
    return following is not None and _kind(following) not in ("result", "answer")


class AnswerFeed:
    """The certain part of the answer while a reply is still coming in: always a beginning of the whole."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._opener = _opener(tuple(each.name for each in tools))
        self._seen = ""
        self._waiting: str | None = None
        self._decided = False
        self._any = False

    def add(self, delta: str) -> str:
        """What can be shown now."""
        if self._waiting is not None:
            return self._show(delta)
        self._seen += delta
        if self._decided or ">" not in delta:
            return ""
        thought = _THINK.match(self._seen)
        if thought is not None and not thought[3]:
            return ""
        match = self._opener.search(self._seen, thought.end() if thought else 0)
        if match is None or (_kind(match) == "answer" and not match["end"]):
            return ""
        self._decided = True
        if _kind(match) != "answer":
            return ""
        self._waiting = ""
        return self._show(self._seen[match.end() :])

    def _show(self, delta: str) -> str:
        if self._waiting is None:
            return ""
        text = self._waiting + delta
        if not self._any:
            text = text.lstrip()
        end = _ANSWER_END.search(text)
        if end is not None:
            self._waiting = None
            return text[: end.start()].rstrip()
        opened = text.rfind("<", -_LONGEST_MARK)  # what may become a mark is held back, and blanks at the end
        ready = text.rstrip() if opened < 0 or ">" in text[opened:] else text[:opened].rstrip()
        self._waiting = text[len(ready) :]
        self._any = self._any or bool(ready)
        return ready


def _kind(match: re.Match[str]) -> str:
    return (match["kind"] or "").lower()


def _without_thinking(raw: str) -> tuple[str, str]:
    thought = _THINK.match(raw)
    if thought is None or not thought[3]:
        return raw, ""
    return raw[thought.end() :], thought[2].strip()


@lru_cache(maxsize=64)
def _opener(names: tuple[str, ...]) -> re.Pattern[str]:
    """The start of any tag that means something. `<grep>` counts only where arguments follow it."""
    kinds = "answer"
    if names:
        kinds += f"|result|{_CALLS}" + ("|code" if CODE_TOOL in names else "")
    tag = rf"<\s*(?P<kind>{kinds})(?![\w-])(?P<head>[^<>{{}}\n]*)(?P<end>>)?"
    either = "|".join(re.escape(name) for name in names) or r"(?!)"
    direct = rf"<\s*(?P<direct>{either})\s*(?P<empty>/)?>(?(empty)|(?=\s*(?:```\w*\s*)?[{{<]))"
    return re.compile(f"{tag}|{direct}", re.IGNORECASE)


def _operation(
    text: str, match: re.Match[str], opener: re.Pattern[str], tools: Sequence[ToolSpec]
) -> tuple[Operation, int] | None:
    """The call that begins here and where it ends, or None where the tag is part of what is being said."""
    if _kind(match) == "code":
        return _code(text, match, opener)
    head = match["head"] or ""
    name = match["direct"] or _attribute(head)
    if match["empty"] or (match["end"] and head.rstrip().endswith("/")):
        body, end, closed = "", match.end(), True
    else:
        body, end, closed = _body(text, match.end(), opener)
    if name is None:
        inner = load_object(body)
        if inner is None:
            return None
        name, body = _from_object(inner, body)
    spec = _known(name, tools)
    arguments = mend(body, spec.schema if spec else {})
    return Operation(name=spec.name if spec else name, arguments=arguments, closed=closed), end


def _code(text: str, match: re.Match[str], opener: re.Pattern[str]) -> tuple[Operation, int] | None:
    end = _CODE_END.search(text, match.end())
    if end is not None:
        stop, after = end.start(), end.end()
    else:
        following = opener.search(text, match.end())
        stop = after = following.start() if following else len(text)
    code = without_fence(text[match.end() : stop])
    before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
    if not code.strip() or (before.strip() and "\n" not in code.strip()):
        return None  # `<code>` in the middle of a sentence is typography
    arguments = json.dumps({"code": code}, ensure_ascii=False)
    return Operation(name=CODE_TOOL, arguments=arguments, closed=end is not None), after


def _body(text: str, start: int, opener: re.Pattern[str]) -> tuple[str, int, bool]:
    """What is between the tags. A JSON object is read as such first: its strings may contain tags."""
    before = _BEFORE_JSON.match(text, start)
    begin = before.end() if before else start
    if text.startswith("{", begin):
        try:
            _, end = _DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError):
            pass
        else:
            closing = _CLOSE.match(text, end)
            return text[begin:end], closing.end() if closing else end, True
    close = re.compile(rf"</\s*(?:{_CALLS})\s*>", re.IGNORECASE).search(text, start)
    following = opener.search(text, start)
    if close is not None and (following is None or close.start() <= following.start() or _nested(following)):
        return text[start : close.start()], close.end(), True
    stop = following.start() if following is not None else len(text)
    loose = _loose_end(text[start:stop])
    return text[start : start + loose], stop, False


def _nested(following: re.Match[str]) -> bool:
    return _kind(following) == "code"


def _loose_end(body: str) -> int:
    """Where the body of an unclosed tag ends: before a closing tag of any other name at its end."""
    stray = re.search(r"</[^<>]*>\s*\Z", body)
    return stray.start() if stray else len(body)


def _attribute(head: str) -> str | None:
    named = _NAME.search(head)
    if named is not None:
        return (named[1] or named[2] or named[3] or "").strip() or None
    bare = _BARE_NAME.match(head.rstrip().rstrip("/"))
    return bare[1] if bare else None


def _from_object(inner: dict[str, Any], body: str) -> tuple[str, str]:
    """`{"name": …, "arguments": {…}}`, as several model families write it."""
    for key in ("name", "tool", "tool_name", "function"):
        value = inner.get(key)
        if isinstance(value, dict):
            return _from_object(cast("dict[str, Any]", value), body)
        if isinstance(value, str) and value:
            for inside in ("arguments", "parameters", "args", "input"):
                if inside in inner:
                    given: Any = inner[inside]
                    return value, given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            rest = {k: v for k, v in inner.items() if k != key}
            return value, json.dumps(rest, ensure_ascii=False)
    return "tool", body


def _known(name: str, tools: Sequence[ToolSpec]) -> ToolSpec | None:
    def plain(text: str) -> str:
        return text.lower().replace("-", "_")

    exact = [each for each in tools if each.name == name]
    return next(iter(exact or [each for each in tools if plain(each.name) == plain(name)]), None)


def _until(text: str, start: int, end: re.Pattern[str]) -> str:
    found = end.search(text, start)
    return text[start : found.start() if found else len(text)].strip()
