"""What a program's own functions may be and give back, as tools and as types of a report."""

from __future__ import annotations

import dataclasses
import threading
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import AfterValidator, BaseModel, Field
from typing_extensions import TypedDict

from retinue import AgentSpec, Retinue, RunError, ToolContext, ToolResult, tool
from retinue.errors import ConfigError
from retinue.events import ToolReturned
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call
from retinue.tools.base import tool_from_schema
from trees import Stage


class City(BaseModel):
    name: str
    people: int = Field(ge=0)


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Pair(TypedDict):
    left: str
    right: str


class Row(msgspec.Struct):
    id: int


def agent(**fields: Any) -> AgentSpec:
    return AgentSpec(name="guide", description="answers", prompt="You are a guide.", **fields)


async def returned(function: Any, folder: Path) -> ToolReturned:
    """What the model reads of one call of a function, in a run that goes on to its end."""
    store = MemoryStore()
    model = ScriptedModel([call("function"), "done"])
    async with Retinue(model=model, db=store, cwd=folder, environ={}, tools=[function]) as retinue:
        report = await retinue.run(agent(), "go")
        assert (report.status, report.text) == ("completed", "done")
        return next(e for e in await store.events(report.run_id) if isinstance(e, ToolReturned))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (ToolResult(text="more"), "more"),
        (None, "done; it returned nothing"),
        (7, "7"),
        (True, "true"),
        ([1, "b"], '[1,"b"]'),
        ({"n": 1, "when": date(2026, 1, 2)}, '{"n":1,"when":"2026-01-02"}'),
        (City(name="Paris", people=2), '{"name":"Paris","people":2}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        ([Row(id=3)], '[{"id":3}]'),
    ],
)
async def test_what_a_tool_returns_is_read_as_text_or_json(value: Any, text: str, tmp_path: Path) -> None:
    @tool
    async def function() -> Any:
        return value

    result = await returned(function, tmp_path)
    assert (result.text, result.is_error) == (text, False)


async def test_a_value_that_cannot_be_shown_is_a_failed_call_and_not_the_end_of_the_run(
    tmp_path: Path,
) -> None:
    @tool
    async def function() -> Any:
        return object()

    result = await returned(function, tmp_path)
    assert result.is_error
    assert "what it returned (object) cannot be shown" in result.text


async def test_a_tool_made_by_hand_may_return_anything_too(tmp_path: Path) -> None:
    async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        return {"n": 1}

    made = tool_from_schema(
        name="function", description="", schema={"type": "object"}, effect="read", call=call
    )
    assert (await returned(made, tmp_path)).text == '{"n":1}'


async def test_a_value_that_holds_itself_is_a_failed_call_too(tmp_path: Path) -> None:
    @tool
    async def function() -> Any:
        value: list[Any] = []
        value.append(value)
        return value

    assert (await returned(function, tmp_path)).is_error


async def test_a_function_that_is_not_async_runs_in_a_thread(tmp_path: Path) -> None:
    @tool
    def function() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert (await returned(function, tmp_path)).text == "false"


async def test_a_plain_function_is_made_a_tool_with_its_context_handed_in(tmp_path: Path) -> None:
    def function(ctx: ToolContext) -> dict[str, str]:
        """Say whose call this is."""
        return {"agent": ctx.agent}

    assert (await returned(function, tmp_path)).text == '{"agent":"guide"}'


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda: "x", "needs a name to be a tool"),
        ("grep", "'grep' is no tool"),
        (City, "is no tool"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_the_reason(given: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Retinue(tools=[given], environ={})


def test_a_parameter_without_a_type_is_refused_by_name() -> None:
    def function(city) -> str:  # the mistake itself
        return city

    with pytest.raises(TypeError, match="parameter 'city' needs a type hint"):
        Retinue(tools=[function], environ={})


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (City, '{"name": "Paris", "people": 2}', '{"name": "Paris", "people": -2}'),
        (Point, '{"x": 1, "y": 2}', '{"x": 1}'),
        (Pair, '{"left": "a", "right": "b"}', '{"left": 1, "right": "b"}'),
    ],
)
async def test_a_type_as_output_schema_is_checked_and_comes_back_as_an_object(
    kind: Any, right: str, wrong: str, tmp_path: Path
) -> None:
    model = ScriptedModel([wrong, right])
    async with Retinue(model=model, db=MemoryStore(), cwd=tmp_path, environ={}) as retinue:
        report = await retinue.run(agent(tools=(), output_schema=kind), "go")
    assert len(model.requests) == 2, "the first answer does not fit and is asked for again"
    assert report.data == msgspec.json.decode(right)
    made = report.data_as(kind)
    assert made == (report.data if kind is Pair else kind(**report.data))


async def test_an_answer_that_never_fitted_is_named_by_who_wants_it_as_an_object(tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: "no JSON")
    async with Retinue(model=model, db=MemoryStore(), cwd=tmp_path, environ={}) as retinue:
        report = await retinue.run(agent(tools=(), output_schema=City), "go")
    with pytest.raises(
        ValueError, match=r"gave no data: .* does not fit the required JSON schema: it is not"
    ):
        report.data_as(City)


def test_a_type_without_a_schema_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="no JSON schema can be made of"):
        agent(output_schema=threading.Thread)


def test_run_sync_opens_runs_and_closes(tmp_path: Path) -> None:
    retinue = Retinue(model=ScriptedModel(["done"]), db="memory:", cwd=tmp_path, environ={})
    assert retinue.run_sync(agent(tools=()), "go").text == "done"


async def test_run_sync_inside_a_loop_says_what_to_do_instead(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="await retinue"):
        Retinue(model="offline", db="memory:", cwd=tmp_path, environ={}).run_sync("general", "go")


def test_a_wrong_setting_is_named_without_a_flag_that_nobody_gave(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Retinue(settings={"limits.max_cots": 1}, cwd=tmp_path, environ={})
    assert str(caught.value) == "unknown setting 'limits.max_cots' (did you mean 'limits.max_cost'?)"


def test_a_wrong_value_of_the_environment_is_blamed_on_its_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^RETINUE_LIMITS_MAX_TURNS: limits\.max_turns = "):
        Retinue(cwd=tmp_path, environ={"RETINUE_LIMITS_MAX_TURNS": "many"})


def test_a_variable_that_is_no_setting_is_told(tmp_path: Path) -> None:
    loaded = Retinue(
        model="offline", cwd=tmp_path, environ={"RETINUE_MODLE": "offline", "RETINUE_DEBUG": "1"}
    ).loaded
    assert loaded.warnings == (
        "RETINUE_MODLE in the environment is no setting and does nothing; did you mean 'RETINUE_MODEL'?",
    )


async def test_a_root_that_can_hand_on_none_of_an_agents_tools_is_told_so(tmp_path: Path) -> None:
    """Else the agent it names would just not be there, and nobody would know why."""

    @tool(effect="read")
    async def population(city: str) -> str:
        """How many people live in a city."""
        return f"{city}: many"

    clerk = AgentSpec(name="clerk", description="d", prompt="You are the clerk.", tools=("population",))
    boss = AgentSpec(name="boss", description="d", prompt="You are the boss.", tools=("clerk",))
    model = ScriptedModel(["never asked"])
    async with Retinue(
        model=model, db="memory:", cwd=tmp_path, environ={}, tools=[population], agents=[boss, clerk]
    ) as retinue:
        with pytest.raises(ConfigError) as error:
            await retinue.run("boss", "how many?")
        assert not await retinue.runs()
    assert "boss names the agent clerk, which works with population, and holds none of that" in str(
        error.value
    )
    assert "add population to the tools of boss" in str(error.value)


def known(word: str) -> str:
    if word != "plain":
        raise ValueError(f"{word!r} is not one of plain")
    return word


async def test_what_a_check_of_the_author_says_is_told_as_it_was_written() -> None:
    @tool
    def paint(style: Annotated[str, AfterValidator(known)]) -> str:
        """Paint."""
        return style

    stage = Stage({"root": [[("paint", {"style": "weird"})], "done"]}, tools=[paint])
    await stage.run()
    said = [e.text for e in await stage.log() if isinstance(e, ToolReturned)]
    assert "style: 'weird' is not one of plain" in said[0]
    assert "Value error" not in said[0]
