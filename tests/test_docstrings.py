"""The front door explains itself: every public name, field and parameter has words that a reference can be made of."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

import retinue
import retinue.testing
from retinue import Retinue, Settings
from retinue.run_options import RunGiven

PUBLIC: dict[str, Any] = {
    **{f"retinue.{name}": getattr(retinue, name) for name in retinue.__all__ if name != "__version__"},
    **{f"retinue.testing.{name}": getattr(retinue.testing, name) for name in retinue.testing.__all__},
}
CLASSES = {name: each for name, each in PUBLIC.items() if isinstance(each, type)}
FUNCTIONS = {name: each for name, each in PUBLIC.items() if inspect.isfunction(each)}
ALIASES = {"retinue.ToolGiven", "retinue.testing.EvalCheck"}
"""Types that are written as an expression: their words stand below it."""


def tree_of(each: Any) -> ast.Module:
    return ast.parse(inspect.getsource(inspect.getmodule(each)))  # pyright: ignore[reportArgumentType] # of ours


def words_below(cls: type) -> dict[str, str]:
    """What is said of fields right below them, in a class and those it is made of."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if not each.__module__.startswith("retinue"):
            continue
        node = next(
            n for n in ast.walk(tree_of(each)) if isinstance(n, ast.ClassDef) and n.name == each.__name__
        )
        body = [*node.body, *(n for f in node.body if isinstance(f, ast.FunctionDef) for n in f.body)]
        for first, second in pairwise(body):
            said = second.value if isinstance(second, ast.Expr) else None
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                name = ast.unparse(first).partition(":")[0].partition(" =")[0].removeprefix("self.")
                found[name] = said.value
    return found


def text_of(each: Any) -> str:
    return inspect.getdoc(each) or ""


def said(name: str, *texts: str) -> bool:
    return any(re.search(rf"`\*{{0,2}}{name}\b|\b{name}`|`{name}[=(:. ]", text) for text in texts)


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - ALIASES))
def test_a_public_name_says_what_it_is_for(name: str) -> None:
    words = text_of(PUBLIC[name])
    assert len(words.split()) >= 3, name
    assert not words.startswith(f"{name.rpartition('.')[2]}("), "that is what Python writes by itself"


def methods(cls: type) -> Iterator[tuple[str, Any]]:
    for name in dir(cls):
        each = inspect.getattr_static(cls, name)
        each = each.fget if isinstance(each, property) else getattr(each, "__func__", each)
        if not name.startswith("_") and inspect.isfunction(each) and each.__module__.startswith("retinue"):
            yield name, each


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_method_of_a_public_class_says_what_it_does(name: str) -> None:
    silent = [each for each, function in methods(CLASSES[name]) if not function.__doc__]
    assert silent == []


def unsaid(function: Any, *more: str) -> list[str]:
    texts = (text_of(function), *more)
    names = [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.name not in ("self", "cls", "options") and not each.name.startswith("_")
    ]
    return [each for each in names if not said(each, *texts)]


SELF_EXPLAINED = {
    "agent",
    "prompt",
    "run_id",
    "text",
    "name",
    "path",
    "kind",
    "tool",
    "which",
    "other",
    "request",
}
"""Parameters whose name, beside the function's, says all there is."""


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_parameter_of_a_public_function_is_explained(name: str) -> None:
    assert set(unsaid(FUNCTIONS[name])) - SELF_EXPLAINED == set()


def test_a_parameter_of_the_front_door_is_explained() -> None:
    silent: dict[str, set[str]] = {}
    options = text_of(RunGiven) + text_of(retinue.RunWith) + text_of(Retinue.run)
    for name, function in [*methods(Retinue), ("__init__", Retinue.__init__)]:
        left = set(unsaid(function, text_of(Retinue), options)) - SELF_EXPLAINED
        if left:
            silent[name] = left
    assert silent == {}


def test_an_option_of_a_run_is_explained() -> None:
    options = text_of(RunGiven) + text_of(retinue.RunWith)
    assert [each for each in inspect.get_annotations(retinue.RunWith) if not said(each, options)] == []


STRUCTS = sorted(
    name
    for name, each in CLASSES.items()
    if (issubclass(each, msgspec.Struct) or hasattr(each, "__dataclass_fields__")) and each is not Settings
)
"""Of `Settings` the reference of settings tells; it is made of the words beside each field."""
PLAIN = {
    *(
        "run_id",
        "name",
        "agent",
        "text",
        "status",
        "model",
        "title",
        "url",
        "path",
        "label",
        "depth",
        "prompt",
        "report",
    ),
    *(
        "input_tokens",
        "output_tokens",
        "turns",
        "tool_calls",
        "error",
        "description",
        "case",
        "tool",
        "key",
        "input",
    ),
}
"""Fields whose name says all there is."""


@pytest.mark.parametrize("name", STRUCTS)
def test_a_field_of_a_public_struct_is_explained(name: str) -> None:
    cls = CLASSES[name]
    fields = getattr(cls, "__struct_fields__", None) or tuple(cls.__dataclass_fields__)
    below = words_below(cls)
    assert [
        each
        for each in fields
        if each not in PLAIN
        and each not in below
        and not said(each, text_of(cls))
        and not each.startswith("_")
    ] == []
