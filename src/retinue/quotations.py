"""What a text gives as somebody else's words, and whether those words stand in another text.

Called by `sources`. Linear in the length of the text, whatever it contains. Words in quotation marks count
from twenty letters on; a block quote counts only next to a citation, since many are just set apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

SHORTEST_QUOTATION = 20
SHORTEST_PART = 6
PIECE = 100_000
"""Characters that are made plain at a time."""

_CODE = re.compile(r"`[^`\n]*`")
_QUOTED = re.compile(
    r"(?<![\w\"])\"(?=\S)([^\"]+)\"(?!\w)|“([^“”„]+)[”“]|„([^“”„]+)[“”]|«([^«»]+)»|「([^「」]+)」|『([^『』]+)』"
)
_GAP = re.compile(r"\[?\s?(?:\.\.\.|…)\s?\]?|\[[^\[\]]{0,80}\]")
_FOOTNOTE_MARK = re.compile(r"\[{1,2}\^?\d{1,3}\]{1,2}(?:\([^()\s]*\))?")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\(<?[^()\s]*(?:\([^()\s]*\)[^()\s]*)*>?(?:\s+\"[^\"\n]*\")?\)")
_AUTOLINK = re.compile(r"<(?:https?://|mailto:)[^<>\s]*>")
_NOT_WORD = re.compile(r"[\W_]+")
_CALLOUT = re.compile(
    r"\s*(?:\[!|\*\*[^*]{1,40}(?::\*\*|\*\*:)|(?:Note|Warning|Tip|Important)\b\s*:)", re.IGNORECASE
)
_ATTRIBUTION = re.compile(r"\s*(?:—|–|--)\s*")
_CITED = re.compile(r"https?://|\[\^?\d{1,3}\]|[\w/]\.\w{1,10}(?::|#L)\d")


def quotations(prose: str) -> list[str]:
    """What the report gives as somebody's words: text in quotation marks, and block quotes with a source."""
    found: dict[str, None] = {}
    running: list[str] = []
    for paragraph in re.split(r"\n[ \t]*\n", prose):
        if paragraph.lstrip().startswith(">"):
            continue
        running.append(_CODE.sub(lambda code: " " if '"' in code[0] else code[0], paragraph))
    for paragraph in running:
        for match in _QUOTED.finditer(paragraph):
            found.setdefault(next(group for group in match.groups() if group))
    for quotation in _block_quotes(prose):
        found.setdefault(quotation)
    return [quotation for quotation in found if len(plain(quotation)) >= SHORTEST_QUOTATION]


_SINGLE = re.compile(r"(?<!\w)‘([^‘’]+(?:’\w[^‘’]*)*)’(?!\w)")


def any_quotations(sentence: str) -> list[str]:
    """What one sentence gives as somebody's words, short ones too; one word in marks is only pointed at."""
    found = [next(group for group in match.groups() if group) for match in _QUOTED.finditer(sentence)]
    found += [match[1] for match in _SINGLE.finditer(sentence)]
    return [one for one in found if len(one.split()) > 1 or not one.isascii()]


def _block_quotes(prose: str) -> list[str]:
    lines = prose.split("\n")
    found: list[str] = []
    at = 0
    while at < len(lines):
        if not lines[at].lstrip().startswith(">"):
            at += 1
            continue
        end = at
        while end < len(lines) and lines[end].lstrip().startswith(">"):
            end += 1
        around = "\n".join((_line_before(lines, at), *lines[at:end], _line_after(lines, end)))
        if _CITED.search(around):
            block = "\n".join(line.lstrip().lstrip("> ") for line in lines[at:end])
            found += [part for part in map(_without_source, re.split(r"\n\s*\n", block)) if part]
        at = end
    return found


def _line_before(lines: list[str], at: int) -> str:
    return next((line for line in reversed(lines[max(0, at - 2) : at]) if line.strip()), "")


def _line_after(lines: list[str], end: int) -> str:
    return next((line for line in lines[end : end + 2] if line.strip()), "")


def _without_source(block: str) -> str:
    if _CALLOUT.match(block):
        return ""
    kept = [line for line in block.split("\n") if not _ATTRIBUTION.match(line)]
    text = "\n".join(kept)
    # The source at the end of a quotation is not part of it, nor are the marks around the whole.
    text, end = text[:-500], text[-500:]
    text += re.sub(r"\s*[(\[]?(?:\[[^\[\]]*\]\([^()\s]*\)|https?://\S+)[)\]]?[.\s]*\Z", "", end)
    return text.strip().strip('"“”„«»')


def plain(text: str) -> str:
    """A text with nothing left that typesetting changes: letters and digits alone.

    Case, spaces, line breaks, punctuation, kinds of quotes and dashes, Markdown emphasis, link targets and
    footnote marks make no difference then.
    """
    return "".join(map(_plain, _pieces(text)))


def _pieces(text: str) -> Iterator[str]:
    """Cut where a paragraph ends, or a line, so that in a thread other work gets its turn in between."""
    at = 0
    while len(text) - at > PIECE:
        end = text.rfind("\n\n", at, at + PIECE)
        end = end if end > at else text.rfind("\n", at, at + PIECE)
        end = end if end > at else at + PIECE
        yield text[at:end]
        at = end
    yield text[at:]


def _plain(text: str) -> str:
    text = _AUTOLINK.sub("", _LINK.sub(r"\1", _FOOTNOTE_MARK.sub("", text)))
    return _NOT_WORD.sub("", unicodedata.normalize("NFKC", text).casefold())


def stands_in(quotation: str, texts: Iterable[str]) -> bool:
    """Whether one of these plain texts holds a quotation, its parts in order where something is left out.

    A short part beside longer ones may be a remark of who quotes, and is passed over. With nothing longer
    there, the short ones are all that was quoted.
    """
    every = [part for part in map(plain, _GAP.split(quotation)) if part]
    parts = [part for part in every if len(part) >= SHORTEST_PART] or every
    return not parts or any(_in_order(parts, text) for text in texts)


def _in_order(parts: list[str], text: str) -> bool:
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True
