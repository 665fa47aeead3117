"""Markdown that arrives in pieces is handed on block by block, and nothing of it is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retinue.cli.chat.blocks import Blocks
from retinue.cli.chat.pasting import Pastes

WHOLE = "# Title\n\nA paragraph\nof two lines.\n\n- one\n\n  more of one\n- two\n\n```python\nx = 1\n\ny = 2\n```\nend"


def _fed(pieces: list[str]) -> list[str]:
    blocks = Blocks()
    found = [block for piece in pieces for block in blocks.feed(piece)]
    return [*found, *blocks.end()]


def test_blocks_close_at_gaps_and_fences_keep_theirs() -> None:
    assert _fed([WHOLE]) == [
        "# Title",
        "A paragraph\nof two lines.",
        "- one\n\n  more of one\n- two",
        "```python\nx = 1\n\ny = 2\n```",
        "end",
    ]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=80))
def test_it_does_not_matter_how_the_text_is_cut(sizes: list[int]) -> None:
    pieces, rest = list[str](), WHOLE
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    assert _fed([*pieces, rest]) == _fed([WHOLE])


@given(st.text(alphabet="ab \n`~#-", max_size=200))
def test_every_word_comes_out_once_and_in_order(text: str) -> None:
    assert "".join("".join(_fed(list(text))).split()) == "".join(text.split())


def test_what_is_open_is_the_rest() -> None:
    blocks = Blocks()
    assert blocks.feed("one\n\ntwo") == []  # what comes next may belong to it
    assert blocks.feed(" is long\n") == ["one"]
    assert blocks.rest == "two is long"


def test_a_long_paste_is_one_word_until_it_is_sent() -> None:
    pastes = Pastes()
    text = "\n".join(f"line {number}" for number in range(50))
    folded = pastes.folded(text)
    assert "\n" not in folded
    assert pastes.unfolded(f"look: {folded} and [pasted text 9: 3 lines]") == (
        f"look: {text} and [pasted text 9: 3 lines]"
    )
    assert pastes.folded("short\nenough") == "short\nenough"
