"""A file of cases, read: YAML or JSON, every mistake with its line and what to write instead.

It is data: nothing of it is run, it names no code, and it sets nothing but what is asked and expected. Called
by `retinue eval`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import msgspec

from retinue.agents.document import Invalid, YamlValue, yaml_fields
from retinue.errors import ConfigError
from retinue.reading import Unreadable, read_named, text_of
from retinue.testing.eval_cases import LISTS, EvalCase, Expect
from retinue.types import Outcome

MOST_BYTES = 8_000_000
"""Of a file of cases."""
TOP = ("agent", "tries", "expect", "cases")
CASE = ("name", "prompt", "expect")
EXPECT = tuple(each.name for each in msgspec.structs.fields(Expect))
_TOOLS = ("called", "not_called")
_WHOLE = ("max_tokens", "max_turns")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalFile:
    """What a file of cases says. `agent` and `tries` may be left to the command line."""

    cases: tuple[EvalCase, ...]
    agent: str = ""
    tries: int | None = None


def read_eval_file(path: Path, project: Path | None = None) -> EvalFile:
    """The cases of a file, or a `ConfigError` with the line of the first mistake. One that is named as a file
    of the `project` has to be in there really."""
    try:
        text = text_of(read_named(path, MOST_BYTES, project=project), str(path))
    except Unreadable as error:
        raise ConfigError(f"{path} {error.why}", fix="name a file of cases, for example cases.yaml") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror or error}", fix="name a file of cases, for example cases.yaml"
        ) from None
    try:
        return _file(yaml_fields(text, what="the file"))
    except Invalid as mistake:
        raise ConfigError(
            mistake.message, file=str(path), line=mistake.line, fix=mistake.fix or None
        ) from None


def _file(fields: dict[str, YamlValue]) -> EvalFile:
    _known(fields, TOP, "the file")
    if "cases" not in fields:
        raise Invalid("there are no cases", line=1, fix="write 'cases:' and below it '- prompt: …'")
    given = fields["cases"]
    if not isinstance(given.data, list) or not given.data:
        raise Invalid("cases is no list of cases", line=given.line, fix="write '- prompt: …' for each")
    tries = fields.get("tries")
    if tries is not None and (type(tries.data) is not int or not 1 <= tries.data <= 1000):
        raise Invalid(f"tries is {tries.raw!r}", line=tries.line, fix="write a number from 1 to 1000")
    common = _expect_fields(fields["expect"]) if "expect" in fields else {}
    cases: dict[str, EvalCase] = {}
    for place, value in enumerate(given.data, 1):
        case = _case(value, place, common)
        if case.name in cases:
            raise Invalid(
                f"two cases have the name {case.name!r}", line=value.line, fix="each needs a name of its own"
            )
        cases[case.name] = case
    agent = _text(fields["agent"], "agent") if "agent" in fields else ""
    return EvalFile(
        cases=tuple(cases.values()),
        agent=agent,
        tries=tries.data if tries and type(tries.data) is int else None,
    )


def _case(value: YamlValue, place: int, common: dict[str, Any]) -> EvalCase:
    if not isinstance(value.data, dict):
        raise Invalid(f"case {place} is no case", line=value.line, fix="write '- prompt: …'")
    fields = value.data
    _known(fields, CASE, f"case {place}")
    if "prompt" not in fields:
        raise Invalid(f"case {place} has no prompt", line=value.line, fix="say what is asked: 'prompt: …'")
    prompt = fields["prompt"]
    if not isinstance(prompt.data, dict):
        _text(prompt, "prompt")
    name = _text(fields["name"], "name") if "name" in fields else f"case {place}"
    own = _expect_fields(fields["expect"]) if "expect" in fields else {}
    asked: Any = prompt.plain() if isinstance(prompt.data, dict) else prompt.raw
    return EvalCase(name=name, prompt=asked, expect=Expect(**{**common, **own}))


def _expect_fields(value: YamlValue) -> dict[str, Any]:
    if not isinstance(value.data, dict):
        raise Invalid("expect is no list of expectations", line=value.line, fix="for example 'says: pear'")
    _known(value.data, EXPECT, "expect")
    return {name: _expectation(name, inner) for name, inner in value.data.items()}


def _expectation(name: str, value: YamlValue) -> Any:
    if name in LISTS:
        items = value.data if isinstance(value.data, list) else [value]
        return tuple(_call(each, name) if name in _TOOLS else _text(each, name) for each in items)
    if name == "outcome":
        return _word(value)
    if name == "matches":
        return _pattern(value)
    if name == "data":
        if not isinstance(value.data, dict):
            raise Invalid("data is no object", line=value.line, fix="for example 'data: {price: 0.55}'")
        return value.plain()
    kinds = (int,) if name in _WHOLE else (int, float)
    if type(value.data) not in kinds or not value.data or float(str(value.data)) <= 0:
        kind = "whole number" if name in _WHOLE else "number"
        raise Invalid(f"{name} is {value.raw!r}", line=value.line, fix=f"write a {kind} above 0")
    return value.data


def _call(value: YamlValue, name: str) -> Any:
    if isinstance(value.data, dict):
        pairs = list(value.data.items())
        if len(pairs) == 1 and (pairs[0][1].data is None or isinstance(pairs[0][1].data, dict)):
            return value.plain()
        raise Invalid(
            f"{name} holds no call", line=value.line, fix="write 'tool', or 'tool: {argument: value}'"
        )
    return _text(value, name)


def _word(value: YamlValue) -> str:
    known: tuple[str, ...] = get_args(Outcome)
    if value.data not in known:
        near = get_close_matches(value.raw, known, n=1)
        fix = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(known)}"
        raise Invalid(f"outcome is {value.raw!r}", line=value.line, fix=fix)
    return str(value.data)


def _pattern(value: YamlValue) -> str:
    text = _text(value, "matches")
    try:
        re.compile(text)
    except re.error as error:
        raise Invalid(f"matches is no regular expression: {error}", line=value.line) from None
    return text


def _text(value: YamlValue, name: str) -> str:
    if isinstance(value.data, (list, dict)) or value.data is None or not value.raw.strip():
        raise Invalid(f"{name} is no text", line=value.line, fix=f"write '{name}: …'")
    return value.raw


def _known(fields: dict[str, YamlValue], known: tuple[str, ...], where: str) -> None:
    for name, value in fields.items():
        if name in known:
            continue
        near = get_close_matches(name, known, n=1)
        fix = f"did you mean '{near[0]}'?" if near else f"it may have: {', '.join(known)}"
        raise Invalid(f"{where} has an unknown field {name[:60]!r}", line=value.line, fix=fix)
