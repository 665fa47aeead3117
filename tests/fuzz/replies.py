"""The text protocol: any reply is read without an error, and what is shown early is how the answer begins."""

from __future__ import annotations

from itertools import pairwise

from fuzz.choices import Choices
from retinue.models.text_reading import MAX_OPERATIONS, AnswerFeed, read
from retinue.types import ToolSpec

SEEDS = (
    b'\x03\x05\x09\x0f<think>x</think><tool name="grep">{"pattern": "a", }</tool>',
    b"\x02\x04\x08<answer>it is so</answer> and <result>no</result>",
    b'\x00{"name": "grep", "arguments": {"pattern": "x"}}',
    b"\x01\x02<code>\nprint(1)\n</code>",
    b"\x01\x07&lt;tool_call&gt;{'name': 'grep'}</tool_call><function=grep><parameter=pattern>a</parameter>",
)
TOOLS = (
    ToolSpec(
        name="grep", description="", schema={"type": "object", "properties": {"pattern": {"type": "string"}}}
    ),
    ToolSpec(
        name="run_code", description="", schema={"type": "object", "properties": {"code": {"type": "string"}}}
    ),
)


def check(data: bytes) -> None:
    choices = Choices(data)
    cuts = sorted({choices.number(256) for _ in range(choices.number(8))})
    text = choices.rest().decode("utf-8", "replace")
    for tools in (TOOLS, ()):
        reading = read(text, tools)
        assert len(reading.operations) <= MAX_OPERATIONS
        assert tools or not reading.operations, "a call where no tool was offered"
        cut = read(text, tools, cut=True)
        assert all(one.closed for one in cut.operations), "half a call was made"
        shown = "".join(feed_in_pieces(text, cuts, tools))
        assert reading.text.startswith(shown.rstrip()) or not shown.strip(), (shown, reading.text)


def feed_in_pieces(text: str, cuts: list[int], tools: tuple[ToolSpec, ...]) -> list[str]:
    feed = AnswerFeed(tools)
    places = [0, *(cut for cut in cuts if 0 < cut < len(text)), len(text)]
    return [feed.add(text[a:b]) for a, b in pairwise(places)]
