"""Pictures that tools return: gathered wherever they stand, bounded, and sound before they are logged."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from retinue import AgentSpec, Retinue, ToolResult, tool
from retinue.attachments import attach_image
from retinue.errors import ToolError
from retinue.events import ToolReturned
from retinue.histories import from_openai
from retinue.testing import ScriptedModel, call
from retinue.tools.base import as_text
from retinue.tools.picture_bounds import MOST_BYTES, MOST_SHOWN
from retinue.types import MAX_IMAGE, Image

PNG = b"\x89PNG\r\n\x1a\n" + bytes(30)
PICTURE = Image.from_bytes(PNG)
OTHER = Image.from_bytes(PNG + b"other")
LARGE = Image.from_bytes(PNG + bytes(3_000_000))
TOO_LARGE = base64.b64encode(PNG + bytes(MAX_IMAGE)).decode()


async def returned(value: object) -> ToolReturned:
    @tool
    def shots() -> Any:
        """Takes pictures."""
        return value

    looks = AgentSpec(name="looks", description="l", prompt="Look.", tools=[shots])
    model = ScriptedModel([call("shots"), "done"])
    async with Retinue(model=model, agents=[looks], db="memory:", environ={}) as retinue:
        report = await retinue.run("looks", "go")
        events = await retinue.store.events(report.run_id)
    (found,) = [each for each in events if isinstance(each, ToolReturned)]
    return found


@pytest.mark.parametrize(
    ("value", "text", "images"),
    [
        ([[PICTURE], OTHER], '["[picture 1]"]\n\n[2 pictures]', (PICTURE, OTHER)),
        ([[PICTURE]], '[["[picture 1]"]]\n\n[1 picture]', (PICTURE,)),
        ({"shot": PICTURE, "n": 1}, '{"shot":"[picture 1]","n":1}\n\n[1 picture]', (PICTURE,)),
        ([OTHER, {"shot": PICTURE}], '{"shot":"[picture 2]"}\n\n[2 pictures]', (OTHER, PICTURE)),
    ],
)
async def test_a_picture_is_one_wherever_it_stands_in_what_is_returned(
    value: object, text: str, images: tuple[Image, ...]
) -> None:
    found = await returned(value)
    assert (found.text, found.images) == (text, images)


def test_a_result_in_a_list_of_pictures_is_refused_and_not_emptied() -> None:
    with pytest.raises(ToolError, match="a ToolResult in a list"):
        as_text("shots", [ToolResult(text="x", images=(PICTURE,), is_error=True), OTHER])


@pytest.mark.parametrize(
    ("images", "kept", "says"),
    [
        ((PICTURE,) * (MOST_SHOWN + 2), MOST_SHOWN, f"[2 pictures are left out: a result shows {MOST_SHOWN}"),
        ((LARGE,) * 5, 3, f"[2 pictures are left out: those of a result have {MOST_BYTES:,} bytes"),
        ((Image(media_type="image/png", data="no base64!"), PICTURE), 1, "[1 picture is left out: the data"),
        ((Image(media_type="image/svg+xml", data="AAAA"),), 0, "'image/svg+xml' is none of image/png"),
        ((Image(media_type="image/png", data=TOO_LARGE),), 0, f"of {MAX_IMAGE:,} at most"),
    ],
)
async def test_what_is_too_much_or_no_picture_is_left_out_with_words(
    images: tuple[Image, ...], kept: int, says: str
) -> None:
    found = await returned(ToolResult(text="Here.", images=images))
    assert not found.is_error
    assert len(found.images) == kept
    assert found.text.startswith("Here.\n\n")
    assert says in found.text


async def test_images_that_are_none_are_an_error_that_says_so() -> None:
    odd: Any = ("a.png",)
    found = await returned(ToolResult(text="Here.", images=odd))
    assert found.is_error
    assert "its images are not Images" in found.text


@pytest.mark.parametrize("address", [f"data:image/png;base64,{TOO_LARGE}", "data:image/svg+xml;base64,AAAA"])
def test_a_picture_is_held_to_the_same_by_whichever_way_it_comes(address: str) -> None:
    kind, _, data = address.removeprefix("data:").partition(";base64,")
    with pytest.raises(ValueError, match=r"at most|is none of"):
        Image.from_address(address)
    with pytest.raises(ValueError, match=r"at most|is none of"):
        attach_image(Image(media_type=kind, data=data))
    shown = {"type": "image_url", "image_url": {"url": address}}
    history = from_openai([{"role": "user", "content": [{"type": "text", "text": "See."}, shown]}])
    assert "a picture that is too large" in history.left_out[0]
    assert not any(getattr(each, "images", ()) for each in history.messages)


def test_a_picture_may_have_as_many_bytes_as_is_said_and_not_one_more() -> None:
    largest = PNG + bytes(MAX_IMAGE - len(PNG))
    assert Image.from_bytes(largest).checked().size == MAX_IMAGE
    larger = base64.b64encode(largest + b"0").decode()
    with pytest.raises(ValueError, match="at most"):
        Image.from_bytes(largest + b"0")
    with pytest.raises(ValueError, match="at most"):
        Image(media_type="image/png", data=larger).checked()
