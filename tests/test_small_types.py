"""Small types that everything is written in, and the rules that are theirs alone."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue.engine.parking_clock import ParkingClock
from retinue.types import FileState, Image, ModelSettings, Shortfall, Usage, worst
from retinue.types.durations import seconds_of
from retinue.types.outcomes import ended_as

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 9


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90", 90),
        ("30s", 30),
        ("10m", 600),
        (" 2 Min ", 120),
        ("2h", 7200),
        ("1.5h", 5400),
        ("7d", 604_800),
        ("1W", 604_800),
        ("999999999", 999_999_999),
        ("0.001", 0.001),
    ],
)
def test_a_duration_is_read_as_people_write_it(written: str, seconds: float) -> None:
    assert seconds_of(written, "timeout") == seconds


@pytest.mark.parametrize("written", ["", "0", "0.0s", "-1", "5x", "s", "1 2", "1000000000", "1e3", "5 m s"])
def test_what_is_no_duration_is_told_with_what_it_is_for(written: str) -> None:
    with pytest.raises(ValueError, match=r"the pause .* cannot be understood"):
        seconds_of(written, "the pause")


@pytest.mark.parametrize(
    ("other", "like"),
    [
        ({}, True),
        ({"mode": None}, True),
        ({"mode": 0o755}, False),
        ({"sha256": "b"}, False),
        ({"kind": "link"}, False),
        ({"size": 9, "kept": False}, True),
    ],
)
def test_the_same_lies_at_a_path_by_its_kind_what_it_holds_and_its_mode(
    other: dict[str, Any], like: bool
) -> None:
    state = FileState(kind="file", mode=0o644, size=1, sha256="a")
    changed = msgspec.structs.replace(state, **other)
    assert (state.is_like(changed), changed.is_like(state)) == (like, like)


FIELDS = Shortfall.__struct_fields__


def test_what_runs_lack_is_added_and_taken_off_field_by_field() -> None:
    one = Shortfall(**{name: 10 * at for at, name in enumerate(FIELDS, 1)})
    two = Shortfall(**{name: at for at, name in enumerate(FIELDS, 1)})
    assert one + two == Shortfall(**{name: 11 * at for at, name in enumerate(FIELDS, 1)})
    assert one - two == Shortfall(**{name: 9 * at for at, name in enumerate(FIELDS, 1)})


@pytest.mark.parametrize(
    ("lacks", "outcome"),
    [
        ({}, "completed"),
        ({"denied": 1}, "completed"),
        ({"incomplete": 1}, "incomplete"),
        ({"failed": 1}, "incomplete"),
        ({"not_started": 1}, "incomplete"),
        ({"refused": 1, "failed": 1}, "refused"),
        ({"rejected": 1, "refused": 1}, "rejected"),
    ],
)
def test_how_something_ended_is_the_worst_that_it_lacks(lacks: dict[str, int], outcome: str) -> None:
    assert ended_as("completed", Shortfall(**lacks)) == outcome
    assert ended_as("error", Shortfall(**lacks)) == "error"
    assert ended_as("cancelled", Shortfall(**lacks)) == "cancelled"
    assert ended_as("completed", Shortfall(**lacks), "refusal") == "refused"
    assert ended_as("error", Shortfall(**lacks), "refusal") == "refused"


def test_of_several_that_have_ended_the_worst_counts() -> None:
    ranked: list[Any] = ["error", "cancelled", "rejected", "refused", "incomplete", "completed"]
    for one, other in itertools.combinations(ranked, 2):
        assert worst([other, one]) == worst([one, other]) == one
    assert worst([]) == "completed"


def test_what_was_used_since_is_told_apart_and_an_unknown_price_stays_unknown() -> None:
    early = Usage(input_tokens=10, output_tokens=2, cached_tokens=4, cost=0.5)
    late = Usage(input_tokens=17, output_tokens=5, cached_tokens=6, cost=0.75)
    since = Usage(input_tokens=7, output_tokens=3, cached_tokens=2, cost=0.25)
    assert late - early == since
    assert early + since == late
    assert (late.total_tokens, late.to_dict()["total_tokens"]) == (22, 22)
    unknown = msgspec.structs.replace(late, cost=None)
    assert [each.cost for each in (unknown - early, late - unknown, unknown + early, early + unknown)] == [
        None
    ] * 4


def test_a_picture_comes_from_bytes_a_file_or_an_address_and_has_one(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    image = Image.from_bytes(PNG)
    assert (image.media_type, image.size) == ("image/png", len(PNG))
    assert Image.from_path(tmp_path / "a.png") == image
    assert image.address.startswith("data:image/png;base64,")
    assert Image.from_address(image.address) == image
    away = Image.from_url("https://a.test/x.png")
    assert (away.address, away.size) == ("https://a.test/x.png", 0)
    assert Image.from_address(away.address) == away
    assert away.checked() is away


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Image.from_bytes(b"text"), "no picture"),
        (lambda: Image.from_bytes(PNG + b"\0" * 3_750_000), "at most"),
        (lambda: Image.from_url("file:///etc/passwd"), "no address of the web"),
        (lambda: Image(media_type="image/png", data="AAAA", url="https://a.test"), "data or a url"),
        (Image, "data or a url"),
        (lambda: Image(data="AAAA"), "media_type"),
        (lambda: Image(media_type="image/tiff", data="AAAA").checked(), "is none of image/png"),
        (lambda: Image(media_type="image/png", data="A" * 5_000_004).checked(), "at most"),
        (lambda: Image(media_type="image/png", data="A%%A").checked(), "not base64"),
    ],
)
def test_what_is_no_picture_that_models_take_says_why(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


def test_a_picture_of_the_most_bytes_is_taken() -> None:
    most = Image.from_bytes(PNG + b"\0" * (3_750_000 - len(PNG)))
    assert most.checked().size == 3_750_000


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [("temperature", 0, 2), ("top_p", 0, 1), ("max_tokens", 1, 10_000_000), ("timeout", 0.001, 86_400)],
)
def test_a_setting_of_a_model_is_taken_from_its_least_to_its_most(field: str, least: Any, most: Any) -> None:
    def made(value: float) -> Any:
        given: dict[str, Any] = {field: value}
        return getattr(ModelSettings(**given), field)

    for value in (least, most):
        assert made(value) == value
    step = 1 if isinstance(least, int) else 0.0005
    for value in (least - step, most + 1):
        with pytest.raises(ValueError, match=f"{field} is"):
            made(value)


@pytest.mark.parametrize(
    ("seconds", "most"), [(5.0, 1.0), (20.0, 1.0), (100.0, 5.0), (1200.0, 60.0), (90_000.0, 60.0)]
)
def test_who_waits_for_a_limit_comes_back_a_little_later_than_he_may(seconds: float, most: float) -> None:
    for spread in (0.0, 0.5, 1.0):
        clock = ParkingClock(now=lambda: 1000.0, spread=lambda spread=spread: spread)
        assert clock.until(seconds) == pytest.approx(1000.0 + seconds + most * spread)


async def test_the_time_of_day_is_looked_at_again_every_half_minute() -> None:
    now, naps = [0.0], list[float]()

    async def sleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += seconds

    clock = ParkingClock(now=lambda: now[0], sleep=sleep)
    await clock.wait(75.0)
    await clock.wait(75.0)
    await clock.wait(70.0)
    assert naps == [30.0, 30.0, 15.0]


def test_what_a_program_changes_later_in_what_it_gave_changes_no_settings() -> None:
    body, headers, stop = {"top_k": 1}, {"X-One": "a"}, ["end"]
    settings = ModelSettings(extra_body=body, extra_headers=headers, stop=stop)
    body["top_k"], headers["X-One"] = 2, "b"
    stop.append("more")
    assert (settings.extra_body, settings.headers.sent, settings.stop) == (
        {"top_k": 1},
        {"X-One": "a"},
        ("end",),
    )
