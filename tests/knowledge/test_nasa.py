"""NASA: a picture from the new service, the old one as fallback; asteroids without the caller's key."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from retinue.errors import ToolError
from retinue.tools.knowledge.causes import SourceError

from .wiring import Clock, Reply, Wire, World

Make = Callable[..., World]
NEW, OLD, FEED = "/nasa_science/wp-json/wp/v2/apod-basic", "/nasa/planetary/apod", "/nasa/neo/rest/v1/feed"
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
KEY = {"NASA_API_KEY": "nasa-key-1234567"}


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


def picture(day: str, **more: Any) -> dict[str, Any]:
    return {
        "date": day,
        "title": "A Ring &amp; a Moon",
        "explanation": "<p><b>Explanation: </b>What <a href='x'>ring</a> is this?</p>\n<p>Tomorrow's picture: x</p>",
        "media_type": "image",
        "url": "https://science.nasa.gov/image-article/apod-ring/",
        "permalink": "https://science.nasa.gov/image-article/apod-ring/",
        "hdurl": "https://assets.science.nasa.gov/ring.png?w=4000",
        "credit": "<a href='y'>Ada L.</a>",
        "copyright": None,
        "service_version": "v1",
        **more,
    }


def old(day: str, **more: Any) -> dict[str, Any]:
    return {
        "date": day,
        "title": "An Old Ring",
        "explanation": "Plain words.",
        "media_type": "image",
        "url": "https://apod.nasa.gov/apod/image/2306/r_960.jpg",
        "hdurl": "https://apod.nasa.gov/apod/image/2306/r_2599.jpg",
        "copyright": "\nBo\n",
        **more,
    }


async def test_a_day_is_asked_for_by_its_code_without_a_key(world: Make, wire: Wire, clock: Clock) -> None:
    wire.on(NEW + "/150603", Reply(picture("2015-06-03")))
    result = await world(clock=clock, environ=KEY).ask("nasa_apod", date="2015-06-03")
    assert wire.seen[0].query == {}
    assert (
        "[1] A Ring & a Moon (2015-06-03)\nhttps://science.nasa.gov/image-article/apod-ring/" in result.text
    )
    assert "image: https://assets.science.nasa.gov/ring.png?w=4000" in result.text  # `url` is the article
    assert "credit: Ada L." in result.text
    assert "credit: Ada L.\nWhat ring is this?\n[lookup results" in result.text
    assert result.sources[0].url == "https://science.nasa.gov/image-article/apod-ring/"
    assert result.sources[0].aliases == ("https://assets.science.nasa.gov/ring.png?w=4000",)


async def test_the_newest_is_the_first_of_the_list(world: Make, wire: Wire, clock: Clock) -> None:
    wire.on(NEW, Reply([picture("2026-11-16")]))
    assert "(2026-11-16)" in (await world(clock=clock).ask("nasa_apod")).text
    assert wire.seen[0].query == {"per_page": "1"}


@pytest.mark.parametrize(
    "trouble", [Reply({"code": "rest_no_route"}, status=404), Reply(status=403), Reply(picture("2026-11-15"))]
)
async def test_the_old_service_is_the_fallback(world: Make, wire: Wire, clock: Clock, trouble: Reply) -> None:
    wire.on(NEW + "/230612", trouble)
    wire.on(OLD, Reply(old("2023-06-12")))
    result = await world(clock=clock).ask("nasa_apod", date="2023-06-12")
    assert wire.seen[-1].query == {"date": "2023-06-12", "api_key": "DEMO_KEY"}
    assert "[1] An Old Ring (2023-06-12)\nhttps://apod.nasa.gov/apod/ap230612.html" in result.text
    assert "image: https://apod.nasa.gov/apod/image/2306/r_2599.jpg\ncredit: Bo" in result.text


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (old("2026-11-16"), "asked for 2023-06-12, it gave the picture of 2026-11-16"),
        (old("2023-06-12", url="https://x/nasa-logo.png", hdurl=None), "its logo instead of a picture"),
        (old(""), "a picture without a date"),
    ],
)
async def test_a_picture_of_another_day_or_a_logo_is_not_passed_on(
    world: Make, wire: Wire, clock: Clock, answer: dict[str, Any], reason: str
) -> None:
    wire.on(NEW + "/230612", Reply(status=404))
    wire.on(OLD, Reply(answer))
    with pytest.raises(SourceError, match=f"has nothing for 'picture of 2023-06-12'.*{reason}"):
        await world(clock=clock).ask("nasa_apod", date="2023-06-12")


async def test_a_video_gives_the_film_and_its_still(world: Make, wire: Wire, clock: Clock) -> None:
    html = '<video><source src="https://assets/x.mp4?a=1&amp;b=2" type="video/mp4"></video>'
    wire.on(NEW + "/260901", Reply(picture("2026-09-01", media_type="video", basic_html=html)))
    result = await world(clock=clock).ask("nasa_apod", date="2026-09-01")
    assert (
        "image: https://assets.science.nasa.gov/ring.png?w=4000\nvideo: https://assets/x.mp4?a=1&b=2"
        in result.text
    )


@pytest.mark.parametrize("date", ["yesterday", "2026-13-01", "12.06.2023", "1995-06-15", "2027-01-01"])
async def test_an_impossible_day_is_not_sent(world: Make, wire: Wire, clock: Clock, date: str) -> None:
    with pytest.raises(ToolError, match="date is"):
        await world(clock=clock).ask("nasa_apod", date=date)
    assert wire.seen == []


def neo(name: str, kilometers: str, **more: Any) -> dict[str, Any]:
    return {
        "links": {"self": "http://api.nasa.gov/neo/rest/v1/neo/1?api_key=nasa-key-1234567"},
        "id": "1",
        "name": name,
        "nasa_jpl_url": "http://ssd.jpl.nasa.gov/tools/sbdb_lookup.html#/?sstr=1",
        "estimated_diameter": {"meters": {"estimated_diameter_min": 110.4, "estimated_diameter_max": 246.9}},
        "is_potentially_hazardous_asteroid": True,
        "close_approach_data": [
            {
                "close_approach_date": "2026-11-16",
                "close_approach_date_full": "2026-Nov-16 03:04",
                "relative_velocity": {"kilometers_per_second": "12.3456"},
                "miss_distance": {"kilometers": kilometers, "lunar": "11.93"},
                "orbiting_body": "Earth",
            }
        ],
        **more,
    }


async def test_asteroids_are_listed_nearest_first_and_without_the_key(
    world: Make, wire: Wire, clock: Clock
) -> None:
    days = {"2026-11-17": [neo("(2026 AB)", "9000000.7")], "2026-11-16": [neo("(2020 CD)", "4586000.2")]}
    links = {"self": "http://api.nasa.gov/neo/rest/v1/feed?api_key=nasa-key-1234567"}
    wire.on(FEED, Reply({"links": links, "element_count": 2, "near_earth_objects": days}))
    result = await world(clock=clock, environ=KEY).ask(
        "nasa_neows", start_date="2026-11-16", end_date="2026-11-17"
    )
    assert wire.seen[0].query == {
        "start_date": "2026-11-16",
        "end_date": "2026-11-17",
        "api_key": "nasa-key-1234567",
    }
    assert result.text.index("2020 CD") < result.text.index("2026 AB")
    assert (
        "misses by: 4,586,000 km (11.9 lunar distances)\nspeed: 12.3 km/s\ndiameter: 110 to 247 m"
        in result.text
    )
    assert "potentially hazardous: yes" in result.text
    assert "nasa-key" not in repr(result)
    assert "api_key" not in result.text


async def test_broken_numbers_do_not_break_the_list(world: Make, wire: Wire, clock: Clock) -> None:
    days = {"2026-11-16": [neo("odd", "n/a"), neo("bare", "1", close_approach_data=[])]}
    wire.on(FEED, Reply({"near_earth_objects": days}))
    assert "odd" in (await world(clock=clock).ask("nasa_neows", start_date="2026-11-16")).text


@pytest.mark.parametrize(
    ("start", "end"), [("2026-11-01", "2026-11-09"), ("2026-11-02", "2026-11-01"), ("x", None)]
)
async def test_more_than_seven_days_are_not_sent(
    world: Make, wire: Wire, start: str, end: str | None
) -> None:
    with pytest.raises(ToolError, match=r"at most|0 to 7 days|YYYY-MM-DD"):
        await world().ask("nasa_neows", start_date=start, end_date=end)
    assert wire.seen == []


async def test_both_shapes_of_error_are_read(world: Make, wire: Wire) -> None:
    flat = {
        "code": 400,
        "http_error": "BAD_REQUEST",
        "error_message": "Date Format Exception - Expected format (yyyy-mm-dd)",
        "request": "http://api.nasa.gov/neo/rest/v1/feed?api_key=nasa-key-1234567",
    }
    wire.on(FEED, Reply(flat, status=400))
    with pytest.raises(SourceError, match="Date Format Exception") as caught:
        await world(environ=KEY).ask("nasa_neows", start_date="2026-11-01")
    assert caught.value.cause == "bad_query"
    assert "nasa-key" not in str(caught.value)
    nested = {"error": {"code": "API_KEY_INVALID", "message": "An invalid api_key was supplied."}}
    wire.on(FEED, Reply(nested, status=403))
    with pytest.raises(SourceError, match="rejected the key in NASA_API_KEY"):
        await world(environ=KEY).ask("nasa_neows", start_date="2026-11-01")


async def test_the_heroku_page_of_a_sleeping_service_is_down(world: Make, wire: Wire) -> None:
    wire.on(
        FEED,
        Reply("<html><head><title>Application Error</title></head></html>", status=503, type="text/html"),
    )
    with pytest.raises(SourceError, match=r"NASA is not working now \(status 503") as caught:
        await world().ask("nasa_neows", start_date="2026-11-01")
    assert caught.value.cause == "down"
