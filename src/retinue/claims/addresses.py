"""Names of a source that are no address: a DOI, an arXiv id, a PubMed id, an item of Wikidata.

Called by `claims.citing` and `claims.report`. A paper has many addresses (its DOI, its abstract, its PDF, any
version): `identity` is what they have in common.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from retinue.web.urls import key

_DOI = re.compile(r"(?<![\w/.])(?:doi:\s?)?(10\.\d{4,9}/[^\s\"<>\]}]+)", re.IGNORECASE)
_ARXIV = re.compile(
    r"\barXiv:\s?((?:\d{4}\.\d{4,5}|[a-z-]+(?:\.[a-z]{2})?/\d{7})(?:v\d+)?)\b|(?<=\[)(\d{4}\.\d{5})(?=\])",
    re.IGNORECASE,
)
_PUBMED = re.compile(r"\bPMID:?\s?(\d{1,8})\b", re.IGNORECASE)
_WIKIDATA = re.compile(r"(?<=[\[(])(?:Wikidata:?\s)?(Q[1-9]\d{0,9})(?=[\])])")
_IN_DOI = re.compile(r"10\.\d{4,9}/[^\s?#]+")
_IN_ARXIV = re.compile(r"arxiv(?:\.org/(?:abs|pdf|html|format)/|\.)([^\s?#]+?)(?:v\d+)?(?:\.pdf)?/*$")


def named(text: str) -> list[str]:
    """The addresses of what a text names without one; addresses in the text are taken out before."""
    found = [f"https://doi.org/{_ended(match[1])}" for match in _DOI.finditer(text)]
    found += [f"https://arxiv.org/abs/{match[1] or match[2]}" for match in _ARXIV.finditer(text)]
    found += [f"https://pubmed.ncbi.nlm.nih.gov/{match[1]}" for match in _PUBMED.finditer(text)]
    found += [f"https://www.wikidata.org/wiki/{match[1]}" for match in _WIKIDATA.finditer(text)]
    return list(dict.fromkeys(found))


def without_names(text: str) -> str:
    """A text without such names."""
    text = _DOI.sub(lambda match: match[1][len(_ended(match[1])) :], text)
    for pattern in (_ARXIV, _PUBMED, _WIKIDATA):
        text = pattern.sub("", text)
    return text


def _ended(doi: str) -> str:
    """A DOI from running text, without the punctuation that follows it; brackets may be part of it."""
    while doi and (doi[-1] in ".,;:'*_`’”" or (doi[-1] == ")" and doi.count("(") < doi.count(")"))):
        doi = doi[:-1]
    return doi


def identity(url: str) -> str:
    """What all addresses of one paper or item have in common; of other pages that of their spellings."""
    plain = key(url)
    low = unquote(plain).casefold()
    if "arxiv" in low and (paper := _IN_ARXIV.search(low)):
        return f"arxiv:{paper[1]}"
    if doi := _IN_DOI.search(low):
        return f"doi:{_ended(doi[0]).removesuffix('.pdf')}"
    if "wikidata.org" in low and (item := re.search(r"/(q\d+)$", low)):
        return f"wikidata:{item[1]}"
    return plain
