"""Conversations in the formats of OpenAI and Anthropic: there and back again."""

from __future__ import annotations

import json
import re
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, ConfigError, Image, Retinue
from retinue.errors import Unwritable
from retinue.histories import from_anthropic, from_openai, to_anthropic, to_openai
from retinue.testing import ScriptedModel
from retinue.types import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

PICTURE = Image(media_type="image/png", data="aGVsbG8=")
THERE = Image(url="https://pictures.example/bee.png")
TALK: tuple[Message, ...] = (
    UserMessage(text="What are these?", images=(PICTURE, THERE)),
    AssistantMessage(
        text="I look.",
        calls=(
            ToolCall(id="a", name="look", arguments='{"what": "bee"}'),
            ToolCall(id="b", name="look", arguments="{}"),
        ),
    ),
    ToolMessage(call_id="a", name="look", text="a bee"),
    ToolMessage(call_id="b", name="look", text="nothing"),
    AssistantMessage(text="A bee."),
    UserMessage(text="Thanks – 蜜蜂"),
)


@pytest.mark.parametrize(("out", "back"), [(to_openai, from_openai), (to_anthropic, from_anthropic)])
def test_a_conversation_with_calls_results_and_pictures_comes_back_as_it_was(out: Any, back: Any) -> None:
    exported = out(TALK)
    assert exported.left_out == ()
    history = back(exported.messages)
    assert history.messages == TALK
    assert history.left_out == ()


def test_anthropic_keeps_pictures_and_errors_of_results_and_openai_says_what_it_cannot() -> None:
    talk = (*TALK[:2], ToolMessage(call_id="a", name="look", text="x", images=(PICTURE,)), TALK[3])
    talk = (*talk[:3], ToolMessage(call_id="b", name="look", text="no", is_error=True), *TALK[4:])
    assert from_anthropic(to_anthropic(talk).messages).messages == talk
    exported = to_openai(talk)
    assert exported.left_out == (
        "that a result is an error",
        "pictures of results are in a user message after them",
    )
    back = from_openai(exported.messages).messages
    assert [type(each).__name__ for each in back] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "ToolMessage",
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
    ]


def test_the_system_prompt_is_told_apart() -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    assert (from_openai(messages).system, from_openai(messages).messages) == (
        "Be kind.",
        (UserMessage(text="Hi"),),
    )
    assert from_anthropic(messages[1:], system=[{"type": "text", "text": "Be kind."}]).system == "Be kind."
    assert to_openai([UserMessage(text="Hi")], system="Be kind.").messages == messages


def test_what_has_no_place_here_is_named() -> None:
    openai = from_openai(
        [
            {
                "role": "user",
                "content": [{"type": "input_audio", "input_audio": {}}, {"type": "text", "text": "?"}],
            },
            {"role": "assistant", "content": "no", "refusal": "I will not"},
            {"role": "tool", "tool_call_id": "gone", "content": "x"},
        ]
    )
    assert openai.left_out == (
        "a part of the type input_audio",
        "refusal of an answer",
        "a result of a call that is not there",
    )
    anthropic = from_anthropic(
        [
            {"role": "user", "content": [{"type": "document"}, {"type": "text", "text": "?"}]},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "!"}],
            },
        ]
    )
    assert anthropic.left_out == ("a block of the type document", "a block of the type thinking")
    with pytest.raises(ConfigError, match="message 0 of the history has the role 'function'"):
        from_openai([{"role": "function", "content": ""}])


@pytest.mark.parametrize("export", [to_openai, to_anthropic])
def test_a_call_that_was_cut_off_gets_a_result_that_says_so(export: Any) -> None:
    exported = export(TALK[:3])
    assert "given one that says so" in exported.left_out[0]
    assert "no result" in str(exported.messages[-1])


async def test_a_conversation_moves_here_and_on(tmp_path: Path) -> None:
    agent = AgentSpec(name="talker", description="talks", prompt="You talk.", tools=())
    model = ScriptedModel(["You are welcome."])
    async with Retinue(model=model, db="memory:", cwd=tmp_path, agents=[agent]) as retinue:
        chat = retinue.conversation("talker", history=from_openai(to_openai(TALK[:5]).messages))
        await chat.send("Thanks.")
        moved = to_anthropic(await chat.messages())
    assert model.requests[0].messages[:5] == TALK[:5]
    assert moved.messages[-1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "You are welcome."}],
    }
    assert moved.left_out == ()


@pytest.mark.parametrize("way", ["conversation", "start"])
async def test_a_history_that_is_not_of_messages_is_refused_with_what_to_write(
    tmp_path: Path, way: str
) -> None:
    history: Any = [{"role": "user", "content": "Hello."}]
    agent = AgentSpec(name="talker", description="talks", prompt="You talk.", tools=())
    async with Retinue(model=ScriptedModel(["Hi."]), db="memory:", cwd=tmp_path, agents=[agent]) as retinue:
        begin: Any = retinue.conversation if way == "conversation" else retinue.start
        begin = partial(begin, "talker") if way == "conversation" else partial(begin, "talker", "Hello.")
        with pytest.raises(TypeError, match=r"message 0 of the history is a dict: .*from_openai"):
            await begin(history=history)
        assert await retinue.runs() == []


async def test_a_run_that_could_not_be_read_back_is_not_begun(tmp_path: Path) -> None:
    wrong: Any = 7
    agent = AgentSpec(name="talker", description="talks", prompt="You talk.", tools=())
    async with Retinue(model=ScriptedModel(["Hi."]), db="memory:", cwd=tmp_path, agents=[agent]) as retinue:
        chat = retinue.conversation("talker", history=[UserMessage(text=wrong)])
        with pytest.raises(Unwritable):
            await chat.send("Hello.")
        assert await retinue.runs() == []


def asked(*calls: tuple[str, str, Any]) -> dict[str, Any]:
    listed = [{"id": id, "function": {"name": name, "arguments": given}} for id, name, given in calls]
    return {"role": "assistant", "content": None, "tool_calls": listed}


def test_two_calls_of_one_id_keep_their_two_results() -> None:
    history = from_openai(
        [
            asked(("c", "f", "{}"), ("c", "g", "{}"), ("c-2", "h", "{}")),
            {"role": "tool", "tool_call_id": "c", "content": "1"},
            {"role": "tool", "tool_call_id": "c", "content": "2"},
            {"role": "tool", "tool_call_id": "c-2", "content": "3"},
        ]
    )
    answer, *results = history.messages
    assert isinstance(answer, AssistantMessage)
    assert [(call.id, call.name) for call in answer.calls] == [("c", "f"), ("c-3", "g"), ("c-2", "h")]
    assert results == [
        ToolMessage(call_id="c", name="f", text="1"),
        ToolMessage(call_id="c-3", name="g", text="2"),
        ToolMessage(call_id="c-2", name="h", text="3"),
    ]
    assert history.left_out == ("a call with the id of another one was given its own",)


@pytest.mark.parametrize("given", [{"a": "ü"}, '{"a": "ü"}'])
def test_arguments_that_are_an_object_become_its_json(given: Any) -> None:
    answer = from_openai([asked(("c", "f", given))]).messages[0]
    assert isinstance(answer, AssistantMessage)
    assert answer.calls[0].arguments == '{"a": "ü"}'


@pytest.mark.parametrize("read", [from_openai, from_anthropic])
def test_plain_strings_among_the_parts_are_text_and_what_is_nothing_is_named(read: Any) -> None:
    history = read([{"role": "user", "content": ["one", {"type": "text", "text": "two"}, 3]}])
    assert history.messages == (UserMessage(text="one\n\ntwo"),)
    assert len(history.left_out) == 1
    assert "no object" in history.left_out[0]


ODD: tuple[Message, ...] = (
    AssistantMessage(
        text=" ",
        calls=(
            ToolCall(id="call_0.2.0", name="no such tool!", arguments="{oops"),
            ToolCall(id="call_0_2_0", name="look", arguments="[1]"),
            ToolCall(id="x" * 90, name="look", arguments='{"far": 1e999}'),
            ToolCall(id="", name="", arguments="\ud800"),
        ),
    ),
    ToolMessage(call_id="call_0.2.0", name="no such tool!", text="not JSON", is_error=True),
    ToolMessage(call_id="call_0_2_0", name="look", text="", images=(PICTURE,)),
    ToolMessage(call_id="x" * 90, name="look", text="far"),
    UserMessage(text=""),
    AssistantMessage(text="", calls=(ToolCall(id="call_0.2.0", name="look", arguments=" "),)),
    ToolMessage(call_id="call_0.2.0", name="look", text="again"),
    AssistantMessage(text=""),
)
"""What the log of a run may hold: calls that were refused, unreadable arguments, ids of ours, empty texts."""


def test_anthropic_is_given_an_odd_history_in_the_only_form_that_it_takes() -> None:
    exported = to_anthropic(ODD)
    assert [message["role"] for message in exported.messages[:2]] == ["user", "assistant"]
    assert all(one["role"] != two["role"] for one, two in pairwise(exported.messages))
    used = [b for m in exported.messages for b in m["content"] if b["type"] == "tool_use"]
    given = [b for m in exported.messages for b in m["content"] if b["type"] == "tool_result"]
    assert [b["id"] for b in used] == [b["tool_use_id"] for b in given]
    assert len({b["id"] for b in used}) == len(used)
    assert all(re.fullmatch("[a-zA-Z0-9_-]+", b["id"]) for b in used)
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", b["name"]) for b in used)
    assert [b["input"] for b in used] == [
        {"malformed": "{oops"},
        {"malformed": "[1]"},
        {"malformed": '{"far": 1e999}'},
        {"malformed": "?"},
        {},
    ]
    assert "a first message of the person was added" in exported.left_out
    assert to_anthropic(from_anthropic(exported.messages).messages).messages == exported.messages


def test_openai_is_given_the_arguments_of_every_call_as_json_of_an_object() -> None:
    exported = to_openai(ODD)
    calls = [call for message in exported.messages for call in message.get("tool_calls", ())]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [
        {"malformed": "{oops"},
        {"malformed": "[1]"},
        {"far": float("inf")},
        {"malformed": "?"},
        {},
    ]
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["function"]["name"]) for call in calls)
    assert all(0 < len(call["id"]) <= 40 for call in calls)
    results = [message["tool_call_id"] for message in exported.messages if message["role"] == "tool"]
    assert results == [call["id"] for call in calls]
    assert "arguments that are no object of JSON are in one" in str(exported.left_out)
    assert to_openai(from_openai(exported.messages).messages).messages == exported.messages


def test_a_first_message_is_added_where_an_answer_comes_first_and_nowhere_else() -> None:
    assert to_anthropic([]).messages == []
    begun = to_anthropic([AssistantMessage(text="Hello.")])
    assert [message["role"] for message in begun.messages] == ["user", "assistant"]
    assert to_anthropic(TALK).messages[0]["content"][-1] == {"type": "text", "text": "What are these?"}
