"""Tools that are made by the thousand, one for each tenant, never get anything of one another's.

Without `from __future__ import annotations`, so that a hint is the very type that stands in the factory.
"""

import dataclasses
import enum
import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic_core import core_schema

from retinue import Retinue, ToolContext, tool
from retinue.errors import ToolError
from retinue.tools import signatures
from retinue.tools.base import Tool, ToolResult
from retinue.workspace import Files
from retinue.workspace_folder import Workspace


@dataclasses.dataclass
class Made:
    """A tool, what a call with these arguments must return, and what must and must not stand in its schema."""

    tool: Tool
    arguments: dict[str, Any]
    returns: Any
    shows: dict[str, Any]
    refuses: dict[str, Any] | None = None


class Client:
    """Two of them look alike."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant

    def __repr__(self) -> str:
        return "<client>"


def keyword_only(tenant: str) -> Made:
    @tool
    async def lookup(query: str, *, tenant: str = tenant, deep: bool = False) -> Any:
        """Look it up."""
        return [tenant, query, deep]

    shows = {"tenant": {"type": "string", "default": tenant}}
    return Made(lookup, {"query": "q"}, [tenant, "q", False], shows)


def positional_default(tenant: str) -> Made:
    @tool
    def lookup(query: str = tenant, limit: int = len(tenant)) -> Any:
        return [query, limit]

    return Made(lookup, {}, [tenant, len(tenant)], {"query": {"type": "string", "default": tenant}})


def closure(tenant: str) -> Made:
    @tool
    async def lookup(query: str | None = None) -> Any:
        return [tenant, query]

    return Made(lookup, {}, [tenant, None], {})


def default_objects_that_look_alike(tenant: str) -> Made:
    client = Client(tenant)

    @tool
    async def lookup(query: str, *, client: Any = client) -> Any:
        return [client.tenant, query]

    return Made(lookup, {"query": "q"}, [tenant, "q"], {})


def docstring(tenant: str) -> Made:
    async def lookup(query: str) -> Any:
        return query

    lookup.__doc__ = f"Of {tenant}.\n\nArgs:\n    query: for {tenant}\n"
    made = tool(lookup)
    assert made.description == f"Of {tenant}."
    return Made(
        made, {"query": tenant}, tenant, {"query": {"type": "string", "description": f"for {tenant}"}}
    )


def local_class(tenant: str) -> Made:
    class City(BaseModel):
        name: Literal[tenant]  # pyright: ignore[reportInvalidTypeForm]
        people: int = Field(default=len(tenant), ge=len(tenant))

    @tool
    async def lookup(city: City) -> Any:
        assert type(city) is City
        return [city.name, city.people]

    arguments = {"city": {"name": tenant}}
    return Made(lookup, arguments, [tenant, len(tenant)], {}, refuses={"city": {"name": "nobody"}})


def local_enum(tenant: str) -> Made:
    Plan = enum.Enum("Plan", {"BEST": tenant})

    @tool
    async def lookup(plan: Plan = Plan.BEST) -> Any:
        assert isinstance(plan, Plan)
        return plan.value

    return Made(lookup, {"plan": tenant}, tenant, {}, refuses={"plan": "nobody"})


def local_dataclass(tenant: str) -> Made:
    @dataclasses.dataclass
    class Row:
        key: str
        owner: str = tenant

    @tool
    def lookup(rows: list[Row], more: dict[str, Row] | None = None) -> Any:
        return [[type(row) is Row, row.owner, row.key] for row in rows]

    return Made(lookup, {"rows": [{"key": "k"}]}, [[True, tenant, "k"]], {})


def literal(tenant: str) -> Made:
    Choice = Literal[tenant, 1]

    @tool
    async def lookup(choice: Choice) -> Any:  # pyright: ignore[reportInvalidTypeForm]
        return choice

    return Made(lookup, {"choice": tenant}, tenant, {}, refuses={"choice": "nobody"})


def annotated(tenant: str) -> Made:
    Long = Annotated[str, Field(min_length=len(tenant), description=f"for {tenant}")]

    @tool
    async def lookup(text: Long) -> Any:  # pyright: ignore[reportInvalidTypeForm]
        return text

    return Made(lookup, {"text": tenant}, tenant, {}, refuses={"text": tenant[:-1]})


def of_whom(tenant: str, query: str, limit: int = 3) -> Any:
    """Look up.

    Args:
        query: what
    """
    return [tenant, query, limit]


def bound_by_position(tenant: str) -> Made:
    made = tool(name="lookup")(functools.partial(of_whom, tenant))
    return Made(made, {"query": "q"}, [tenant, "q", 3], {"query": {"type": "string", "description": "what"}})


def bound_by_name(tenant: str) -> Made:
    made = tool(name="lookup")(functools.partial(of_whom, tenant=tenant, limit=len(tenant)))
    return Made(
        made, {"query": "q"}, [tenant, "q", len(tenant)], {}, refuses={"query": "q", "tenant": "other"}
    )


def bound_twice(tenant: str) -> Made:
    inner = functools.update_wrapper(functools.partial(of_whom, tenant=tenant), of_whom)
    made = tool(name="lookup")(functools.partial(inner, limit=5))
    return Made(made, {"query": "q"}, [tenant, "q", 5], {}, refuses={"query": "q", "tenant": "other"})


def bound_and_wrapped(tenant: str) -> Made:
    inner = functools.update_wrapper(functools.partial(of_whom, tenant), of_whom)

    @functools.wraps(inner)
    def traced(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    made = tool(name="lookup")(traced)
    return Made(made, {"query": "q"}, [tenant, "q", 3], {}, refuses={"query": "q", "tenant": "other"})


class Tenant:
    """One customer."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def lookup(self, query: str) -> Any:
        """Look it up."""
        return [self.name, query]

    def __call__(self, query: str, limit: int = 2) -> Any:
        """Look it up by calling."""
        return [self.name, query, limit]


class Waiting(Tenant):
    async def __call__(self, query: str, ctx: ToolContext) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return [self.name, query, ctx.agent]


def method(tenant: str) -> Made:
    return Made(tool(Tenant(tenant).lookup), {"query": "q"}, [tenant, "q"], {})


def callable_object(tenant: str) -> Made:
    made = tool(name="lookup")(Tenant(tenant))
    assert made.description == "Look it up by calling."
    return Made(made, {"query": "q"}, [tenant, "q", 2], {})


def async_callable_object(tenant: str) -> Made:
    made = tool(name="lookup")(Waiting(tenant))
    assert made.description == "Look it up by calling."
    return Made(made, {"query": "q"}, [tenant, "q", "general"], {})


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def wrapped(tenant: str) -> Made:
    @tool
    @logged
    @logged
    async def lookup(query: str, *, tenant: str = tenant) -> Any:
        return [tenant, query]

    return Made(lookup, {"query": "q"}, [tenant, "q"], {"tenant": {"type": "string", "default": tenant}})


def only_by_position(tenant: str) -> Made:
    @tool
    def lookup(ctx: ToolContext, query: str, /, limit: int, *, tenant: str = tenant) -> Any:
        return [tenant, query, limit, ctx.agent]

    return Made(lookup, {"query": "q", "limit": 1}, [tenant, "q", 1, "general"], {})


def written_out(tenant: str) -> Made:
    """Code made from text: the same line of the same file, another module each time."""
    around: dict[str, Any] = {"Any": Any, "TENANT": tenant}
    exec(
        "class City(str): ...\ndef lookup(city: 'City | str', owner: str = TENANT) -> Any: return [owner, city]",
        around,
    )
    around["City"] = Literal[tenant]
    exec("def narrow(city: 'City', owner: str = TENANT) -> Any: return [owner, city]", around)
    return Made(
        tool(name="lookup")(around["narrow"]), {"city": tenant}, [tenant, tenant], {}, {"city": "nobody"}
    )


FACTORIES: list[Callable[[str], Made]] = [
    keyword_only,
    positional_default,
    closure,
    default_objects_that_look_alike,
    docstring,
    local_class,
    local_enum,
    local_dataclass,
    literal,
    annotated,
    bound_by_position,
    bound_by_name,
    bound_twice,
    bound_and_wrapped,
    method,
    callable_object,
    async_callable_object,
    wrapped,
    only_by_position,
    written_out,
]


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return ToolContext(
        run_id="r1",
        root_id="r1",
        depth=0,
        agent="general",
        call_id="c1",
        files=Files(tmp_path, Workspace()),
        progress=lambda text: None,
        denied=lambda what, detail: None,
    )


async def result(made: Made, context: ToolContext) -> Any:
    returned = await made.tool.call(made.tool.parse(json.dumps(made.arguments)), context)
    text = returned.text if isinstance(returned, ToolResult) else returned
    return text if isinstance(made.returns, str) else json.loads(text)


@pytest.mark.filterwarnings("ignore:Default value")  # a client is no JSON, and pydantic says so
async def test_a_thousand_tools_of_as_many_tenants_keep_their_own(context: ToolContext) -> None:
    chance = random.Random(11)
    everybody = [
        (tenant, chance.choice(FACTORIES)(tenant))
        for tenant in (
            "".join(chance.choices("abcdef", k=chance.randint(4, 9))) + str(n) for n in range(1000)
        )
    ]
    chance.shuffle(everybody)
    for tenant, made in everybody:
        assert await result(made, context) == made.returns, tenant
        properties = made.tool.schema.get("properties", {})
        for name, shown in made.shows.items():
            assert properties[name] == shown
        assert set(made.arguments) <= set(properties)
        if made.refuses is not None:
            with pytest.raises(ToolError, match="invalid arguments for lookup"):
                made.tool.parse(json.dumps(made.refuses))
    others = {tenant for tenant, _ in everybody}
    for tenant, made in everybody:
        words = set(json.dumps(made.tool.schema).replace('"', " ").replace(".", " ").split())
        assert not words & (others - {tenant})


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.filterwarnings("ignore:Default value")
async def test_the_second_tool_of_a_factory_has_nothing_of_the_first(
    factory: Callable[[str], Made], context: ToolContext
) -> None:
    first, second = factory("first-tenant"), factory("second-one")
    assert await result(second, context) == second.returns
    assert await result(first, context) == first.returns
    assert "first-tenant" not in json.dumps(second.tool.schema)


def test_a_schema_that_is_changed_changes_no_other(context: ToolContext) -> None:
    first, second = closure("a").tool, closure("b").tool
    assert first.schema == second.schema
    first.schema["properties"]["query"]["description"] = "changed"
    first.schema["properties"]["more"] = {"type": "string"}
    assert "changed" not in json.dumps(second.schema)
    assert "changed" not in json.dumps(closure("c").tool.schema)


async def test_a_built_in_tool_that_one_app_changes_is_whole_in_the_next(tmp_path: Path) -> None:
    for _ in range(2):
        async with Retinue(db="memory:", model="offline", cwd=tmp_path, environ={}) as retinue:
            for each in retinue.tools.values():
                assert "changed" not in each.schema
                each.schema["changed"] = True


def test_a_default_that_can_be_changed_is_fresh_in_every_call() -> None:
    @tool
    async def lookup(tags: list[str] = []) -> Any:  # noqa: B006  what people write
        return tags

    lookup.parse("{}")["tags"].append("mine")
    assert lookup.parse("{}") == {"tags": []}


@pytest.mark.parametrize("value", [0, False, 0.0, -0.0, "", None])
def test_defaults_that_are_equal_and_not_the_same_stay_apart(value: Any) -> None:
    for other in (0, False, 0.0, -0.0, "", None, value):

        @tool
        async def lookup(size: Any = other) -> Any:
            return size

        found = lookup.parse("{}")["size"]
        assert (type(found), repr(found)) == (type(other), repr(other))
        shown = lookup.schema["properties"]["size"]["default"]
        assert (type(shown), repr(shown)) == (type(other), repr(other))


def test_a_default_is_the_functions_own_and_what_is_given_wins() -> None:
    made = keyword_only("t").tool
    assert made.parse('{"query": "q", "deep": true}') == {"query": "q", "tenant": "t", "deep": True}
    assert made.parse('{"query": "q", "tenant": "other"}')["tenant"] == "other"


def test_equal_signatures_are_made_once_and_classes_are_told_apart_by_themselves() -> None:
    signatures._remembered.cache_clear()
    for number in range(50):
        keyword_only(f"t{number}")
        closure(f"t{number}")
    assert signatures._remembered.cache_info().misses == 2

    class Odd(type):
        """Classes that all claim to be one."""

        def __eq__(cls, other: object) -> bool:
            return True

        def __hash__(cls) -> int:
            return 1

    def make(tenant: str) -> Tool:
        class City(metaclass=Odd):
            @classmethod
            def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
                return core_schema.literal_schema([tenant])

        @tool
        def lookup(city: City) -> str:
            return tenant

        return lookup

    assert make("a").parse('{"city": "a"}') == {"city": "a"}
    assert make("b").parse('{"city": "b"}') == {"city": "b"}


def test_what_no_model_could_fill_in_is_refused_with_the_reason() -> None:
    def some(*words: str) -> str:
        return "x"

    def more(**words: str) -> str:
        return "x"

    def unknown(city: "Nowhere") -> str:  # pyright: ignore[reportUndefinedVariable]  # noqa: F821
        return "x"

    for function, says in ((some, "a model names"), (more, "a model names"), (unknown, "cannot be resolved")):
        with pytest.raises(TypeError, match=f"{function.__name__}: .*{says}"):
            tool(function)


def test_a_hint_in_quotes_is_found_in_what_the_function_closes_over() -> None:
    class City(BaseModel):
        name: str

    @tool
    async def lookup(city: "City") -> str:
        return City.__name__ + city.name

    assert lookup.parse('{"city": {"name": "Paris"}}')["city"] == City(name="Paris")
