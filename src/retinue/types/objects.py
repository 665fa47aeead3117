"""Objects that a program writes where a name is kept: models, and a function that makes a prompt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

from retinue.types.messages import Model

PromptFunction = Callable[[Any], str | Awaitable[str]]


class GivenObjects(dict[str, str]):
    """Which parts of an agent were given as objects, by their names; it knows the objects."""

    def __init__(self, before: Mapping[str, str]) -> None:
        super().__init__(before)
        known = before if isinstance(before, GivenObjects) else None
        self.models: dict[str, Model] = known.models if known else {}
        self.prompt: PromptFunction | None = known.prompt if known else None


def models_of(given: Any) -> tuple[str, dict[str, Model]]:
    """The name of a model, or of several with commas between them, and those that are objects."""
    several: list[Any] = [given]
    if not isinstance(given, str) and not hasattr(given, "stream") and isinstance(given, Iterable):
        several = list(cast("Iterable[Any]", given))
    if not several:
        raise ValueError("model is an empty list: give a name, a model, or several")
    names: list[str] = []
    objects: dict[str, Model] = {}
    for each in several:
        name = each if isinstance(each, str) else getattr(each, "name", None)
        if not isinstance(name, str) or (each is not name and not hasattr(each, "stream")):
            raise TypeError(
                f"model is {type(each).__name__}: give a name, an object with 'name' and 'stream', or several"
            )
        if each is not name:
            if name in objects and objects[name] is not each:
                raise ValueError(f"two models of a chain are named {name!r}: give each a name of its own")
            objects[name] = cast("Model", each)
        names.append(name.strip())
    return ",".join(dict.fromkeys(names)), objects
