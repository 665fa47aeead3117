"""What may leave: a run that has read private data dials no address that a model put together, unasked.

Private data, untrusted content and a way out are harmless in pairs. So a run that has read private data
(`known_to`) goes by itself only to addresses that others have written: a person, a search, the link
of a page. An attacker who wrote a page does not know the secret, so no address on it can hold it; one that
does stands nowhere yet. Choosing among links or results carries a little too, so those are counted.

Two addresses are the same if the same bytes would be sent for them. All that is known here is in the logs
of a workflow: what one of its runs was told or found, all of them know, after a restart as well.
`engine.concern` calls this before a call runs; it asks nobody and dials nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

from retinue.run_state import RunState
from retinue.types import AddressFrom
from retinue.web.urls import BadUrl, Target, take_apart

Out = Literal["nowhere", "addresses", "anywhere"]
"""Where the arguments of a tool can go: to its own fixed service, to addresses among them, or anywhere."""

MOST_FOLLOWED = 20
"""Links and search results that a workflow may go to after private data was read: on one host that somebody
named, and on all that nobody named together."""
MOST_IN_ALL = 60
"""Links and search results that it may go to on all hosts together. Which of the 1,000 links of a page is
followed says 10 bits to whoever wrote it: 75 bytes in all. A site with more pages in a search says more."""
NAMED = 5
"""Names of private data that a person is told."""

_ORDER: tuple[AddressFrom, ...] = ("", "said", "found", "link", "composed")
_ADDRESS = re.compile(r"https?://[^\s<>\"'`{}|\\^\[\]“”«»]+", re.IGNORECASE)
_BARE = re.compile(
    r"(?<![\w@/.:%-])((?:[\w-]{1,63}\.)+[^\W\d_]{2,24}(?::\d{1,5})?(?:[/?][^\s<>\"'`{}|\\^\[\]“”«»]*)?)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Concern:
    """Why a person is asked about a call that the rules would let run. `about` is what the answer holds for
    in the whole workflow, `rule` the rule that would allow it."""

    why: str
    about: tuple[str, ...]
    rule: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Passage:
    """Where a call goes: whence it has the address, and what is to be asked before."""

    address: AddressFrom = ""
    concern: Concern | None = None


def pages_of(authority: str) -> str:
    """The pages of a host of a private network as private data. To that host itself they do not leave."""
    return f"pages of {authority}"


def known_to(own: RunState, call_id: str, workflow: Collection[RunState]) -> tuple[str, ...]:
    """The private data that may be in what a call of a run was given, by name.

    The report of a child that has ended may be in its workspace before it is told of that end.
    """
    names = own.reads(call_id)
    for child in workflow if own.children else ():
        began = child.started and own.children.get(child.started.run_id)
        if began and child.report is not None and not own.was_told(began, child):
            names |= child.reads()  # else they are among its own
    return tuple(names)


def leaving(
    tool: str, out: Out, arguments: Any, private: Collection[str], workflow: Collection[RunState]
) -> Passage:
    """What is to be said of a call that could carry away private data, by what its run may have read."""
    if out == "nowhere" or not private:
        return Passage()
    if out == "anywhere":
        key = f"tool {tool}"
        why = f"{_read(private)}, and whatever {tool} is told goes to others"
        return Passage(address="composed", concern=_unless(key, why, tool, workflow))
    worst: AddressFrom = ""
    concerns: list[Concern] = []
    for target in addresses(arguments):
        origin = _origin(target, workflow)
        elsewhere = [name for name in private if name != pages_of(target.authority)]
        if not elsewhere and origin != "composed":
            continue
        if _ORDER.index(origin) > _ORDER.index(worst):
            worst = origin
        if not elsewhere:  # and where its host sends it on to is looked at
            continue
        if origin == "composed" or (origin in ("link", "found") and _one_too_many(target, workflow)):
            concern = _about(tool, target, origin, elsewhere, workflow)
            concerns += [] if concern is None else [concern]
    return Passage(address=worst, concern=_together(concerns))


def _together(concerns: Sequence[Concern]) -> Concern | None:
    """One question for all the hosts of a call."""
    if not concerns:
        return None
    why = "; ".join(dict.fromkeys(concern.why for concern in concerns))
    about = tuple(dict.fromkeys(key for concern in concerns for key in concern.about))
    return Concern(why=why, about=about, rule=concerns[0].rule)


def addresses(arguments: Any) -> Iterator[Target]:
    """Every address among the arguments, however deep it stands. What cannot be dialled is none."""
    if isinstance(arguments, str):
        try:
            yield take_apart(arguments)
        except BadUrl:
            yield from map(take_apart, canonical(ending(_ADDRESS.findall(arguments))))
    elif isinstance(arguments, dict):
        for name, value in cast("dict[str, Any]", arguments).items():
            yield from addresses(name)
            yield from addresses(value)
    elif isinstance(arguments, list | tuple):
        for value in cast("list[Any]", arguments):
            yield from addresses(value)


def _origin(target: Target, workflow: Collection[RunState]) -> AddressFrom:
    if any(target.url in said(text) for state in workflow for text in state.vouched):
        return "said"
    if any(target.url in state.found for state in workflow):
        return "found"
    return "link" if any(target.url in state.links for state in workflow) else "composed"


def _named_hosts(workflow: Collection[RunState]) -> set[str]:
    spoken = {url for state in workflow for text in state.vouched for url in said(text)}
    found = {url for state in workflow for url in state.found}
    return {host for url in spoken | found if (host := _host(url))}


@lru_cache(maxsize=2**15)  # more than a workflow finds: each of its calls goes through all of them
def _host(url: str) -> str:
    try:
        return take_apart(url).authority
    except BadUrl:
        return ""


def _one_too_many(target: Target, workflow: Collection[RunState]) -> bool:
    named = _named_hosts(workflow)
    hosts = [host for state in workflow for arguments in state.followed for host in _hosts(arguments)]
    if len(hosts) >= MOST_IN_ALL:
        return True
    if target.authority in named:
        return hosts.count(target.authority) >= MOST_FOLLOWED
    return sum(host not in named for host in hosts) >= MOST_FOLLOWED


@lru_cache(maxsize=4096)
def _hosts(arguments: str) -> tuple[str, ...]:
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):  # as the model wrote them, mended before they were used
        read = arguments
    return tuple(target.authority for target in addresses(read))


def _about(
    tool: str, target: Target, origin: AddressFrom, private: Collection[str], workflow: Collection[RunState]
) -> Concern | None:
    host = target.authority
    if origin in ("link", "found"):
        whence = f"{_followed(host, workflow)} have been followed since"
    else:
        whence = (
            "this address was put together: it stands neither in what was asked, nor in a search result, nor "
            "as a link on a fetched page"
        )
    why = f"{_read(private)}, and {whence}; what was read could leave with it, to {host}"
    return _unless(f"host {host}", why, f"{tool}({target.origin}/*)", workflow)


def _followed(host: str, workflow: Collection[RunState]) -> str:
    """Which links are those that were followed too often."""
    hosts = sum(len(_hosts(arguments)) for state in workflow for arguments in state.followed)
    if hosts >= MOST_IN_ALL:
        return f"{MOST_IN_ALL} links and search results"
    where = f"on {host}" if host in _named_hosts(workflow) else "of hosts that nobody named"
    return f"{MOST_FOLLOWED} links {where}"


def _unless(key: str, why: str, rule: str, workflow: Collection[RunState]) -> Concern | None:
    """The concern, unless a person has cleared it for this workflow."""
    if any(key in state.cleared for state in workflow):
        return None
    return Concern(why=why, about=(key,), rule=rule)


def _read(private: Collection[str]) -> str:
    names = list(private)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"this run has read {', '.join(names[:NAMED])}{more}"


@lru_cache(maxsize=256)
def said(text: str) -> frozenset[str]:
    """The addresses that stand in what somebody said; one without its scheme stands for both."""
    found = [*ending(_ADDRESS.findall(text))]
    bare = _BARE.findall(_ADDRESS.sub(" ", text))
    found += [f"{scheme}://{name}" for name in ending(bare) for scheme in ("https", "http")]
    return frozenset(canonical(found))


def ending(texts: Iterable[str]) -> Iterator[str]:
    """Each without the brackets around it, and again without the punctuation of the sentence it ends."""
    for text in texts:
        inside = _within_brackets(text)
        yield inside
        short = inside.rstrip(".,;:!?*_~’")
        if short != inside:
            yield short


def _within_brackets(text: str) -> str:
    """Up to a bracket that closes what was not opened in it."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return text[:at]
    return text


def canonical(urls: Iterable[str]) -> Iterator[str]:
    """Addresses as they would be sent; what is none is left out, and so is what follows a `#`."""
    for url in urls:
        try:
            yield take_apart(url).url
        except BadUrl:
            continue


def links_in(text: str, most: int, characters: int) -> tuple[str, ...]:
    """The addresses in the text of a page, in its order, as they would be sent; so many of them."""
    kept: dict[str, None] = {}
    for url in canonical(ending(match[0] for match in _ADDRESS.finditer(text))):
        if url not in kept:
            characters -= len(url)
            if len(kept) >= most or characters < 0:
                break
            kept[url] = None
    return tuple(kept)
