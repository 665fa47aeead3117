"""NASA: the astronomy picture of a day, and asteroids that come near the Earth.

The picture comes from science.nasa.gov, which needs no key; the older service is the fallback, and is not
trusted: it has answered any date with a logo. Asteroids need a key, or NASA's own DEMO_KEY.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from retinue.errors import ToolError
from retinue.tools.base import Tool, ToolResult
from retinue.tools.knowledge import causes
from retinue.tools.knowledge.clean import line, plain, title
from retinue.tools.knowledge.client import KnowledgeClient
from retinue.tools.knowledge.items import Item, facts, make_tool, result
from retinue.tools.knowledge.sources import SOURCES
from retinue.tools.knowledge.wire import Request, SourceResponse

LABEL = "NASA"
FIRST = date(1995, 6, 16)
DAYS = 7
SHOWN = 25


class _Picture(Struct, frozen=True):
    """Both services' form. In the new one `url` is the article and `explanation` is HTML."""

    title: str
    date: str = ""
    explanation: str | None = None
    media_type: str | None = "image"
    url: str | None = None
    hdurl: str | None = None
    permalink: str | None = None
    credit: str | None = None
    copyright: str | None = None
    basic_html: str | None = None


class _Size(Struct, frozen=True):
    low: float = msgspec.field(name="estimated_diameter_min", default=0.0)
    high: float = msgspec.field(name="estimated_diameter_max", default=0.0)


class _Diameter(Struct, frozen=True):
    meters: _Size = _Size()


class _Approach(Struct, frozen=True):
    """Its numbers are strings."""

    close_approach_date: str = ""
    close_approach_date_full: str = ""
    relative_velocity: dict[str, str] = {}
    miss_distance: dict[str, str] = {}


class _Neo(Struct, frozen=True):
    """`links` is left out on purpose: it echoes the caller's key."""

    name: str
    id: str = ""
    nasa_jpl_url: str = ""
    estimated_diameter: _Diameter = _Diameter()
    hazardous: Any = msgspec.field(name="is_potentially_hazardous_asteroid", default=False)
    close_approach_data: list[_Approach] = []


class _Feed(Struct, frozen=True):
    near_earth_objects: dict[str, list[_Neo]]


class _GatewayError(Struct, frozen=True):
    code: str = ""
    message: str = ""


class _Failed(Struct, frozen=True):
    """Two shapes: the gateway's `error` object, and the service's own flat one."""

    error: _GatewayError | None = None
    error_message: str = ""
    msg: str = ""


def tools(knowledge: KnowledgeClient) -> list[Tool]:
    async def nasa_apod(date: str | None = None) -> ToolResult:
        return await picture(knowledge, date or None)

    async def nasa_neows(start_date: str | None = None, end_date: str | None = None) -> ToolResult:
        return await asteroids(knowledge, start_date or None, end_date or None)

    return [make_tool(knowledge, nasa_apod), make_tool(knowledge, nasa_neows)]


async def picture(knowledge: KnowledgeClient, wanted: str | None) -> ToolResult:
    day = None if wanted is None else _day(wanted, "date")
    today = _today(knowledge)
    if day is not None and not FIRST <= day <= today + timedelta(days=1):
        raise ToolError(f"date is {day}: pictures exist from {FIRST} to today, {today}")
    deadline = knowledge.deadline()
    try:
        found, answer = await knowledge.ask(
            _new_picture(knowledge, day), lambda a: _read_new(a, day), deadline=deadline
        )
    except causes.SourceError as first:
        try:
            found, answer = await knowledge.ask(
                _old_picture(knowledge, day), lambda a: _read_old(a, day), deadline=deadline
            )
        except causes.SourceError as second:
            raise causes.SourceError(
                f"{first} Its older service did not help: {second}", cause=first.cause
            ) from None
    page = found.permalink or f"https://apod.nasa.gov/apod/ap{_code(date.fromisoformat(found.date))}.html"
    return result("NASA, astronomy picture of the day", [_shown(found, page)], answer, most=5000)


def _new_picture(knowledge: KnowledgeClient, day: date | None) -> Request:
    base = f"{knowledge.base('nasa_science')}/wp-json/wp/v2/apod-basic"
    return Request(
        source="nasa_science",
        url=base if day is None else f"{base}/{_code(day)}",
        params={"per_page": "1"} if day is None else {},
        handles=frozenset({404}),
    )


def _old_picture(knowledge: KnowledgeClient, day: date | None) -> Request:
    return Request(
        source="nasa",
        url=f"{knowledge.base('nasa')}/planetary/apod",
        params={} if day is None else {"date": day.isoformat()},
        secret_params={"api_key": knowledge.key("nasa")},
        handles=frozenset({400, 403, 404}),
    )


def _read_new(answer: SourceResponse, day: date | None) -> _Picture:
    if answer.status == 404:
        raise causes.no_result(LABEL, f"picture of {day or 'today'}", "Try the day before.")
    if day is None:
        pictures = answer.json(list[_Picture], LABEL)
        if not pictures:
            raise causes.no_result(LABEL, "picture of today", "Give a date.")
        found = pictures[0]
    else:
        found = answer.json(_Picture, LABEL)
    found = msgspec.structs.replace(found, permalink=found.permalink or found.url, url=None)
    return _of_day(found, day)


def _read_old(answer: SourceResponse, day: date | None) -> _Picture:
    _fail(answer)
    found = answer.json(_Picture, LABEL)
    if "nasa-logo" in f"{found.url}{found.hdurl}":
        raise causes.down(LABEL, "the older service gives its logo instead of a picture", again=False)
    return _of_day(found, day)


def _of_day(found: _Picture, day: date | None) -> _Picture:
    """The picture, if it is that of the day asked for."""
    try:
        given = date.fromisoformat(found.date[:10])
    except ValueError:
        raise causes.down(LABEL, "a picture without a date", said=found.date, again=False) from None
    if day is not None and given != day:
        raise causes.down(LABEL, f"asked for {day}, it gave the picture of {given}", again=False)
    return msgspec.structs.replace(found, date=given.isoformat())


def _shown(found: _Picture, page: str) -> Item:
    text = plain(found.explanation or "").removeprefix("Explanation:").strip()
    text = re.split(r"Tomorrow['’]s picture", text)[0].strip()
    media = re.search(r'<(?:source|iframe|video)[^>]*\ssrc="([^"]+)"', found.basic_html or "")
    video = (title(media[1]) if media else found.url) if found.media_type == "video" else ""
    image = found.hdurl or (found.url if found.media_type == "image" else "")
    return Item(
        title=line(found.title),
        text=text,
        url=page,
        date=found.date,
        also=(image or "", video or ""),
        extra=facts(
            image=image,
            video=video,
            credit=line(found.copyright or found.credit or ""),
        ),
    )


async def asteroids(knowledge: KnowledgeClient, start: str | None, end: str | None) -> ToolResult:
    first = _today(knowledge) if start is None else _day(start, "start_date")
    last = first if end is None else _day(end, "end_date")
    if not 0 <= (last - first).days <= DAYS:
        raise ToolError(
            f"start_date is {first} and end_date is {last}: end_date must be 0 to {DAYS} days later. "
            "Ask for a longer time in several calls."
        )
    request = Request(
        source="nasa",
        url=f"{knowledge.base('nasa')}/neo/rest/v1/feed",
        params={"start_date": first.isoformat(), "end_date": last.isoformat()},
        secret_params={"api_key": knowledge.key("nasa")},
        handles=frozenset({400, 403}),
    )

    def parse(answer: SourceResponse) -> list[Item]:
        _fail(answer)
        found = objects(answer)
        if not found:
            raise causes.no_result(LABEL, f"asteroids from {first} to {last}", "Try other days.")
        return found

    items, answer = await knowledge.ask(request, parse)
    notes = [f"the {SHOWN} nearest of {len(items)} are shown."] if len(items) > SHOWN else []
    head = f"NASA, near-Earth objects from {first} to {last}: {len(items)}, the nearest first"
    return result(head, items[:SHOWN], answer, notes=notes)


def objects(answer: SourceResponse) -> list[Item]:
    feed = answer.json(_Feed, LABEL)
    found = [(_miss(neo), _neo(neo)) for day in feed.near_earth_objects.values() for neo in day]
    return [item for _, item in sorted(found, key=lambda pair: pair[0])]


def _miss(neo: _Neo) -> float:
    return min((_number(a.miss_distance.get("kilometers")) for a in neo.close_approach_data), default=1e18)


def _neo(neo: _Neo) -> Item:
    near = min(
        neo.close_approach_data,
        key=lambda a: _number(a.miss_distance.get("kilometers")),
        default=_Approach(),
    )
    size = neo.estimated_diameter.meters
    distance, moons = near.miss_distance.get("kilometers"), near.miss_distance.get("lunar")
    speed = near.relative_velocity.get("kilometers_per_second")
    return Item(
        title=neo.name,
        url=neo.nasa_jpl_url.replace("http://", "https://", 1) or None,
        date=near.close_approach_date_full or near.close_approach_date or None,
        extra=facts(
            misses_by=f"{_number(distance):,.0f} km ({_number(moons):.1f} lunar distances)"
            if distance
            else "",
            speed=f"{_number(speed):.1f} km/s" if speed else "",
            diameter=f"{size.low:,.0f} to {size.high:,.0f} m" if size.high else "",
            potentially_hazardous="yes" if neo.hazardous else "no",
        ),
    )


def _fail(answer: SourceResponse) -> None:
    """Raise what either shape of error says."""
    if answer.status < 400:
        return
    info = SOURCES["nasa"]
    failed = answer.json(_Failed, LABEL)
    if failed.error is not None and failed.error.code.startswith("API_KEY"):
        raise causes.key_rejected(LABEL, info.key, info.get_key)
    if failed.error is not None and failed.error.code == "OVER_RATE_LIMIT":
        raise causes.rate_limited(LABEL, answer.retry_after)
    said = failed.error.message if failed.error else failed.error_message or failed.msg
    raise causes.bad_query(LABEL, line(said), detail=f"status {answer.status}")


def _number(text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        return 1e18


def _today(knowledge: KnowledgeClient) -> date:
    return datetime.fromtimestamp(knowledge.wall(), UTC).date()


def _day(text: str, name: str) -> date:
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise ToolError(f"{name} is {text!r}: give a day as YYYY-MM-DD") from None


def _code(day: date) -> str:
    return day.strftime("%y%m%d")
